"""Tumbling, hopping and unlimited windows."""

from __future__ import annotations

import pytest

from kstreams_repl import StreamsBuilder, TimeWindows, serdes
from kstreams_repl.system.types import Windowed
from kstreams_repl.testing import TopologyTestDriver
from tests.unit.engine.operators.windowed import time_windows


def test_a_tumbling_window_holds_its_start_and_not_its_end() -> None:
    bench = time_windows(10, grace=100)
    assert bench.pipe("in", "a", 1, 10) == [(Windowed("a", 10, 20), ("|1", None, True), 10)]
    assert bench.pipe("in", "a", 2, 19) == [(Windowed("a", 10, 20), ("|1|2", None, True), 19)]
    assert bench.pipe("in", "a", 3, 20) == [(Windowed("a", 20, 30), ("|3", None, True), 20)]


def test_count_is_the_same_as_an_aggregate_that_counts() -> None:
    counted = time_windows(10, grace=5, count=True)
    aggregated = time_windows(10, grace=5, initializer=lambda: 0, aggregator=lambda key, value, number: number + 1)
    for timestamp in (1, 3, 14, 9, 15, 9, 31, 22):
        assert counted.pipe("in", "a", 0, timestamp) == aggregated.pipe("in", "a", 0, timestamp)
    assert counted.dropped() == aggregated.dropped() == 1


def test_the_result_has_the_time_of_the_latest_record() -> None:
    bench = time_windows(10, grace=10)
    bench.pipe("in", "a", 1, 8)
    assert [timestamp for _, _, timestamp in bench.pipe("in", "a", 2, 3)] == [8]


def test_a_window_is_late_when_its_end_is_not_after_stream_time_minus_grace() -> None:
    bench = time_windows(10, grace=5, count=True)
    bench.pipe("in", "a", 0, 14)
    assert len(bench.pipe("in", "b", 0, 9)) == 1
    bench.pipe("in", "a", 0, 15)
    assert bench.pipe("in", "b", 0, 9) == []
    assert bench.dropped() == 1


def test_a_null_key_is_dropped_and_does_not_move_time() -> None:
    bench = time_windows(10, count=True)
    assert bench.pipe("in", None, 1, 1000) == []
    assert bench.dropped() == 1
    assert len(bench.pipe("in", "a", 1, 1)) == 1


def test_a_null_value_is_aggregated() -> None:
    bench = time_windows(10)
    assert bench.pipe("in", "a", None, 1) == [(Windowed("a", 0, 10), ("|None", None, True), 1)]


def test_an_aggregate_of_none_deletes_the_window() -> None:
    bench = time_windows(10, initializer=lambda: None, aggregator=lambda key, value, old: value if old is None else None)
    bench.pipe("in", "a", 1, 1)
    assert bench.pipe("in", "a", 2, 2) == [(Windowed("a", 0, 10), (None, None, True), 2)]
    assert bench.driver.state_store("w").fetch("a", 0) is None


def test_hopping_windows_are_updated_earliest_first() -> None:
    bench = time_windows(10, advance=5, grace=10, count=True)
    assert [key.start for key, _, _ in bench.pipe("in", "a", 0, 12)] == [5, 10]
    assert [key.start for key, _, _ in bench.pipe("in", "a", 0, 3)] == [0]


def test_hopping_windows_never_start_before_zero_nor_off_the_advance() -> None:
    bench = time_windows(10, advance=3, grace=100, count=True)
    assert [key.start for key, _, _ in bench.pipe("in", "a", 0, 7)] == [0, 3, 6]
    assert [key.start for key, _, _ in bench.pipe("in", "a", 0, 20)] == [12, 15, 18]


def test_each_missed_window_of_one_record_is_counted_as_dropped() -> None:
    bench = time_windows(10, advance=5, count=True)
    bench.pipe("in", "a", 0, 16)
    assert [key.start for key, _, _ in bench.pipe("in", "a", 0, 7)] == []
    assert bench.dropped() == 2
    assert [key.start for key, _, _ in bench.pipe("in", "a", 0, 11)] == [10]
    assert bench.dropped() == 3


def test_an_unlimited_window_takes_all_from_its_start_and_skips_the_rest_uncounted() -> None:
    bench = time_windows(0, unlimited_start_ms=100, count=True)
    assert bench.pipe("in", "a", 0, 99) == []
    assert bench.pipe("in", "a", 0, 100) == [(Windowed("a", 100, 2**63 - 1), (1, None, True), 100)]
    assert bench.pipe("in", "a", 0, 10**12)[0][1] == (2, None, True)
    assert bench.dropped() == 0


def test_old_values_are_sent_when_asked_and_the_first_one_is_the_initializers() -> None:
    bench = time_windows(10, send_old_values=True)
    assert bench.pipe("in", "a", 1, 1)[0][1] == ("|1", "", True)
    assert bench.pipe("in", "a", 2, 1)[0][1] == ("|1|2", "|1", True)


@pytest.mark.parametrize("count", [True, False])
def test_a_cached_store_forwards_when_it_is_flushed_and_sends_the_stored_old_value(count: bool) -> None:
    bench = time_windows(10, cache=10_000_000, send_old_values=True, count=count)
    first, second = (1, 2) if count else ("|1", "|1|2")
    assert bench.pipe("in", "a", 1, 1) == [(Windowed("a", 0, 10), (first, None, True), 1)]
    assert bench.pipe("in", "a", 2, 5) == [(Windowed("a", 0, 10), (second, first, True), 5)]


# ---- emit on window close


def test_a_closed_window_is_emitted_once_with_the_time_of_its_latest_record() -> None:
    bench = time_windows(10, grace=5, emit_on_close=True)
    assert bench.pipe("in", "a", 1, 3) == []
    assert bench.pipe("in", "a", 2, 7) == []
    assert bench.pipe("in", "b", 3, 14) == []
    assert bench.pipe("in", "b", 4, 15) == [(Windowed("a", 0, 10), ("|1|2", None, True), 7)]
    assert bench.pipe("in", "b", 5, 24) == []


def test_no_window_is_lost_when_the_next_record_comes_much_later() -> None:
    bench = time_windows(10, grace=5, count=True, emit_on_close=True)
    assert bench.pipe("in", "a", 0, 1) == []
    assert bench.pipe("in", "a", 0, 24) == [(Windowed("a", 0, 10), (1, None, True), 1)]
    assert bench.pipe("in", "a", 0, 5_000_000) == [(Windowed("a", 20, 30), (1, None, True), 24)]


def test_closed_windows_leave_by_window_then_key() -> None:
    bench = time_windows(10, count=True, emit_on_close=True, grace=50)
    for key, timestamp in (("b", 12), ("a", 13), ("c", 2), ("a", 25)):
        bench.pipe("in", key, 0, timestamp)
    assert [(key.key, key.start) for key, _, _ in bench.pipe("in", "z", 0, 1000)] == [("c", 0), ("a", 10), ("b", 10), ("a", 20)]


def test_hopping_windows_close_one_by_one() -> None:
    bench = time_windows(10, advance=5, count=True, emit_on_close=True)
    bench.pipe("in", "a", 0, 7)
    assert [key.start for key, _, _ in bench.pipe("in", "b", 0, 10)] == [0]
    assert [key.start for key, _, _ in bench.pipe("in", "b", 0, 14)] == []
    assert [key.start for key, _, _ in bench.pipe("in", "b", 0, 15)] == [5, 5]


def test_a_late_record_within_grace_is_in_the_final_result() -> None:
    bench = time_windows(10, grace=5, emit_on_close=True)
    bench.pipe("in", "a", 1, 3)
    bench.pipe("in", "b", 2, 14)
    bench.pipe("in", "a", 3, 9)
    assert bench.pipe("in", "b", 4, 15) == [(Windowed("a", 0, 10), ("|1|3", None, True), 9)]
    assert bench.pipe("in", "a", 5, 9) == []
    assert bench.dropped() == 1


@pytest.mark.parametrize("cache", [0, 10_000_000])
def test_a_stream_that_shares_windows_reads_none_that_the_other_stream_has_expired(cache: int) -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key_serde=serdes.string, value_serde=serdes.json).group_by_key() for topic in ("left", "right"))
    both = left.cogroup(lambda key, value, found: [*found, value]).cogroup(right, lambda key, value, found: [*found, value])
    windows = both.windowed_by(TimeWindows.of_size(10, grace=0))
    found = windows.aggregate(list, store="both", value_serde=serdes.json)
    found.to_stream().map(lambda window, found: (window.key, found)).to("out", key_serde=serdes.string, value_serde=serdes.json)
    with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": cache}, mode="deployed") as driver:
        for topic, value, timestamp in (("left", 1, 0), ("right", 2, 40_000), ("left", 3, 1)):
            driver.create_input_topic(topic, serdes.string, serdes.json).pipe_input("k", value, timestamp)
        assert [record.value for record in driver.output("out")] == [b"[1]", b"[2]", b"[3]"]
