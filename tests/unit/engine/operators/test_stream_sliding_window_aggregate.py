"""Sliding windows."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import Windowed
from tests.unit.engine.operators.windowed import sliding_windows


def _shown(seen: list[Any]) -> list[tuple[int, int, Any]]:
    return [(key.start, key.end, change[0]) for key, change, _ in seen]


def test_a_record_alone_has_the_window_that_ends_with_it() -> None:
    bench = sliding_windows(10, grace=100)
    assert bench.pipe("in", "a", 1, 20) == [(Windowed("a", 10, 20), ("|1", None, True), 20)]


def test_the_next_record_makes_the_right_window_of_the_one_before_and_its_own_left_one() -> None:
    bench = sliding_windows(10, grace=100)
    bench.pipe("in", "a", 1, 20)
    assert _shown(bench.pipe("in", "a", 2, 25)) == [(21, 31, "|2"), (15, 25, "|1|2")]


def test_both_ends_are_included() -> None:
    bench = sliding_windows(10, grace=100)
    bench.pipe("in", "a", 1, 20)
    assert (20, 30, "|1|2") in _shown(bench.pipe("in", "a", 2, 30))


def test_records_before_the_time_difference_share_the_first_window() -> None:
    bench = sliding_windows(10, grace=100)
    assert _shown(bench.pipe("in", "a", 1, 3)) == [(0, 10, "|1")]
    assert _shown(bench.pipe("in", "a", 2, 7)) == [(4, 14, "|2"), (0, 10, "|1|2")]


def test_an_early_record_out_of_order_gets_its_right_window() -> None:
    bench = sliding_windows(10, grace=100)
    bench.pipe("in", "a", 1, 7)
    assert _shown(bench.pipe("in", "a", 2, 3)) == [(4, 14, "|1"), (0, 10, "|1|2")]


def test_an_out_of_order_record_updates_newest_windows_first() -> None:
    bench = sliding_windows(10, grace=100)
    bench.pipe("in", "a", 1, 20)
    bench.pipe("in", "a", 2, 26)
    assert _shown(bench.pipe("in", "a", 3, 23)) == [(21, 31, "|2|3"), (16, 26, "|1|2|3"), (13, 23, "|1|3"), (24, 34, "|2")]


def test_a_record_of_the_same_instant_updates_the_same_windows() -> None:
    bench = sliding_windows(10, grace=100)
    bench.pipe("in", "a", 1, 20)
    assert _shown(bench.pipe("in", "a", 2, 20)) == [(10, 20, "|1|2")]


def test_a_window_is_late_when_its_end_is_before_stream_time_minus_grace() -> None:
    bench = sliding_windows(10, grace=5)
    bench.pipe("in", "a", 0, 40)
    assert _shown(bench.pipe("in", "b", 1, 25)) == []
    assert bench.dropped() == 1  # its left window [15, 25]; the record itself is still in time for a window that starts at it
    assert _shown(bench.pipe("in", "b", 1, 24)) == []
    assert bench.dropped() == 2
    assert _shown(bench.pipe("in", "b", 2, 35)) == [(25, 35, "|2")]


def test_null_keys_and_null_values_are_dropped() -> None:
    bench = sliding_windows(10)
    assert bench.pipe("in", None, 1, 20) == bench.pipe("in", "a", None, 20) == []
    assert bench.dropped() == 2


def test_old_values_are_sent_when_asked() -> None:
    bench = sliding_windows(10, send_old_values=True)
    assert bench.pipe("in", "a", 1, 20)[0][1] == ("|1", "", True)
    assert bench.pipe("in", "a", 2, 20)[0][1] == ("|1|2", "|1", True)


def test_a_reduce_has_no_first_aggregate() -> None:
    def reduce(key: object, value: int, aggregate: int | None) -> int:
        return value if aggregate is None else aggregate + value

    bench = sliding_windows(10, initializer=lambda: None, aggregator=reduce)
    bench.pipe("in", "a", 1, 20)
    assert _shown(bench.pipe("in", "a", 2, 25)) == [(21, 31, 2), (15, 25, 3)]


def test_a_time_difference_of_zero_is_refused_at_the_first_record() -> None:
    with pytest.raises(KStreamsError, match="must be >= 1 ms, got 0"):
        sliding_windows(0, grace=5).pipe("in", "a", 1, 10)


def test_a_cached_store_forwards_when_it_is_flushed() -> None:
    bench = sliding_windows(10, grace=100, cache=10_000_000)
    bench.pipe("in", "a", 1, 20)
    assert sorted(_shown(bench.pipe("in", "a", 2, 25))) == [(15, 25, "|1|2"), (21, 31, "|2")]


def test_closed_windows_are_emitted_once_and_none_is_lost() -> None:
    bench = sliding_windows(10, grace=5, emit_on_close=True)
    assert bench.pipe("in", "a", 1, 20) == []
    assert bench.pipe("in", "a", 2, 25) == []
    assert bench.pipe("in", "b", 3, 26) == [(Windowed("a", 10, 20), ("|1", None, True), 20)]
    assert _shown(bench.pipe("in", "b", 4, 900_000)) == [(15, 25, "|1|2"), (16, 26, "|3"), (21, 31, "|2")]
    assert _shown(bench.pipe("in", "b", 5, 2_000_000)) == [(899_990, 900_000, "|4")]


@given(st.lists(st.tuples(st.integers(10, 60), st.integers(1, 5)), min_size=1, max_size=12))
def test_each_window_holds_exactly_the_records_between_its_ends(records: list[tuple[int, int]]) -> None:
    bench = sliding_windows(10, grace=10_000, initializer=lambda: 0, aggregator=lambda key, value, total: total + value)
    for timestamp, value in records:
        bench.pipe("in", "a", value, timestamp)
    last: dict[int, int] = defaultdict(int)
    for key, change, _ in bench.seen:
        last[key.start] = change[0]
    for start, total in last.items():
        assert total == sum(value for timestamp, value in records if start <= timestamp <= start + 10)
    assert {timestamp - 10 for timestamp, _ in records} <= set(last)
