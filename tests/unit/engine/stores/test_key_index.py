"""Reading by key through the index gives what a range over the rows gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstreams_repl import serdes
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.stores.cache.record_cache import RecordCache
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.stores.layers import key_index
from kstreams_repl.engine.stores.layers.key_index import KeyIndex
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.types import Windowed

KINDS: dict[str, dict[str, Any]] = {
    "window": {"kind": StoreKind.TIMESTAMPED_WINDOW, "window_size_ms": 10},
    "join": {"kind": StoreKind.WINDOW, "window_size_ms": 10, "retain_duplicates": True},
    "time-ordered": {"kind": StoreKind.TIME_ORDERED_WINDOW, "window_size_ms": 10},
    "session": {"kind": StoreKind.SESSION},
    "cached window": {"kind": StoreKind.TIMESTAMPED_WINDOW, "window_size_ms": 10, "caching": True},
    "cached session": {"kind": StoreKind.SESSION, "caching": True},
}

times = st.one_of(st.integers(0, 60), st.sampled_from([59_999, 60_000, 130_000, 400_000]))
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(["a", "ab", "b"]), times, st.integers(0, 9)),
        st.tuples(st.just("delete"), st.sampled_from(["a", "ab", "b"]), times),
        st.tuples(st.just("read"), st.sampled_from(["a", "ab", "b"]), times, times),
        st.tuples(st.just("commit")),
        st.tuples(st.just("rollback")),
    ),
    max_size=30,
)


class _Pair:
    """One store with its environment."""

    def __init__(self, kind: str, *, deferred: bool, indexed: bool) -> None:
        self.environment = MemoryEnvironment()
        builder = StoreBuilder("s", key_serde=serdes.string, value_serde=serdes.long, retention_ms=100, **KINDS[kind])
        cache = RecordCache(10_000_000, exact=False)
        self.store: Any = open_store(
            builder, self.environment, record_context=RecordContext(), cache=cache, suppress_changelog=deferred
        )
        self.timestamped = builder.kind in (StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW)
        self.session = builder.kind is StoreKind.SESSION
        if indexed:
            self.store.index_by_key()

    def run(self, operation: tuple[Any, ...]) -> Any:
        name, *rest = operation
        if name == "commit":
            self.store.flush()
            self.environment.commit({}, 1)
        elif name == "rollback":
            self.environment.rollback()
        elif name == "read":
            key, low, high = rest
            if self.session:
                return [list(self.store.find_sessions(key, low, high)), list(self.store.backward_find_sessions(key, low, high))]
            return [list(self.store.fetch(key, low, high)), list(self.store.backward_fetch(key, low, high))]
        else:
            key, time, *value = rest
            cell = ((value[0], time) if self.timestamped else value[0]) if value else None
            if self.session:
                self.store.put(Windowed(key, max(time - 3, 0), time), cell)
            else:
                self.store.put(key, cell, time)
        return None


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(work=operations)
def test_reads_by_key_are_the_same_with_and_without_the_index(kind: str, deferred: bool, work: list[tuple[Any, ...]]) -> None:
    if kind.startswith("cached"):  # a range over a cache shows expired entries as long as they are in it; the index never does
        work = [(*operation[:2], *(time % 61 for time in operation[2:])) for operation in work]
    indexed, plain = _Pair(kind, deferred=deferred, indexed=True), _Pair(kind, deferred=deferred, indexed=False)
    for operation in work:
        assert indexed.run(operation) == plain.run(operation)


@pytest.mark.parametrize("kind", ["window", "join", "session"])
@settings(max_examples=40)
@given(work=operations)
def test_an_index_that_is_too_small_learns_keys_one_by_one(kind: str, work: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyIndex.__init__, "__defaults__", (4,))
        indexed, plain = _Pair(kind, deferred=True, indexed=True), _Pair(kind, deferred=True, indexed=False)
        for operation in work:
            assert indexed.run(operation) == plain.run(operation)


def test_expired_entries_are_swept_out_before_the_index_starts_again() -> None:
    first_shown = b"\x00"
    index = KeyIndex(lambda key: (), lambda: 0, lambda: first_shown, capacity=10)
    for number in range(10):
        index.added(b"a", bytes([number]))
    first_shown = b"\x08"
    index.added(b"b", b"\x09")
    assert index.complete
    assert index.lists == {b"a": [b"\x08", b"\x09"], b"b": [b"\x09"]}
    assert index.size == 3


def test_a_store_with_more_rows_than_fit_is_not_read_at_once() -> None:
    read: list[bytes | None] = []

    def rows_of(key: bytes | None) -> list[tuple[bytes, bytes]]:
        read.append(key)
        return [(b"a", b"1")]

    index = KeyIndex(rows_of, lambda: key_index.CAPACITY, lambda: b"")
    assert not index.complete
    assert index.of(b"a") == index.of(b"a") == [b"1"]
    assert read == [b"a"]
