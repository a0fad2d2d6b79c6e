"""Bounded input, on real tasks: what is cut off, when a partition has reached its stop, and what a commit then includes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from kstreams_repl import Processor, PunctuationType, StreamsBuilder, serdes
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.instance.polling.processing_threads import ThreadedPollLoop
from kstreams_repl.system.types import TopicPartition
from tests.unit.host.instance.rig import Client, instance_of, rows

IN = TopicPartition("in", 0)


def topology() -> Any:
    builder = StreamsBuilder()
    builder.stream("in", key_serde=serdes.bytes, value_serde=serdes.bytes).foreach(lambda key, value: None)
    return builder.build()


def end(offset: int) -> Message:
    return Message(topic="in", partition=0, offset=offset, error=KafkaError(KafkaError._PARTITION_EOF))


def run(instance: Instance, rounds: int = 6) -> None:
    left = [rounds]

    def signal(now: float) -> Signal:
        left[0] -= 1
        return Signal.RUN if left[0] else Signal.PAUSE

    PollLoop(instance, signal=signal, report=lambda _: None).run(time.monotonic() + 60)


def offset_to_commit(instance: Instance) -> int:
    [task] = instance.tasks
    return task.prepare(1)[IN][0]


def test_records_from_the_stop_offset_on_are_cut_off_and_the_partition_is_paused() -> None:
    client = Client(rows("in", 5), rows("in", 5, start=5))
    instance = instance_of(topology(), client, stops={IN: 7})
    run(instance)
    assert instance.counters.records == 7 and client.paused == {IN}
    assert offset_to_commit(instance) == 7


def test_a_stop_in_a_gap_is_reached_by_the_record_after_it() -> None:
    """Offsets 3 to 8 hold no records: compacted away, markers, or aborted."""
    instance = instance_of(topology(), Client(rows("in", 3), rows("in", 1, start=9)), stops={IN: 6})
    run(instance)
    assert instance.counters.records == 3 and offset_to_commit(instance) == 6


def test_a_stop_behind_the_last_record_is_reached_at_the_end_of_the_partition() -> None:
    instance = instance_of(topology(), Client(rows("in", 3), [end(4)], [end(6)]), stops={IN: 6})
    run(instance)
    assert instance.bounds is not None and instance.bounds.is_reached(IN) and offset_to_commit(instance) == 6


def test_an_end_below_the_stop_is_not_the_stop() -> None:
    instance = instance_of(topology(), Client(rows("in", 3), [end(5)]), stops={IN: 6})
    run(instance)
    assert instance.bounds is not None and not instance.bounds.is_reached(IN) and offset_to_commit(instance) == 3


def test_a_partition_that_begins_at_its_stop_is_never_read() -> None:
    client = Client(rows("in", 3))
    instance = instance_of(topology(), client, stops={IN: 0})
    run(instance)
    assert instance.counters.records == 0 and client.paused == {IN} and offset_to_commit(instance) == 0


def test_an_intermediate_topic_is_read_to_its_end_however_often_that_moves() -> None:
    client = Client(rows("in", 2), [end(3)], rows("in", 2, start=3), [end(7)])
    instance = instance_of(topology(), client, stops={})
    run(instance, 10)
    assert instance.counters.records == 4 and client.paused == set() and offset_to_commit(instance) == 7


def test_markers_at_the_end_are_passed_without_a_report_of_the_end() -> None:
    client = Client(rows("in", 3))
    instance = instance_of(topology(), client, stops={})
    client.markers[IN] = 5
    run(instance)
    assert offset_to_commit(instance) == 5


def test_a_task_does_not_wait_for_a_partition_whose_markers_are_passed_without_a_report_of_its_end() -> None:
    """Two inputs of one task: one has records, the other ends with markers. The fetch showed its end, and no message tells that."""
    builder = StreamsBuilder()
    left, right = (builder.stream(name, key_serde=serdes.bytes, value_serde=serdes.bytes) for name in ("left", "right"))
    left.merge(right).foreach(lambda key, value: None)
    client = Client(rows("left", 3), rows("right", 2))
    client.fetched = {TopicPartition("left", 0): 3, TopicPartition("right", 0): 4}
    client.markers[TopicPartition("right", 0)] = 4
    instance = instance_of(builder.build(), client, stops={})
    run(instance)
    assert instance.counters.records == 5


def test_a_later_commit_does_not_fall_back_behind_the_end_that_was_met() -> None:
    instance = instance_of(topology(), Client(rows("in", 3), [end(5)]), stops={})
    run(instance)
    [task] = instance.tasks
    for commit_id in (1, 2):
        assert task.prepare(commit_id)[IN][0] == 5
        task.finish(commit_id, {})


def test_what_waits_in_a_queue_is_not_committed_as_passed() -> None:
    instance = instance_of(topology(), Client(), stops={IN: 6})
    [task] = instance.tasks
    assert instance.bounds is not None
    from kstreams_repl.host.kafka.record_batch import columns

    [(partition, batch)] = columns(rows("in", 8), lambda *_: None)
    task.add_records(partition, instance.bounds.cut(partition, batch))
    assert instance.bounds.is_reached(IN) and offset_to_commit(instance) == 0


def test_a_stream_has_no_bounds() -> None:
    instance = instance_of(topology(), Client(rows("in", 3)))
    run(instance)
    assert instance.bounds is None and offset_to_commit(instance) == 3


@pytest.mark.parametrize(("stops", "wanted"), [({}, [10, 30]), (None, [10, 20, 30, 40])])
def test_wall_clock_punctuations_of_a_bounded_run_follow_records_only(stops: Any, wanted: list[int]) -> None:
    """One that writes to an intermediate topic at every tick would keep the run open for ever."""
    ticks: list[int] = []

    class Ticking(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, ticks.append)

        def process(self, record: Any) -> None:
            """Only the ticks count."""

    builder = StreamsBuilder()
    builder.stream("in", key_serde=serdes.bytes, value_serde=serdes.bytes).process(Ticking)
    instance = instance_of(builder.build(), Client(rows("in", 3)), stops=stops)
    [task] = instance.tasks
    clock = [0]
    task.task.services.wall_clock = lambda: clock[0]

    def tick(now: int) -> None:
        clock[0] = now
        task.punctuate()

    tick(10)
    tick(20)
    run(instance)
    tick(30)
    tick(40)
    assert ticks == wanted


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stream_at_rest_commits_the_position_beyond_markers_and_shows_no_lag(threads: int) -> None:
    """A marker or aborted records after the last record were shown as lag for ever, to other groups' consoles, too (KAFKA-6607)."""
    client = Client(rows("in", 3))
    instance = instance_of(topology(), client, **{"num.processing.threads": threads})
    client.fetched[IN] = 5
    loop = ThreadedPollLoop if threads > 1 else PollLoop
    [task] = instance.tasks

    def commit() -> int:
        """Run until everything is processed, and return the committed offset."""
        loop(
            instance, signal=lambda now: Signal.PAUSE if task.records == 3 else Signal.RUN, report=lambda _: None
        ).run(time.monotonic() + 60)  # fmt: skip
        offset = offset_to_commit(instance)
        task.finish(1, {})
        return offset

    assert commit() == 3 and instance.input.partition_lags() == {IN: 2}
    client.markers[IN] = 5
    assert commit() == 5 and instance.input.partition_lags() == {IN: 0}
