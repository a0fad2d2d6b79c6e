"""Callbacks by stream time and by wall clock: when they are due, how often, in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl.engine.processor import Processor, PunctuationType, Record
from kstreams_repl.engine.runtime.punctuation_queue import PunctuationQueue
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import KStreamsError, StreamsProcessingError
from tests.unit.engine.runtime.rig import Rig

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


def rig_of(init: Callable[[Any], None]) -> Rig:
    class Scheduler(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            init(context)

        def process(self, record: Record) -> None:
            """Only time matters here."""

    topology = Topology().add_source("from-in", "in").add_processor("scheduler", Scheduler, "from-in")
    return Rig(topology.add_sink("to-out", "out", "scheduler"))


def stream_times(interval: int, timestamps: list[int], start: int | None = None) -> list[list[int]]:
    """For each record, at which times the callback ran because of it."""
    fired: list[int] = []
    rig = rig_of(lambda context: context.schedule(interval, STREAM, fired.append, start=start))
    steps = []
    for timestamp in timestamps:
        fired.clear()
        rig.pipe("in", ("a", 1, timestamp)).run()
        rig.task.punctuate_stream_time()
        steps.append(list(fired))
    return steps


def test_stream_time_fires_with_the_first_record_then_at_multiples_of_the_interval() -> None:
    assert stream_times(10, [5, 35, 39, 40]) == [[5], [35], [], [40]]


def test_stream_time_fires_once_however_many_intervals_have_passed() -> None:
    assert stream_times(10, [0, 1000]) == [[0], [1000]]


def test_stream_time_does_not_fire_for_records_out_of_order() -> None:
    assert stream_times(10, [15, 3, 19, 20]) == [[15], [], [], [20]]


def test_a_start_time_puts_the_first_call_off_and_sets_the_rhythm() -> None:
    assert stream_times(10, [5, 24, 25, 34, 35], start=25) == [[], [], [25], [], [35]]


def test_wall_clock_fires_one_interval_after_it_was_scheduled_and_once_per_gap() -> None:
    fired: list[int] = []
    rig = rig_of(lambda context: context.schedule(100, WALL, fired.append))
    for step in (99, 1, 350, 49, 1):
        rig.now += step
        rig.task.punctuate_wall_clock()
    assert fired == [100, 450, 500]


def test_the_host_is_told_when_the_next_wall_clock_call_is_due() -> None:
    rig = rig_of(lambda context: context.schedule(100, WALL, lambda now: None))
    assert rig.task.next_wall_clock_punctuation == 100
    assert rig_of(lambda context: None).task.next_wall_clock_punctuation is None


def test_stream_time_punctuation_waits_for_the_first_record() -> None:
    rig = rig_of(lambda context: context.schedule(10, STREAM, lambda now: None))
    assert not rig.task.punctuate_stream_time()


def test_a_schedule_that_cancels_itself_is_not_called_again() -> None:
    fired: list[int] = []

    def init(context: Any) -> None:
        def once(now: int) -> None:
            fired.append(now)
            handle.cancel()

        handle = context.schedule(10, STREAM, once)

    rig = rig_of(init)
    for timestamp in (0, 10, 20):
        rig.pipe("in", ("a", 1, timestamp)).run()
        rig.task.punctuate_stream_time()
    assert fired == [0]


def test_a_schedule_may_cancel_another_that_is_due_at_the_same_time() -> None:
    queue, ran = PunctuationQueue(), []
    second = queue.schedule(5, 10, "n", lambda now: ran.append("second"))
    first = queue.schedule(0, 10, "n", lambda now: (ran.append("first"), second.cancel()))
    assert not first.cancelled
    queue.punctuate(5, lambda node, callback, now: callback(now))
    assert ran == ["first"]


def test_equal_due_times_run_in_the_order_of_javas_priority_queue() -> None:
    order: list[int] = []

    def init(context: Any) -> None:
        for number in range(1, 6):
            context.schedule(10, STREAM, lambda now, number=number: order.append(number))

    rig = rig_of(init)
    rig.pipe("in", ("a", 1, 0)).run()
    rig.task.punctuate_stream_time()
    assert order == [1, 5, 2, 4, 3], "a schedule that ran comes back before the next one is taken"


def test_a_punctuation_can_forward_and_has_no_record_of_its_own() -> None:
    places: list[Any] = []

    def init(context: Any) -> None:
        def tick(now: int) -> None:
            places.append(context.record_metadata())
            context.forward(Record("tick", now, now))

        context.schedule(10, STREAM, tick)

    rig = rig_of(init)
    rig.pipe("in", ("a", 1, 12, [("h", b"x")])).run()
    rig.task.punctuate_stream_time()
    assert [(key, value, timestamp, headers) for _, key, value, timestamp, headers, _ in rig.outbox.sent] == [
        (b"tick", b"12", 12, [])
    ]
    assert places[0] is None or (places[0].topic, places[0].partition, places[0].offset) == (None, -1, -1)


def test_an_error_in_a_punctuation_names_the_node_that_scheduled_it() -> None:
    rig = rig_of(lambda context: context.schedule(10, STREAM, lambda now: 1 // 0))
    rig.pipe("in", ("a", 1, 0)).run()
    with pytest.raises(StreamsProcessingError, match="ZeroDivisionError") as failure:
        rig.task.punctuate_stream_time()
    assert failure.value.node == "scheduler"
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


def test_an_interval_below_a_millisecond_is_refused() -> None:
    with pytest.raises(KStreamsError, match="whole milliseconds, 1 or more"):
        rig_of(lambda context: context.schedule(0, STREAM, lambda now: None))


def test_a_schedule_that_cancelled_itself_is_not_due_any_more() -> None:
    def init(context: Any) -> None:
        handle = context.schedule(100, WALL, lambda now: handle.cancel())

    rig = rig_of(init)
    rig.now = 100
    rig.task.punctuate_wall_clock()
    assert rig.task.next_wall_clock_punctuation is None


def test_with_an_activity_a_schedule_skips_the_turns_between_which_nothing_was_done() -> None:
    fired: list[tuple[str, int]] = []
    queue = PunctuationQueue()
    for name, interval in (("often", 10), ("seldom", 25)):
        queue.schedule(interval, interval, name, lambda now: None)
    for now, activity in ((10, 0), (20, 0), (30, 0), (40, 5), (50, 5), (60, 5), (70, 6)):
        queue.punctuate(now, lambda node, callback, now: fired.append((node, now)), activity)
    assert fired == [("often", 10), ("seldom", 30), ("often", 40), ("seldom", 50), ("often", 70)]
