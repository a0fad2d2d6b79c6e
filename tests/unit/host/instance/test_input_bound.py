"""How much input an instance holds, in bytes: polling stops at the cap, and what a join waits for comes all the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, Topology
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.instance.polling.processing_threads import ThreadedPollLoop
from kstreams_repl.system.types import TopicPartition
from tests.unit.host.instance.rig import Client, instance_of, rows

MB = 1 << 20
SECONDS = 20.0


def passing(*topics: str) -> Topology:
    builder = StreamsBuilder()
    first, *others = [builder.stream(topic) for topic in topics]
    for other in others:
        first = first.merge(other)
    first.to("out")
    return builder.build()


def held(instance: Instance) -> int:
    return sum(task.task.buffered_bytes for task in instance.tasks)


def run(instance: Instance, records: int, loop: Callable[..., PollLoop] = PollLoop) -> int:
    """Until so many records are processed; the most bytes that were buffered between two rounds."""
    most = 0
    deadline = time.monotonic() + SECONDS

    def signal(now: float) -> Signal:
        nonlocal most
        most = max(most, held(instance))
        return Signal.PAUSE if instance.counters.records >= records else Signal.RUN

    ending = loop(instance, signal=signal, report=lambda _: None).run(deadline)
    assert ending is Signal.PAUSE, f"{instance.counters.records} of {records}, {held(instance)} bytes buffered"
    return most


def test_polling_stops_at_the_cap_long_before_the_bound_in_records() -> None:
    client = Client(*(rows("in", 4, size=MB, start=4 * poll) for poll in range(30)))
    instance = instance_of(passing("in"), client, input_buffer_max_bytes=8 * MB)
    loop = PollLoop(instance, signal=lambda _: Signal.RUN, report=lambda _: None)
    while loop._queues_have_room() and client.polls:
        loop._route(client.consume(10_000, 0))
    assert held(instance) == 8 * MB and instance.tasks[0].task.buffered == 8


def test_a_batch_counts_until_its_last_record_is_taken() -> None:
    client = Client(rows("in", 2, size=MB), rows("in", 2, size=MB, start=2))
    instance = instance_of(passing("in"), client)
    (task,) = instance.tasks
    loop = PollLoop(instance, signal=lambda _: Signal.RUN, report=lambda _: None)
    for _ in range(2):
        loop._route(client.consume(10_000, 0))
    left = []
    while task.process(1):
        left.append(held(instance) // MB)
    assert left == [4, 2, 2, 0]


@pytest.mark.parametrize("loop", [PollLoop, ThreadedPollLoop])
def test_a_batch_larger_than_the_cap_is_worked_off_like_any_other(loop: Callable[..., PollLoop]) -> None:
    client = Client(*(rows("in", 12, size=MB, start=12 * poll) for poll in range(3)))
    instance = instance_of(passing("in"), client, input_buffer_max_bytes=MB)
    assert run(instance, 36, loop) <= 12 * MB
    assert not client.pauses


@pytest.mark.parametrize("loop", [PollLoop, ThreadedPollLoop])
def test_a_join_gets_the_side_it_waits_for_when_the_other_side_has_filled_the_buffers(loop: Callable[..., PollLoop]) -> None:
    """The second side's records lie behind 40 MB of the first, which is paused at the cap and resumed when it is worked off."""
    late = [rows("b", 1, timestamp=100 + at, start=at) for at in range(20)]
    client = Client(*(rows("a", 2, size=MB, start=2 * poll) for poll in range(20)), *late)
    instance = instance_of(passing("a", "b"), client, input_buffer_max_bytes=8 * MB)
    assert run(instance, 40, loop) <= 10 * MB
    assert TopicPartition("a", 0) in client.pauses and not client.paused
    if loop is PollLoop:  # a thread that starts late may let the second side fill its share, too
        assert set(client.pauses) == {TopicPartition("a", 0)}


def test_small_records_meet_the_bound_in_records_first() -> None:
    client = Client(*(rows("in", 10_000, size=100, start=10_000 * poll) for poll in range(3)))
    instance = instance_of(passing("in"), client)
    loop: Any = PollLoop(instance, signal=lambda _: Signal.RUN, report=lambda _: None)
    while loop._queues_have_room() and client.polls:
        loop._route(client.consume(10_000, 0))
    assert instance.tasks[0].task.buffered == 20_000
    assert held(instance) == pytest.approx(2 * MB, rel=0.06)


def test_what_is_read_ahead_in_a_commit_counts() -> None:
    client = Client(*(rows("in", 4, size=MB, start=4 * poll) for poll in range(30)))
    instance = instance_of(passing("in"), client, input_buffer_max_bytes=8 * MB)
    loop = PollLoop(instance, signal=lambda _: Signal.RUN, report=lambda _: None)
    while loop._read_ahead():
        pass
    assert len(loop._take_ahead()) == 8


def test_a_round_goes_on_to_take_pieces_while_they_are_full_and_there_is_room() -> None:
    pieces = [rows("in", 1_000, start=1_000 * piece) for piece in range(3)]
    client = Client(*pieces, rows("in", 10, start=3_000), rows("in", 10, start=3_010))
    instance = instance_of(passing("in"), client)
    left: list[int] = []

    def signal(now: float) -> Signal:
        left.append(len(client.polls))
        return Signal.PAUSE if instance.counters.records == 3_020 else Signal.RUN

    assert PollLoop(instance, signal=signal, report=lambda _: None).run(time.monotonic() + SECONDS) is Signal.PAUSE
    assert left[:3] == [5, 1, 0]
    full = Client(*(rows("in", 1_000, size=4_000, start=1_000 * piece) for piece in range(6)))
    bounded = instance_of(passing("in"), full, input_buffer_max_bytes=8 * MB)
    assert run(bounded, 6_000) <= 12 * MB
