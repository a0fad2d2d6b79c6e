"""Stores with headers: the two forms of one store, rows that change their format, and what a query reads of them.

What each operation returns and logs is compared with Kafka Streams in `tests/conformance/test_headers.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.stores.layers import row_format
from kstreams_repl.engine.stores.layers.row_format import have_headers, keep_row_format
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind, in_application
from kstreams_repl.system.errors import InvalidStateStoreError, SerializationError, TopologyError
from kstreams_repl.system.types import AggregationWithHeaders, ValueTimestampHeaders, Windowed
from tests.queried import State
from tests.unit.engine.stores.conftest import Open

HEADERS: list[tuple[str, bytes | None]] = [("trace", b"1"), ("none", None)]
KINDS = [StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW, StoreKind.SESSION]


def described(kind: StoreKind) -> dict[str, Any]:
    return {} if kind is StoreKind.TIMESTAMPED_KEY_VALUE else {"retention_ms": 300_000, "window_size_ms": 10}


def put(store: Any, kind: StoreKind, key: str, number: int, headers: Any = None) -> None:
    """Put a row as a processor does, or with headers None as an operator of the DSL does."""
    if kind is StoreKind.SESSION:
        store.put(Windowed(key, number, number + 5), number if headers is None else AggregationWithHeaders(number, headers))
    else:
        row = (number, 7) if headers is None else ValueTimestampHeaders(number, 7, headers)
        store.put(key, row) if kind is StoreKind.TIMESTAMPED_KEY_VALUE else store.put(key, row, 10 * number)


def values(store: Any) -> list[Any]:
    return [value for _, value in store.all()]


@pytest.mark.parametrize("cache_bytes", [0, 100_000])
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "deployed"])
@pytest.mark.parametrize("kind", KINDS)
def test_operators_and_processors_see_one_store(open_kind: Open, kind: StoreKind, exact: bool, cache_bytes: int) -> None:
    opened = open_kind(kind, headers=True, cache_bytes=cache_bytes, exact=exact, suppress=not exact, **described(kind))
    put(opened.store, kind, "a", 1, HEADERS)
    put(opened.store.plain, kind, "b", 2)
    with_headers, plain = values(opened.store), values(opened.store.plain)
    session = kind is StoreKind.SESSION
    assert sorted(row.headers for row in with_headers) == [[], HEADERS]
    assert sorted(plain) == ([1, 2] if session else [(1, 7), (2, 7)])
    opened.store.flush()
    assert [tuple(headers) for _, _, _, headers, _ in sorted(opened.sent)] == [tuple(HEADERS), ()]
    assert values(opened.store) == with_headers and values(opened.store.plain) == plain
    opened.environment.commit({}, 0)
    opened.environment.rollback()
    assert values(opened.store) == with_headers


def test_a_deletion_is_logged_with_the_headers_of_the_record_that_caused_it(open_kind: Open) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, headers=True)
    opened.context.headers = [("cause", b"x")]
    opened.store.put("a", None)
    opened.store.put("a", ValueTimestampHeaders(None, 5, HEADERS))
    assert [(value, headers) for _, value, _, headers, _ in opened.sent] == [(None, [("cause", b"x")])] * 2


@pytest.mark.parametrize(("kind", "wrong"), [(StoreKind.TIMESTAMPED_KEY_VALUE, 5), (StoreKind.SESSION, 5)])
def test_a_plain_value_is_refused(open_kind: Open, kind: StoreKind, wrong: Any) -> None:
    opened = open_kind(kind, headers=True, **described(kind))
    with pytest.raises(SerializationError, match=r"expected (ValueTimestampHeaders|AggregationWithHeaders), got 5"):
        opened.store.put(Windowed("a", 0, 5) if kind is StoreKind.SESSION else "a", wrong)


def test_only_stores_that_kafka_streams_has_with_headers_keep_them() -> None:
    with pytest.raises(TopologyError, match="is a versioned store, which keeps no headers"):
        StoreBuilder("s", StoreKind.VERSIONED, headers=True)
    follows = StoreBuilder("s", StoreKind.SESSION, headers=None, follows_default=True)
    assert in_application(follows, "lmdb", "HEADERS").headers is True
    assert in_application(follows, "lmdb", "DEFAULT").headers is False
    assert in_application(follows, "in_memory", "HEADERS").headers is False  # as in Kafka Streams
    assert in_application(StoreBuilder("s", StoreKind.SESSION), "lmdb", "HEADERS").headers is False  # a user's own


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_kept_when_a_store_begins_to_keep_headers_and_when_it_ends(
    tmp_path: Path, kind: StoreKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_format, "_BATCH", 3)
    builders = {has: StoreBuilder("st", kind, serdes.string, serdes.long, headers=has, **described(kind)) for has in (False, True)}

    def opened(headers: bool) -> tuple[LmdbEnvironment, Any]:
        environment = LmdbEnvironment(tmp_path / "state", map_bytes=1 << 24)
        keep_row_format(environment, builders[headers])
        return environment, open_store(builders[headers], environment, record_context=RecordContext())

    environment, store = opened(False)
    for number in range(7):
        put(store, kind, f"k{number}", number)
    before = list(store.all())
    environment.commit({}, 0)
    environment.close()

    environment, store = opened(True)
    assert list(store.plain.all()) == before
    assert [row.headers for row in values(store)] == [[]] * 7
    put(store, kind, "k0", 0, HEADERS)
    environment.commit({}, 1)
    environment.close()

    environment, store = opened(False)
    assert list(store.all()) == before
    environment.close()


def test_a_conversion_goes_on_where_a_crash_has_ended_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_format, "_BATCH", 3)
    kind = StoreKind.TIMESTAMPED_KEY_VALUE
    plain, kept = (StoreBuilder("st", kind, serdes.string, serdes.long, headers=headers) for headers in (False, True))
    for crash_after in range(4):
        environment = LmdbEnvironment(tmp_path / str(crash_after), map_bytes=1 << 24)
        store: Any = open_store(plain, environment, record_context=RecordContext())
        for number in range(9):  # the last batch is empty
            store.put("" if number == 0 else f"k{number}", (number, number))
        environment.commit({}, 0)
        write, written = environment.restore, []

        def crashing(*args: Any, write: Any = write, written: list[Any] = written, limit: int = crash_after, **more: Any) -> None:
            if len(written) == limit:
                raise OSError("crash")
            written.append(args)
            write(*args, **more)

        monkeypatch.setattr(environment, "restore", crashing)
        with pytest.raises(OSError, match="crash"):
            keep_row_format(environment, kept)
        environment.close()

        environment = LmdbEnvironment(tmp_path / str(crash_after), map_bytes=1 << 24)
        keep_row_format(environment, plain if crash_after % 2 else kept)  # back, too
        assert have_headers(environment.attribute(row_format.row_format("st"))) is not bool(crash_after % 2)
        keep_row_format(environment, kept)
        store = open_store(kept, environment, record_context=RecordContext())
        assert values(store) == [ValueTimestampHeaders(number, number, []) for number in range(9)]
        environment.close()


def test_a_query_shows_headers_to_whoever_asks_for_them(tmp_path: Path) -> None:
    kinds = {"keys": StoreKind.TIMESTAMPED_KEY_VALUE, "windows": StoreKind.TIMESTAMPED_WINDOW, "sessions": StoreKind.SESSION}
    builders = [StoreBuilder(name, kind, serdes.string, serdes.long, headers=True, **described(kind)) for name, kind in kinds.items()]
    state = State(tmp_path, *builders)

    def fill(stores: Any) -> None:
        for name, kind in kinds.items():
            put(stores[name], kind, "a", 1, HEADERS)

    state.write(0, fill)
    types = ks.queries.QueryableStoreTypes

    def read(name: str, kind: Any) -> Any:
        return state.queries.store(ks.queries.StoreQueryParameters(name, kind))

    row = ValueTimestampHeaders(1, 7, HEADERS)
    assert read("keys", types.timestamped_key_value_store_with_headers()).get("a") == row
    assert read("keys", types.timestamped_key_value_store_with_headers()).get_many(["a", "b"]) == {"a": row}
    assert read("keys", types.timestamped_key_value_store()).get("a") == ks.ValueAndTimestamp(1, 7)
    assert read("keys", types.key_value_store()).get("a") == 1
    assert list(read("windows", types.timestamped_window_store_with_headers()).fetch("a", 0, 20)) == [(10, row)]
    assert list(read("windows", types.window_store()).fetch("a", 0, 20)) == [(10, 1)]
    session = AggregationWithHeaders(1, HEADERS)
    assert read("sessions", types.session_store_with_headers()).fetch_session("a", 1, 6) == session
    assert read("sessions", types.session_store()).fetch_session("a", 1, 6) == 1
    for name, kind in (("keys", types.timestamped_window_store_with_headers()), ("sessions", types.timestamped_key_value_store())):
        with pytest.raises(InvalidStateStoreError, match="does not accept"):
            read(name, kind).all()
