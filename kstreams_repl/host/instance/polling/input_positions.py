"""How far the input of an instance has been read: positions and ends of its partitions, and the lags derived from them.

A task with several input partitions may continue without records of one of them only if that partition's lag is known to be 0
(KIP-695). The lag is unknown before the first fetch. The end moves with every fetch, while its records are still in the client's
queue: a known lag of 0 is therefore checked again whenever the task would continue without the partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from kstreams_repl.host.instance.instance_clients import InstanceClients
from kstreams_repl.host.instance.polling.input_bounds import InputBounds
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.kafka.clients import Isolation
from kstreams_repl.host.kafka.group_offsets import known_end, positions
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import TaskId, TopicPartition

_ASK_SECONDS = 0.25
"""Interval between requests to the broker whether a partition that a task waits for ends in an open transaction."""
_UNAVAILABLE_SECONDS = 20.0
"""Delay before the next such request after one failed: each failed request blocks the loop."""


class InputPositions:
    """The input of one instance.

    Attributes:
        by_partition: the task of each input partition.
        ends: where the consumer last met the end of each partition, beyond any transaction markers.
        routed: with processing threads, the offset after the last record that was put into an inbox.
    """

    def __init__(
        self, clients: InstanceClients, tasks: Sequence[ActiveTask], isolation: Isolation, bounds: InputBounds | None = None
    ) -> None:
        self._clients = clients
        self._tasks = tasks
        self._isolation = isolation
        self._bounds = bounds
        self.by_partition: dict[TopicPartition, ActiveTask] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.routed: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}
        """Next offset to be taken from the consumer, for inputs of tasks with more than one partition."""
        self._stable: dict[TopicPartition, tuple[int, int]] = {}
        """(offset, end of the log as of then) where no more records are readable, because those that follow belong to an open
        transaction.
        """
        self._ask_at: dict[TopicPartition, float] = {}
        self._passed: dict[TopicPartition, int] = {}
        """The consumer's position when everything consumed was processed: beyond transaction markers and aborted records."""

    def assign(self, task: ActiveTask) -> None:
        """Add the partitions of a task."""
        self.by_partition |= dict.fromkeys(task.starts, task)
        task.passed = self._passed

    def pass_markers(self, *, commit: bool) -> None:
        """Note how far the consumer has read, so that commits pass the markers and aborted records after the last record
        (KAFKA-6607). Call when every consumed message is in a queue.

        Args:
            commit: include the tasks whose offsets would move in the next commit. One that only moves offsets writes no marker.
        """
        self._passed.update(positions(self._clients.consumer, self.by_partition))
        for task in self._tasks if commit else ():
            if not task.touched and task.has_passed_more():
                task.touched = True

    def passed(self, partition: TopicPartition, offset: int) -> None:
        """Note that every offset of the partition below `offset` has arrived (a partition end also covers transaction markers)."""
        if offset > self._reached.get(partition, -1):
            self._reached[partition] = offset

    def update_lag(self, task: ActiveTask, partition: TopicPartition) -> None:
        """Set the partition's lag to 0 if the last fetch showed only records that have arrived or that belong to open
        transactions; else set it to unknown, and the task waits.
        """
        if self._bounds is not None and self._bounds.is_reached(partition):
            task.task.set_lag(partition, 0)
            return
        end = known_end(self._clients.consumer, partition)
        reached = self._reached.get(partition, task.starts[partition])
        if self._bounds is not None:  # a bounded run ends although the client does not report the end of a partition
            reached = max(reached, self._bounds.passed(partition))
        met = end is not None and (reached >= end or self._is_stable_end(partition, reached, end))
        task.task.set_lag(partition, 0 if met else None)

    def is_at_end(self, task: ActiveTask, partition: TopicPartition) -> bool:
        """Return whether no record of a partition without buffered records is known to be on its way, as far as the client knows
        without a request. Records of open transactions are not on their way.
        """
        if self._bounds is not None and self._bounds.is_reached(partition):
            return True
        reached = self._reached_by(task, partition)
        if reached is None or self.ends.get(partition) == reached:
            return reached is not None
        end = known_end(self._clients.consumer, partition)
        return end is not None and reached >= end

    def _reached_by(self, task: ActiveTask, partition: TopicPartition) -> int | None:
        """Return the offset up to which all records are in the task's queue; None while some are in an inbox."""
        following = task.task.queues[partition].next_offset
        if partition in self.routed and (following is None or following < self.routed[partition]):
            return None
        return max(task.starts[partition] if following is None else following, self.ends.get(partition, -1))

    def has_reached(self, task: ActiveTask, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether each partition of a task has a record in its queue, or all up to the given offset were there."""
        for partition, queue in task.task.queues.items():
            if not queue.size and ((reached := self._reached_by(task, partition)) is None or reached < ends.get(partition, 0)):
                return False
        return True

    def ask_ends(self, tasks: Iterable[ActiveTask]) -> Callable[[], dict[TopicPartition, int] | None]:
        """Ask the broker for the ends of the tasks' partitions, records of open transactions included: those of a transaction that is
        committed are there before its markers are. The function returned gives the answer, as `Admin.ask_end_offsets`.
        """
        partitions = [partition for task in tasks for partition in task.task.queues]
        return self._clients.admin.ask_end_offsets(partitions, isolation="read_uncommitted")

    def update_missing_lags(self, task: ActiveTask) -> None:
        """Refresh the lag of each empty queue before the task continues without it."""
        for partition, queue in task.task.queues.items():
            if not queue.has_head:
                self.update_lag(task, partition)

    def _is_stable_end(self, partition: TopicPartition, reached: int, end: int) -> bool:
        """Return whether all records between `reached` and `end` belong to open transactions: the client has met the end of the
        readable records there, and the broker confirms that end. The broker is asked at intervals while a task waits; its answer
        holds until the log grows, at the latest by the marker that ends such a transaction. (Kafka Streams reads the last stable
        offset from the client; librdkafka knows it but does not expose it.)
        """
        if self.ends.get(partition) != reached or self._isolation != "read_committed":
            return False
        if self._stable.get(partition) == (reached, end):
            return True
        now = time.monotonic()
        queue = self.by_partition[partition].task.queues[partition]
        if queue.has_head or now < self._ask_at.get(partition, 0.0):
            return False
        try:
            stable = self._clients.admin.end_offsets([partition], isolation="read_committed")[partition]
        except KStreamsError:  # still unknown; the consumer reports the cause, and the next request is delayed
            self._ask_at = dict.fromkeys(self.by_partition, time.monotonic() + _UNAVAILABLE_SECONDS)
            return False
        self._ask_at[partition] = now + _ASK_SECONDS
        if reached < stable:
            return False
        self._stable[partition] = (reached, end)
        return True

    def lags(self) -> dict[TaskId, int]:
        """Return records behind the end of the log, of all partitions of a task; -1 if that of one is unknown."""
        known = self.partition_lags()
        by_task = {task.id: [known[partition] for partition in task.committed] for task in self._tasks}
        return {task: -1 if -1 in lags else sum(lags) for task, lags in by_task.items()}

    def partition_lags(self) -> dict[TopicPartition, int]:
        """Return records behind the end of the log as of the last fetch; -1 while unknown. Transaction markers at the end do not
        count as lag, nor do records that a join has found to belong to an open transaction.
        """
        lags = {}
        for task in self._tasks:
            for partition, offset in task.committed.items():
                end = known_end(self._clients.consumer, partition)
                if not task.task.buffered:
                    offset = max(offset, self.ends.get(partition, 0), self._passed.get(partition, 0))
                if self._stable.get(partition) == (offset, end):  # the rest belongs to an open transaction
                    lags[partition] = 0
                else:
                    lags[partition] = -1 if end is None else max(0, end - offset)
        return lags
