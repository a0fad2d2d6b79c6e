"""Session windows."""

from __future__ import annotations

from typing import Any

from kstreams_repl.system.types import Windowed
from tests.unit.engine.operators.windowed import session_windows


def _shown(seen: list[Any]) -> list[tuple[int, int, Any]]:
    return [(key.start, key.end, change[0]) for key, change, _ in seen]


def test_a_record_within_the_gap_extends_the_session_after_a_tombstone_for_the_old_one() -> None:
    bench = session_windows(5, grace=100)
    assert bench.pipe("in", "a", 1, 10) == [(Windowed("a", 10, 10), ("|1", None, True), 10)]
    assert bench.pipe("in", "a", 2, 13) == [
        (Windowed("a", 10, 10), (None, None, True), 10),
        (Windowed("a", 10, 13), ("|1|2", None, True), 13),
    ]


def test_records_exactly_one_gap_apart_are_one_session_and_one_more_are_two() -> None:
    bench = session_windows(5, grace=100)
    bench.pipe("in", "a", 1, 10)
    assert _shown(bench.pipe("in", "a", 2, 15))[-1] == (10, 15, "|1|2")
    assert _shown(bench.pipe("in", "a", 3, 21)) == [(21, 21, "|3")]


def test_a_repeated_instant_updates_without_a_tombstone() -> None:
    bench = session_windows(5)
    bench.pipe("in", "a", 1, 10)
    assert _shown(bench.pipe("in", "a", 2, 10)) == [(10, 10, "|1|2")]


def test_an_update_inside_a_session_gives_its_tombstone_first() -> None:
    bench = session_windows(5, grace=100)
    bench.pipe("in", "a", 1, 10)
    bench.pipe("in", "a", 2, 14)
    assert _shown(bench.pipe("in", "a", 3, 12)) == [(10, 14, None), (10, 14, "|1|2|3")]


def test_one_record_merges_several_sessions_in_store_order() -> None:
    bench = session_windows(5, grace=100)
    bench.pipe("in", "a", 2, 18)
    bench.pipe("in", "a", 1, 10)
    assert _shown(bench.pipe("in", "a", 3, 14)) == [(10, 10, None), (18, 18, None), (10, 18, "|1|2|3")]


def test_a_record_is_late_when_its_merged_session_ends_before_stream_time_minus_grace_and_gap() -> None:
    bench = session_windows(5, grace=5)
    bench.pipe("in", "b", 0, 30)
    assert _shown(bench.pipe("in", "a", 1, 20)) == [(20, 20, "|1")]
    assert _shown(bench.pipe("in", "a", 2, 19)) == []
    assert bench.dropped() == 1


def test_a_late_record_is_kept_when_it_merges_into_a_live_session() -> None:
    bench = session_windows(10)
    bench.pipe("in", "a", 1, 20)
    bench.pipe("in", "b", 2, 29)
    assert _shown(bench.pipe("in", "a", 3, 12)) == [(20, 20, None), (12, 20, "|1|3")]


def test_null_keys_are_dropped_and_null_values_are_aggregated() -> None:
    bench = session_windows(5)
    assert bench.pipe("in", None, 1, 100) == []
    assert bench.dropped() == 1
    assert _shown(bench.pipe("in", "a", None, 1)) == [(1, 1, "|None")]


def test_old_values_go_with_tombstones() -> None:
    bench = session_windows(5, send_old_values=True)
    bench.pipe("in", "a", 1, 1)
    assert [change for _, change, _ in bench.pipe("in", "a", 2, 2)] == [(None, "|1", True), ("|1|2", None, True)]


def test_a_cached_store_forwards_when_it_is_flushed() -> None:
    bench = session_windows(5, grace=100, cache=10_000_000)
    assert _shown(bench.pipe("in", "a", 1, 10)) == [(10, 10, "|1")]
    assert _shown(bench.pipe("in", "a", 2, 12)) == [(10, 10, None), (10, 12, "|1|2")]


def test_closed_sessions_are_emitted_once_and_none_is_lost() -> None:
    bench = session_windows(5, grace=5, emit_on_close=True)
    assert bench.pipe("in", "a", 1, 10) == bench.pipe("in", "a", 2, 12) == []
    assert bench.pipe("in", "b", 3, 22) == []
    assert bench.pipe("in", "b", 4, 23) == [(Windowed("a", 10, 12), ("|1|2", None, True), 12)]
    assert _shown(bench.pipe("in", "c", 5, 5_000_000)) == [(22, 23, "|3|4")]
    assert _shown(bench.pipe("in", "c", 6, 9_000_000)) == [(5_000_000, 5_000_000, "|5")]
