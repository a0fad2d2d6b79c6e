"""The buffer of `suppress` with `dsl.store.format=HEADERS` (Kafka Streams 4.4): what its changelog has is what it restores."""

from __future__ import annotations

from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.serdes import string
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.stores.kinds.buffer_headers import packed
from kstreams_repl.engine.stores.log.changelog_restore import Restorer
from kstreams_repl.system.types import Headers, RecordBatch

ONE: Headers = [("h", b"1")]


def builder(*, headers: bool) -> ks.StoreBuilder:
    return ks.StoreBuilder("s", ks.StoreKind.SUPPRESS_BUFFER, string, string, persistent=False, headers=headers)


def logged_by(store_headers: bool) -> tuple[Any, list[tuple[bytes, bytes | None, Headers]]]:
    """Two changes of one key: the first with a header, from `zero`, the second without."""
    log: list[tuple[bytes, bytes | None, Headers]] = []
    send = lambda key, value, timestamp, headers, partition: log.append((key, value, headers))  # noqa: E731
    store: Any = open_store(builder(headers=store_headers), MemoryEnvironment(), record_context=None, send=send)  # type: ignore[arg-type]
    store.put(5, "a", "one", "zero", ("t", 0, 0, 7, ONE))
    store.flush()
    store.put(9, "a", "two", "one", ("t", 0, 1, 9, []))
    store.flush()
    return store, log


def test_the_changelog_has_plain_values_and_the_headers_of_the_old_and_the_prior_one() -> None:
    (_, with_headers), (_, plain) = logged_by(True), logged_by(False)
    assert [(key, value) for key, value, _ in with_headers] == [(key, value) for key, value, _ in plain]
    version = ("v", b"\x03")
    assert [headers for *_, headers in plain] == [[version], [version]]
    never = packed([], -1)
    assert never == b"\x00" + b"\xff" * 8
    assert [headers for *_, headers in with_headers] == [
        [version, ("vh.old", never)],
        [version, ("vh.prior", never), ("vh.old", packed(ONE, 7))],
    ]


@pytest.mark.parametrize("written", [True, False], ids=["by 4.4 with headers", "without headers"])
@pytest.mark.parametrize("read", [True, False], ids=["read with headers", "read without"])
def test_a_changelog_of_either_format_is_restored_in_either(written: bool, read: bool) -> None:
    original, log = logged_by(written)
    environment = MemoryEnvironment()
    restorer = Restorer(builder(headers=read), environment, "app-s-changelog-0")
    restorer.apply(
        RecordBatch([key for key, *_ in log], [value for _, value, _ in log], [0, 0], [0, 1], [headers for *_, headers in log])
    )
    restorer.finish(2)
    store: Any = open_store(builder(headers=read), environment, record_context=None)  # type: ignore[arg-type]
    assert store.record_count() == 1 and store.min_time == 5 and store.prior_value("a") == ("zero",)
    if read == written:
        assert store.byte_size() == original.byte_size()
    emitted: list[Any] = []
    store.evict_first(lambda *entry: emitted.append(entry))
    assert emitted == [("a", "two", "one", ("t", 0, 1, 9, []))]


def test_the_size_in_bytes_counts_the_headers_of_values() -> None:
    """Bounds in bytes are Kafka Streams', which counts the rows in memory: 9 bytes in front of a value without headers."""
    (with_headers, _), (plain, _) = logged_by(True), logged_by(False)
    assert with_headers.byte_size() - plain.byte_size() == 9 + len(packed(ONE, 7)) + 9
