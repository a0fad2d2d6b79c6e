"""Closing windows at the end of a bounded run emits what a stream emits when its time passes the end of the open windows, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl import EmitStrategy, JoinWindows, SessionWindows, SlidingWindows, Suppressed, TimeWindows

STRINGS = {"key_serde": "string", "value_serde": "string"}
COUNTS = {"key_serde": "string", "value_serde": "long"}
FAR = 10_000_000
ROWS = [("in", key, value, at) for at, (key, value) in enumerate(zip("abcabdab", "12345678", strict=True))]
ROWS = [(topic, key, value, at * 7) for topic, key, value, at in ROWS] + [("side", key, "x", at) for key, at in (("a", 3), ("z", 40))]


def _windowed(windows: Any, *, on_close: bool) -> Callable[[Any, Any], None]:
    def build(stream: Any, side: Any) -> None:
        grouped = stream.group_by_key(**STRINGS).windowed_by(windows)
        if on_close:
            counts = grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
        else:
            counts = grouped.count().suppress(Suppressed.until_window_closes())
        counts.to_stream(lambda key, count: f"{key.key}@{key.start}-{key.end}").to("out", **COUNTS)

    return build


def _limit(stream: Any, side: Any) -> None:
    counts = stream.group_by_key(**STRINGS).count()
    counts.suppress(Suppressed.until_time_limit(1_000)).to_stream().to("out", **COUNTS)


def _joined(kind: str) -> Callable[[Any, Any], None]:
    def build(stream: Any, side: Any) -> None:
        windows = JoinWindows.of_time_difference_and_grace(5, 10)
        getattr(stream, kind)(side, lambda left, right: f"{left}|{right}", windows, **STRINGS).to("out", **STRINGS)

    return build


TOPOLOGIES = {
    "tumbling": _windowed(TimeWindows.of_size(20, grace=5), on_close=True),
    "suppressed": _windowed(TimeWindows.of_size(20, grace=5), on_close=False),
    "hopping": _windowed(TimeWindows.of_size(20, grace=5).advance_by(5), on_close=True),
    "sliding": _windowed(SlidingWindows.of_time_difference_and_grace(20, 5), on_close=True),
    "sessions": _windowed(SessionWindows.of_inactivity_gap_and_grace(15, 5), on_close=True),
    "suppressed sessions": _windowed(SessionWindows.of_inactivity_gap_and_grace(15, 5), on_close=False),
    "time limit": _limit,
    "left join": _joined("left_join"),
    "outer join": _joined("outer_join"),
}


class Run:
    def __init__(self, build: Callable[[Any, Any], None], cache: int) -> None:
        builder = ks.StreamsBuilder()
        build(builder.stream("in", **STRINGS), builder.stream("side", **STRINGS))
        settings = {"statestore.cache.max.bytes": cache, "repl.outer.join.emit.interval.ms": 0}
        self.driver = ks.testing.TopologyTestDriver(builder.build(), settings)
        self._inputs = {topic: self.driver.create_input_topic(topic, "string", "string") for topic in ("in", "side")}
        self._output = self.driver.create_output_topic("out", "string", "string")
        self.runs = 0

    def pipe(self, *rows: tuple[str, str, str, int]) -> None:
        for topic, key, value, at in rows:
            if topic in self._inputs:
                self._inputs[topic].pipe_input(key, value, at)

    def close(self) -> None:
        task: Any = self.driver._task
        self.runs += 1
        task.close_windows(self.runs)
        self.driver.advance_wall_clock_time(0)  # a commit
        assert task.services.metadata["repl.closed"] == self.runs

    def output(self) -> list[Any]:
        return sorted((row.key, row.value, row.timestamp) for row in self._output.read_records() if "end" not in row.key)


@pytest.mark.parametrize("cache", [0, 1_000_000])
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_it_emits_what_a_stream_emits_whose_time_passes_the_end(name: str, cache: int) -> None:
    closed, stream = Run(TOPOLOGIES[name], cache), Run(TOPOLOGIES[name], cache)
    for each in (closed, stream):
        each.pipe(*ROWS)
    before = closed.output()
    assert before == stream.output()
    closed.close()
    stream.pipe(("in", "end", "0", FAR), ("side", "end", "0", FAR), ("in", "end", "0", 2 * FAR), ("side", "end", "0", 2 * FAR))
    emitted = closed.output()
    assert emitted and emitted == stream.output()
    closed.close()
    assert not closed.output(), "nothing was open any more"


@pytest.mark.parametrize("name", [name for name in TOPOLOGIES if name not in ("time limit", "left join", "outer join")])
def test_a_record_of_a_closed_window_is_dropped_and_one_of_a_later_window_counts(name: str) -> None:
    run = Run(TOPOLOGIES[name], 0)
    run.pipe(*ROWS)
    run.close()
    run.close()
    run.output()
    run.pipe(("in", "a", "late", 0))
    run.close()
    assert not run.output() and sum(run.driver._task.dropped.values()) >= 1
    run.pipe(("in", "a", "next", 100), ("in", "a", "next", 101))
    run.close()
    windows = run.output()
    assert windows and windows[0][0].startswith("a@")
    run.pipe(("in", "a", "another", 200))
    run.close()
    assert run.output(), "closing did not advance time beyond the windows that were open"
