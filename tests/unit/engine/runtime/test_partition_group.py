"""Which record is next: head timestamps, Java's ties, waiting for partitions that lag."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl.engine.runtime.queues.java_queue import JavaPriorityQueue
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import RecordBatch, TopicPartition
from tests.unit.engine.runtime.rig import Rig, keys, recording


def rig_of(*topics: str, **settings: Any) -> tuple[Rig, list[Any]]:
    seen: list[Any] = []
    idle = settings.pop("idle", 0)
    return Rig(recording(seen, *topics), {"max.task.idle.ms": idle}, **settings), seen


def test_the_smallest_head_timestamp_is_next() -> None:
    rig, seen = rig_of("L", "R")
    rig.pipe("L", ("a", 0, 1), ("c", 0, 30)).pipe("R", ("b", 0, 2), ("d", 0, 40)).run()
    assert keys(seen) == "abcd"


def test_records_of_one_partition_are_never_sorted() -> None:
    rig, seen = rig_of("L", "R")
    rig.pipe("L", ("a", 0, 50), ("b", 0, 1)).pipe("R", ("c", 0, 10), ("d", 0, 60)).run()
    assert keys(seen) == "cabd"


def test_five_equal_heads_leave_in_the_order_of_javas_priority_queue() -> None:
    rig, seen = rig_of("1", "2", "3", "4", "5")
    for topic in "12345":
        rig.pipe(topic, (topic, 0, 7))
    rig.run()
    assert keys(seen) == "15432"


def test_a_tie_with_the_head_that_was_just_taken_goes_to_the_other_queue() -> None:
    rig, seen = rig_of("L", "R")
    rig.pipe("L", ("a", 0, 7), ("b", 0, 7)).pipe("R", ("c", 0, 7), ("d", 0, 7)).run()
    one_by_one, other = rig_of("L", "R")
    one_by_one.pipe("L", ("a", 0, 7), ("b", 0, 7)).pipe("R", ("c", 0, 7), ("d", 0, 7))
    while one_by_one.run(1):
        pass
    assert keys(seen) == keys(other) == "acbd"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_the_order_does_not_depend_on_how_many_records_a_call_may_take(size: int) -> None:
    rows = {"L": [(f"l{i} ", 0, (i * 7) % 11) for i in range(40)], "R": [(f"r{i} ", 0, (i * 5) % 13) for i in range(40)]}
    all_at_once, expected = rig_of("L", "R", idle=-1)
    for topic, records in rows.items():
        all_at_once.pipe(topic, *records)
    all_at_once.run()
    rig, seen = rig_of("L", "R", idle=-1)
    for topic, records in rows.items():
        rig.pipe(topic, *records)
    while rig.run(size):
        pass
    assert seen == expected
    assert len(seen) == 80


def test_ties_of_a_queue_leave_as_on_the_jvm_when_elements_come_back() -> None:
    queue: JavaPriorityQueue[str] = JavaPriorityQueue(lambda item: 0)
    for item in "12345":
        queue.offer(item)
    assert [queue.poll(), queue.poll()] == ["1", "5"]
    queue.offer("6")
    assert [queue.poll() for _ in range(len(queue))] == ["4", "6", "3", "2"]


def test_a_task_waits_while_a_partitions_lag_is_unknown() -> None:
    rig, seen = rig_of("L", "R", lags_known=False)
    rig.pipe("L", ("a", 0, 1))
    assert (rig.run(), seen) == (0, [])


def test_a_task_waits_while_a_partition_is_known_to_lag() -> None:
    rig, seen = rig_of("L", "R")
    rig.task.set_lag(TopicPartition("R", 0), 3)
    rig.pipe("L", ("a", 0, 10))
    assert rig.run() == 0
    rig.pipe("R", ("b", 0, 1)).run()
    assert keys(seen) == "b"


def test_a_task_goes_on_once_the_empty_partition_is_known_to_be_at_its_end() -> None:
    rig, seen = rig_of("L", "R", lags_known=False)
    rig.pipe("L", ("a", 0, 1))
    rig.task.set_lag(TopicPartition("R", 0), 0)
    assert (rig.run(), keys(seen)) == (1, "a")


def test_a_positive_idle_time_is_waited_after_the_lag_is_zero() -> None:
    rig, seen = rig_of("L", "R", idle=100)
    rig.pipe("L", ("a", 0, 1))
    assert rig.run() == 0
    rig.now = 99
    assert rig.run() == 0
    rig.now = 100
    assert (rig.run(), keys(seen)) == (1, "a")


def test_idling_starts_anew_after_the_partition_had_records_again() -> None:
    rig, seen = rig_of("L", "R", idle=100)
    rig.pipe("L", ("a", 0, 1), ("c", 0, 3))
    assert rig.run() == 0
    rig.now = 90
    rig.pipe("R", ("b", 0, 2)).run()
    assert keys(seen) == "ab"
    assert rig.run() == 0
    rig.now = 189
    assert rig.run() == 0
    rig.now = 190
    assert (rig.run(), keys(seen)) == (1, "abc")


def test_idle_minus_one_never_waits() -> None:
    rig, seen = rig_of("L", "R", idle=-1, lags_known=False)
    assert (rig.pipe("L", ("a", 0, 1)).run(), keys(seen)) == (1, "a")


def test_a_task_without_records_is_not_ready_whatever_the_setting() -> None:
    rig, _ = rig_of("L", idle=-1)
    assert rig.run() == 0


def test_records_of_a_partition_that_is_not_the_tasks_are_refused() -> None:
    rig, _ = rig_of("L")
    with pytest.raises(KStreamsError, match="does not belong to this task"):
        rig.task.add_records(TopicPartition("L", 9), RecordBatch([None], [None], [0], [0]))


def test_idling_also_counts_while_nothing_at_all_is_buffered() -> None:
    rig, seen = rig_of("L", "R", idle=100)
    assert rig.run() == 0
    rig.now = 99
    assert rig.run() == 0
    rig.now = 150
    assert rig.run() == 0
    rig.pipe("L", ("a", 0, 1))
    assert rig.run() == 0, "the right side's time to idle began when it was first found empty behind the left one"
    rig.now = 250
    assert (rig.run(), keys(seen)) == (1, "a")
