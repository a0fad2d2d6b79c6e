"""The record cache of deployed tasks: order, contexts, tombstones, budget, and flushes in columns."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.stores.cache.cache_entry import NOTHING
from kstreams_repl.engine.stores.cache.write_back_cache import WriteBackCache
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.store_builder import StoreKind

BIG = 10_000_000


def opened_with_listener(
    open_kind: Any, kind: StoreKind = StoreKind.TIMESTAMPED_KEY_VALUE, send_old: bool = True, **more: Any
) -> tuple[Any, list[Any]]:
    opened = open_kind(kind, **{"cache_bytes": BIG, "exact": False, **more})
    left: list[Any] = []

    def listener(key: Any, new: Any, old: Any, timestamp: int, headers: Any) -> None:
        left.append((key, new, old, timestamp, opened.context.offset, list(headers)))

    assert opened.store.set_flush_listener(listener, send_old)
    return opened, left


def put(opened: Any, offset: int, *arguments: Any) -> None:
    opened.context.offset, opened.context.timestamp = offset, offset * 10
    opened.context.headers = [("o", b"%d" % offset)]
    opened.store.put(*arguments)


def test_entries_leave_in_last_write_order_under_their_own_context(open_kind: Any) -> None:
    opened, left = opened_with_listener(open_kind)
    put(opened, 1, "a", (1, 10))
    put(opened, 2, "b", (2, 20))
    put(opened, 3, "a", (3, 30))
    opened.context.offset = 77
    opened.store.flush()
    assert left == [("b", 2, None, 20, 2, [("o", b"2")]), ("a", 3, None, 30, 3, [("o", b"3")])]
    assert [record[0] for record in opened.sent] == [b"b", b"a"]
    assert opened.context.offset == 77 and not opened.cache.dirty


def test_old_values_are_those_last_flushed_and_absent_tombstones_go_nowhere(open_kind: Any) -> None:
    opened, left = opened_with_listener(open_kind)
    put(opened, 1, "a", (1, 10))
    opened.store.flush()
    put(opened, 2, "a", None)
    put(opened, 3, "never", None)
    assert opened.store.get("a") is None
    opened.store.flush()
    assert [entry[:4] for entry in left] == [("a", 1, None, 10), ("a", None, 1, 20)]
    assert opened.log()[1:] == [(b"a", None, 20)]
    assert opened.store.get("a") is None


def test_a_write_that_comes_back_during_the_forward_leaves_with_the_next_flush(open_kind: Any) -> None:
    opened, left = opened_with_listener(open_kind)
    again: list[Any] = []

    def listener(key: Any, new: Any, old: Any, timestamp: int, headers: Any) -> None:
        again.append((key, new))
        if new < 10:
            opened.store.put(key, (new + 10, timestamp))

    opened.store.set_flush_listener(listener, False)
    put(opened, 1, "a", (1, 10))
    put(opened, 2, "b", (2, 20))
    opened.store.flush()
    assert again == [("a", 1), ("b", 2)] and opened.cache.dirty
    opened.store.flush()
    assert again[2:] == [("a", 11), ("b", 12)] and not opened.cache.dirty
    assert opened.store.get("a") == (11, 10)


def test_a_value_that_can_change_in_place_is_kept_as_it_was_put(open_kind: Any) -> None:
    opened, left = opened_with_listener(open_kind, value_serde=serdes.json)
    value = {"n": 1}
    put(opened, 1, "a", (value, 10))
    value["n"] = 2
    assert opened.store.get("a") == ({"n": 1}, 10)
    opened.store.flush()
    assert left[0][1] == {"n": 1}


def test_small_values_that_can_change_in_place_stay_readable_after_a_flush_and_are_nobodys_to_change(open_kind: Any) -> None:
    opened, _ = opened_with_listener(open_kind, value_serde=serdes.json)
    put(opened, 1, "small", ({"n": [1]}, 10))
    put(opened, 2, "large", ({"n": ["x" * 10_000]}, 20))
    opened.store.flush()
    assert (opened.cache.caches[0].find(b"small") is not None, opened.cache.caches[0].find(b"large") is not None) == (True, False)
    for _ in range(2):
        opened.store.get("small")[0]["n"].append(2)
        opened.store.get("large")[0]["n"].append(2)
    assert opened.store.get("small") == ({"n": [1]}, 10)
    assert opened.store.get("large") == ({"n": ["x" * 10_000]}, 20)
    assert opened.cache.caches[0].find(b"large") is None


def test_rows_above_the_store_are_read_in_key_order_with_dirty_ones_over_them(open_kind: Any) -> None:
    opened, _ = opened_with_listener(open_kind)
    for offset, key in enumerate("bd"):
        put(opened, offset, key, (offset, 0))
    opened.store.flush()
    put(opened, 5, "c", (5, 0))
    assert [key for key, _ in opened.store.all()] == ["b", "c", "d"]
    put(opened, 6, "a", (6, 0))
    put(opened, 7, "d", None)
    assert [key for key, _ in opened.store.all()] == ["a", "b", "c"]
    assert [key for key, _ in opened.store.reverse_all()] == ["c", "b", "a"]


def test_writing_one_key_again_and_again_does_not_exhaust_the_budget(open_kind: Any) -> None:
    opened, left = opened_with_listener(open_kind, cache_bytes=20_000)
    for offset in range(5_000):
        put(opened, offset, "ab"[offset % 2], (offset, offset))
    assert left == [] and opened.cache.size <= 20_000
    opened.store.flush()
    assert [(entry[0], entry[1], entry[4]) for entry in left] == [("a", 4_998, 4_998), ("b", 4_999, 4_999)]


def test_many_keys_leave_when_the_budget_is_exceeded(open_kind: Any) -> None:
    opened, left = opened_with_listener(open_kind, cache_bytes=20_000)
    for offset in range(3_000):
        put(opened, offset, f"k{offset}", (offset, offset))
    assert len(left) > 1_000
    opened.store.flush()
    assert [entry[0] for entry in left] == [f"k{offset}" for offset in range(3_000)]


@pytest.mark.parametrize("kind", [StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW])
def test_an_outlet_gets_the_bytes_that_forwarding_would_have_written(open_kind: Any, kind: StoreKind) -> None:
    windowed = kind is StoreKind.TIMESTAMPED_WINDOW
    described = {"window_size_ms": 10, "retention_ms": 1000} if windowed else {}
    key_serde = serdes.time_windowed(serdes.string, 10) if windowed else serdes.string
    expected, direct = [], []
    for wanted in (False, True):
        opened, left = opened_with_listener(open_kind, kind, send_old=False, inside=MemoryEnvironment(), **described)
        if wanted:

            def find(key: Any, value: Any) -> Any:
                assert key.writes_like(key_serde) and value is serdes.long
                return lambda *columns: direct.extend(zip(*columns, strict=True))

            opened.store.set_outlet(find, lambda: None)
        for offset, key in enumerate(("a", "b", "a", "ü")):
            if windowed:
                put(opened, offset, key, (offset, 100 + offset), 100)
            else:
                put(opened, offset, key, (offset, 100 + offset))
        opened.store.flush()
        if not wanted:
            expected = [(key_serde.serialize(key), serdes.long.serialize(new), at, headers) for key, new, _, at, _, headers in left]
            log = opened.log()
        else:
            assert left == [] and opened.log() == log
    assert direct == expected and len(expected) == 3


def test_windows_of_several_segments_leave_as_if_one_by_one(open_kind: Any) -> None:
    opened, left = opened_with_listener(
        open_kind, StoreKind.TIMESTAMPED_WINDOW, send_old=False, window_size_ms=10, retention_ms=60_000
    )
    for offset, start in enumerate((0, 60_000, 600_000, 0)):
        put(opened, offset, "a", (offset, start), start)
    opened.store.flush()
    assert opened.dropped == ["expired"]
    assert [window.start for window, _ in opened.store.all()] == [600_000]


def test_columns_are_taken_back_by_a_rollback(environment: Any) -> None:
    engine = environment.engine("e")
    engine.put_many([b"a", b"b"], [b"1", b"2"])
    environment.commit({}, 1)
    engine.put(b"a", b"3")
    engine.put_many([b"a", b"c", b"a"], [b"4", b"5", b"6"])
    engine.put(b"b", None)
    engine.put_many([b"b", b"d"], [b"7", None])
    assert list(engine.range()) == [(b"a", b"6"), (b"b", b"7"), (b"c", b"5")]
    engine.put_many([b"0", b"0"], [b"8", b"9"])
    assert list(engine.range())[0] == (b"0", b"9")
    environment.rollback()
    assert list(engine.range()) == [(b"a", b"1"), (b"b", b"2")]


def test_a_store_that_is_only_read_keeps_no_more_than_it_may(open_kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WriteBackCache.__init__.__kwdefaults__, "capacity", 10)
    opened, left = opened_with_listener(open_kind)
    for number in range(100):
        put(opened, number, f"k{number}", (number, number))
    opened.store.flush()
    put(opened, 200, "dirty", (7, 200))
    before = len(left)
    assert [opened.store.get(f"k{number}") for number in range(100)] == [(number, number) for number in range(100)]
    assert len(opened.store.cached._slots) <= 2 * 10 + 1
    assert opened.store.get("dirty") == (7, 200)
    opened.store.flush()
    assert [entry[0] for entry in left[before:]] == ["dirty"]


def test_a_slot_is_made_of_the_row_below_or_of_nothing(open_kind: Any) -> None:
    opened, left = opened_with_listener(open_kind)
    put(opened, 1, "a", (1, 10))
    opened.store.flush()
    cache = opened.store.cached
    cache._slots.clear()
    slot = cache.load(b"a")
    assert (slot.value, slot.at, cache.find(b"a")) == (1, 10, slot)
    nothing = cache.load(b"b")
    assert nothing.value is NOTHING and opened.store.get("b") is None
    put(opened, 2, "b", (5, 20))
    assert cache.find(b"b") is nothing and opened.store.get("b") == (5, 20)
    opened.store.flush()
    assert [entry[:3] for entry in left] == [("a", 1, None), ("b", 5, None)]
