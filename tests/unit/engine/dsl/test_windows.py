"""Windows and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kstreams_repl.engine.dsl import JoinWindows, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, UnlimitedWindows
from kstreams_repl.system.errors import TopologyError


def test_tumbling_windows_advance_by_their_size() -> None:
    assert TimeWindows.of_size(10) == TimeWindows(10, 10, 0)


def test_sizes_may_be_timedeltas() -> None:
    windows = TimeWindows.of_size(timedelta(minutes=5), grace=timedelta(seconds=1), advance=timedelta(minutes=1))
    assert windows == TimeWindows(300_000, 60_000, 1000)


def test_advance_by_makes_hopping_windows() -> None:
    assert TimeWindows.of_size(10, grace=3).advance_by(5) == TimeWindows(10, 5, 3)


def test_unlimited_windows_may_start_at_a_datetime() -> None:
    assert UnlimitedWindows.of(start=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)).start_ms == 1000


def test_join_windows_are_wide_as_before_and_after() -> None:
    windows = JoinWindows.of_time_difference(10, before=3, after=4)
    assert (windows.before_ms, windows.after_ms, windows.size_ms) == (3, 4, 7)


def test_a_join_window_may_lie_in_the_past() -> None:
    assert JoinWindows.of_time_difference(10, after=-2).size_ms == 8


@pytest.mark.parametrize(
    "make",
    [
        lambda: TimeWindows.of_size(0),
        lambda: TimeWindows.of_size(-1),
        lambda: TimeWindows.of_size(10, grace=-1),
        lambda: TimeWindows.of_size(10, advance=0),
        lambda: TimeWindows.of_size(10, advance=11),
        lambda: TimeWindows.of_size("10"),  # type: ignore[arg-type]
        lambda: TimeWindows.of_size(True),
        lambda: TimeWindows.of_size(timedelta(microseconds=1500)),
        lambda: UnlimitedWindows.of(start=-1),
        lambda: SlidingWindows.of_time_difference(-1),
        lambda: SlidingWindows.of_time_difference(1, grace=-1),
        lambda: SessionWindows.of_inactivity_gap(-1),
        lambda: SessionWindows.of_inactivity_gap(5, grace=-1),
        lambda: JoinWindows.of_time_difference(-1),
        lambda: JoinWindows.of_time_difference(10, after=-11),
        lambda: JoinWindows.of_time_difference(1, grace=-1),
    ],
)
def test_windows_that_cannot_be_are_refused_with_a_hint(make: Callable[[], Any]) -> None:
    with pytest.raises(TopologyError) as refused:
        make()
    assert refused.value.hint


@pytest.mark.parametrize(
    ("windows", "needed"),
    [
        (TimeWindows.of_size(10, grace=5), 15),
        (SlidingWindows.of_time_difference(10, grace=5), 25),
        (SessionWindows.of_inactivity_gap(10, grace=5), 15),
    ],
)
def test_a_retention_shorter_than_windows_can_change_is_refused(windows: Any, needed: int) -> None:
    grouped = StreamsBuilder().stream("t").group_by_key().windowed_by(windows)
    with pytest.raises(TopologyError, match="store 'short'") as refused:
        grouped.count(store="short", retention=needed - 1)
    assert f"retention={needed}" in str(refused.value)
    grouped.count(store="enough", retention=needed)
