"""The task manager: exclusive tasks, batches in inboxes, everybody stopped at a record boundary. Real tasks, real threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.host.instance.polling.scheduler import Candidate, longest_waiting, most_buffered
from kstreams_repl.host.instance.polling.task_manager import TaskManager
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.system.errors import IllegalStateTransitionError
from kstreams_repl.system.types import RecordBatch, TaskId, TopicPartition
from kstreams_repl.test_driver.virtual_calls import VirtualCallRunner
from tests.unit.engine.runtime.rig import Rig

HANG = 20.0


def active(partition: int) -> ActiveTask:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    rig = Rig(builder.build(), partition=partition)
    return ActiveTask(rig.task, rig.task.environment, {TopicPartition("in", partition): 0}, frozenset())


def batch(count: int, start: int = 0) -> RecordBatch:
    return RecordBatch([b"k"] * count, [b"1"] * count, [0] * count, list(range(start, start + count)))


@pytest.fixture
def manager() -> TaskManager:
    return TaskManager([active(0), active(1)], most_buffered)


def put(manager: TaskManager, partition: int, count: int, start: int = 0) -> None:
    manager.put(TaskId(0, partition), TopicPartition("in", partition), batch(count, start))


def test_the_task_with_most_records_goes_first(manager: TaskManager) -> None:
    put(manager, 0, 3)
    put(manager, 1, 5)
    with manager.taken("a") as first, manager.taken("b") as second:
        assert first is not None and second is not None
        assert (first.task.id, second.task.id) == (TaskId(0, 1), TaskId(0, 0))
        assert manager.holders == {"a": TaskId(0, 1), "b": TaskId(0, 0)}
    assert not manager.holders


def test_an_inbox_reaches_its_task_in_batches_and_in_order(manager: TaskManager) -> None:
    put(manager, 0, 3)
    put(manager, 0, 2, start=3)
    with manager.taken("a") as managed:
        assert managed is not None and (managed.buffered, managed.task.task.buffered) == (5, 0)
        managed.receive()
        assert (managed.buffered, managed.task.task.buffered) == (5, 5)
        assert managed.task.process(100) == 5
        assert managed.buffered == 0


def test_nobody_takes_a_task_that_somebody_has(manager: TaskManager) -> None:
    taken = threading.Event()

    def third() -> None:
        with manager.taken("c"):
            taken.set()

    with manager.taken("a"):
        with manager.taken("b"):
            thread = threading.Thread(target=third, daemon=True)
            thread.start()
            assert not taken.wait(0.05)
        assert taken.wait(HANG)
    thread.join(HANG)


def test_stopping_waits_for_the_holder_and_keeps_the_others_out(manager: TaskManager) -> None:
    held, boundary, stopped = threading.Event(), threading.Event(), threading.Event()

    def holder() -> None:
        with manager.taken("a"):
            held.set()
            assert boundary.wait(HANG)

    def stop() -> None:
        assert manager.stop_all(HANG)
        stopped.set()

    threads = [threading.Thread(target=work, daemon=True) for work in (holder, stop)]
    threads[0].start()
    assert held.wait(HANG)
    threads[1].start()
    assert not stopped.wait(0.05)
    boundary.set()
    assert stopped.wait(HANG) and not manager.holders
    manager.go_on()
    with manager.taken("b") as managed:
        assert managed is not None
    for thread in threads:
        thread.join(HANG)


def test_a_holder_that_does_not_stop_in_time_lets_the_others_go_on(manager: TaskManager) -> None:
    with manager.taken("a"):
        assert not manager.stop_all(0.01)
        with manager.taken("b") as other:
            assert other is not None


def test_a_task_without_work_rests_until_something_comes(manager: TaskManager) -> None:
    for _ in range(2):
        with manager.taken("a") as managed:
            assert managed is not None
            manager.rest(managed)
    got: list[TaskId] = []
    done = threading.Event()

    def take() -> None:
        with manager.taken("b") as managed:
            assert managed is not None
            got.append(managed.task.id)
            done.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    assert not done.wait(0.05)
    put(manager, 1, 1)
    assert done.wait(HANG) and got == [TaskId(0, 1)]
    thread.join(HANG)


def test_rested_tasks_are_looked_at_again_after_a_commit(manager: TaskManager) -> None:
    """A flush in it may have scheduled a punctuation, of which nothing tells."""
    for _ in range(2):
        with manager.taken("a") as managed:
            assert managed is not None
            manager.rest(managed)
    assert manager.stop_all(HANG)
    manager.go_on()
    taken = threading.Event()

    def take() -> None:
        with manager.taken("b"):
            taken.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    assert taken.wait(HANG)
    thread.join(HANG)


def test_threads_end_when_it_is_over(manager: TaskManager) -> None:
    manager.end()
    with manager.taken("a") as managed:
        assert managed is None


def test_giving_back_what_another_has_tells_who(manager: TaskManager) -> None:
    with manager.taken("a") as managed:
        assert managed is not None
        with pytest.raises(IllegalStateTransitionError, match="b cannot give back task 0_0: a holds it"):
            manager._give_back(managed, "b")


def test_a_scheduler_of_ones_own_decides() -> None:
    def last_partition(candidates: Sequence[Candidate]) -> Candidate:
        return max(candidates, key=lambda candidate: candidate.id)

    manager = TaskManager([active(0), active(1)], last_partition)
    put(manager, 0, 100)
    with manager.taken("a") as managed:
        assert managed is not None and managed.task.id == TaskId(0, 1)


def test_the_longest_waiting_goes_first_whatever_it_has() -> None:
    waiting = [Candidate(TaskId(0, 0), 9, 0.1), Candidate(TaskId(0, 1), 0, 0.4)]
    assert longest_waiting(waiting).id == TaskId(0, 1)


def test_a_task_whose_records_wait_for_another_try_is_looked_at_again() -> None:
    """Nothing arrives when one of them becomes due, or when somebody wants it tried now."""
    builder = StreamsBuilder()
    builder.stream("in").map_values_async(int, name="parse", on_error="retry").to("out")
    runner = VirtualCallRunner(lambda: 0)
    rig = Rig(builder.build(), calls=lambda: runner)
    task = ActiveTask(rig.task, rig.task.environment, {TopicPartition("in", 0): 0}, frozenset())
    now = [0.0]
    manager = TaskManager([task], most_buffered, clock=lambda: now[0])
    manager.put(task.id, TopicPartition("in", 0), RecordBatch([b"k"], [b'"one"'], [0], [0]))
    with manager.taken("a") as managed:
        assert managed is not None
        managed.receive()
        task.process(1)
        runner.run()
        task.process(1)
        assert task.calls_waiting == 1 and not task.calls_running
        manager.rest(managed)
    now[0] = 1.0
    with manager.taken("a") as managed:
        assert managed is not None
    runner.close()
