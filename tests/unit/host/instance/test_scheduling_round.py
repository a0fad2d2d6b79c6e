"""Inline, tasks are processed in the order of the configured scheduler."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from kstreams_repl import StreamsBuilder, Topology
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.instance.polling.scheduler import Candidate, Scheduler, longest_waiting
from kstreams_repl.host.instance.polling.scheduling_round import SchedulingRounds
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.system.types import TaskId
from tests.unit.host.instance.rig import Client, instance_of, rows

RECORDS = (200, 300, 100)
"""Of each partition."""


def passing() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()


def last_partition_first(candidates: Sequence[Candidate]) -> Candidate:
    return max(candidates, key=lambda candidate: candidate.id.partition)


def turns(monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler | str) -> list[tuple[int, int]]:
    """(partition, records) of each turn in which an inline instance works three partitions off."""
    seen: list[tuple[int, int]] = []
    process = ActiveTask.process

    def watched(task: ActiveTask, limit: int) -> int:
        done = process(task, min(limit, 100))
        if done:
            seen.append((task.id.partition, done))
        return done

    monkeypatch.setattr(ActiveTask, "process", watched)
    records = [message for partition, count in enumerate(RECORDS) for message in rows("in", count, partition=partition)]
    instance = instance_of(passing(), Client(records), partitions=3, repl_task_scheduler=scheduler)
    for task in instance.tasks:
        task._slice = 100

    def signal(now: float) -> Signal:
        return Signal.PAUSE if instance.counters.records >= sum(RECORDS) else Signal.RUN

    PollLoop(instance, signal=signal, report=lambda _: None).run(time.monotonic() + 30)
    return seen


def test_a_scheduler_of_the_application_s_own_orders_the_tasks_of_an_inline_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    assert turns(monkeypatch, last_partition_first) == [(2, 100), (1, 100), (1, 100), (1, 100), (0, 100), (0, 100)]


def test_by_default_the_task_with_most_records_goes_first_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    assert turns(monkeypatch, "most-buffered") == [(1, 100), (0, 100), (2, 100), (1, 100), (0, 100), (1, 100)]


def test_longest_waiting_gives_every_task_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [partition for partition, _ in turns(monkeypatch, "longest-waiting")]
    assert sorted(seen[:3]) == [0, 1, 2] and seen.count(1) == 3


def test_a_task_that_waits_for_another_partition_does_not_take_the_turns_of_the_others() -> None:
    builder = StreamsBuilder()
    builder.stream("a").merge(builder.stream("b")).to("out")
    client = Client(rows("a", 5, partition=0) + rows("a", 2, partition=1) + rows("b", 2, partition=1))
    instance = instance_of(builder.build(), client, partitions=2)
    PollLoop(instance, signal=lambda _: Signal.RUN, report=lambda _: None)._route(client.consume(10, 0))
    asked: list[list[TaskId]] = []

    def most(candidates: Sequence[Candidate]) -> Candidate:
        asked.append([candidate.id for candidate in candidates])
        return max(candidates, key=lambda candidate: candidate.buffered)

    assert SchedulingRounds(most).run(instance.tasks, 100) > 0
    assert asked == [[TaskId(0, 0), TaskId(0, 1)], [TaskId(0, 1)]]


def test_who_waits_longest_is_told_in_seconds() -> None:
    now = 5.0
    waited: list[dict[int, float]] = []

    def noting(candidates: Sequence[Candidate]) -> Candidate:
        waited.append({candidate.id.partition: candidate.waited for candidate in candidates})
        return longest_waiting(candidates)

    client = Client(rows("in", 10, partition=0) + rows("in", 10, partition=1))
    instance = instance_of(passing(), client, partitions=2)
    PollLoop(instance, signal=lambda _: Signal.RUN, report=lambda _: None)._route(client.consume(20, 0))
    order = SchedulingRounds(noting, clock=lambda: now)
    now = 7.0
    order.run(instance.tasks, 3)
    now = 8.0
    order.run(instance.tasks, 3)
    assert waited == [{0: 2.0, 1: 2.0}, {0: 0.0, 1: 2.0}, {0: 1.0, 1: 1.0}, {0: 0.0, 1: 1.0}]
