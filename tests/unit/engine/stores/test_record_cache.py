"""The record cache where it shows: what leaves, in which order, with which old value and under which context."""

from __future__ import annotations

from typing import Any

from kstreams_repl import serdes
from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.system.types import Windowed

BIG = 100_000


def listening(opened: Any, send_old: bool = True) -> list[tuple[Any, ...]]:
    left: list[tuple[Any, ...]] = []
    context = opened.context

    def listener(key: Any, new: Any, old: Any, timestamp: int, headers: Any) -> None:
        left.append((key, new, old, timestamp, context.offset, list(headers)))

    assert opened.store.set_flush_listener(listener, send_old)
    return left


def put(opened: Any, offset: int, *arguments: Any) -> None:
    opened.context.offset = offset
    opened.context.timestamp = offset * 10
    opened.context.headers = [("o", b"%d" % offset)]
    opened.store.put(*arguments)


def test_uncached_stores_say_that_they_do_not_forward(open_kind: Any) -> None:
    assert open_kind(StoreKind.TIMESTAMPED_KEY_VALUE).store.set_flush_listener(lambda *_: None, True) is False


def test_entries_leave_in_last_write_order_under_their_own_context(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, cache_bytes=BIG)
    left = listening(opened)
    put(opened, 1, "a", (1, 10))
    put(opened, 2, "b", (2, 20))
    put(opened, 3, "a", (3, 30))
    opened.context.offset, opened.context.timestamp = 77, 770
    assert left == [] and opened.sent == [] and opened.cache.dirty
    opened.store.flush()
    assert left == [("b", 2, None, 20, 2, [("o", b"2")]), ("a", 3, None, 30, 3, [("o", b"3")])]
    assert [record[0] for record in opened.sent] == [b"b", b"a"]
    assert (opened.context.offset, opened.context.timestamp) == (77, 770) and not opened.cache.dirty


def test_the_old_value_is_the_one_last_flushed(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, cache_bytes=BIG)
    left = listening(opened)
    put(opened, 1, "a", (1, 10))
    opened.store.flush()
    put(opened, 2, "a", (2, 20))
    put(opened, 3, "a", (3, 30))
    opened.store.flush()
    assert [entry[:4] for entry in left] == [("a", 1, None, 10), ("a", 3, 1, 30)]


def test_a_tombstone_for_an_absent_key_is_neither_logged_nor_forwarded(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, cache_bytes=BIG)
    left = listening(opened, send_old=False)
    put(opened, 1, "a", (1, 10))
    put(opened, 2, "a", None)
    opened.store.flush()
    assert left == [] and opened.sent == []


def test_a_tombstone_for_a_flushed_key_leaves_at_its_own_time(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, cache_bytes=BIG)
    left = listening(opened, send_old=False)
    put(opened, 1, "a", (1, 10))
    opened.store.flush()
    put(opened, 2, "a", None)
    opened.store.flush()
    assert left[1][:4] == ("a", None, None, 20) and opened.log()[1] == (b"a", None, 20)


def test_without_a_listener_tombstones_are_written_all_the_same(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, cache_bytes=BIG)
    put(opened, 1, "a", None)
    opened.store.flush()
    assert opened.log() == [(b"a", None, 10)]


def test_evicting_a_dirty_entry_flushes_all_of_the_store_with_the_evicted_first(open_kind: Any) -> None:
    # An entry weighs key 1 + value 16 + topic 2 + header 2 + 45.
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, cache_bytes=66 * 3)
    left = listening(opened)
    for offset, key in enumerate("abc"):
        put(opened, offset, key, (offset, offset))
    assert left == []
    opened.store.get("a")
    put(opened, 3, "c", (3, 3))
    put(opened, 4, "d", (4, 4))
    assert [entry[0] for entry in left] == ["b", "a", "c", "d"]


def test_window_entries_leave_with_their_window_and_the_stored_time(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_WINDOW, cache_bytes=BIG, retention_ms=100, window_size_ms=10)
    left = listening(opened)
    put(opened, 1, "a", (1, 5), 0)
    put(opened, 2, "a", (2, 7), 0)
    put(opened, 3, "a", (1, 12), 10)
    assert list(opened.store.fetch("a", 0, 100)) == [(0, (2, 7)), (10, (1, 12))]
    opened.store.flush()
    assert [entry[:4] for entry in left] == [(Windowed("a", 0, 10), 2, None, 7), (Windowed("a", 10, 20), 1, None, 12)]
    assert [key.hex() for key, _, _ in opened.log()] == ["61000000000000000000000000", "61000000000000000a00000000"]


def test_session_entries_leave_at_their_session_s_end(open_kind: Any) -> None:
    opened = open_kind(StoreKind.SESSION, cache_bytes=BIG, retention_ms=100)
    left = listening(opened)
    put(opened, 1, Windowed("a", 0, 5), 1)
    opened.store.remove(Windowed("a", 0, 5))
    put(opened, 2, Windowed("a", 0, 9), 2)
    assert list(opened.store.find_sessions("a", 0, 100)) == [(Windowed("a", 0, 9), 2)]
    opened.store.flush()
    assert [entry[:4] for entry in left] == [(Windowed("a", 0, 9), 2, None, 9)]


def test_forwards_during_a_flush_may_write_other_cached_stores(open_kind: Any, environment: Any) -> None:
    first = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, cache_bytes=BIG)
    seen = []

    def listener(key: Any, new: Any, old: Any, timestamp: int, headers: Any) -> None:
        seen.append((key, new))
        if new < 3:
            first.store.put(key, (new + 1, timestamp))

    first.store.set_flush_listener(listener, False)
    first.store.put("a", (1, 1))
    while first.cache.dirty:
        first.store.flush()
    assert seen == [("a", 1), ("a", 2), ("a", 3)] and serdes.long.deserialize(first.log()[-1][1]) == 3
