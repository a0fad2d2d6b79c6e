"""The queues of one task and the choice of the next record.

The next record is the head with the smallest timestamp; ties are in the order of Java's priority queue. When some queues of a task are
empty, `max.task.idle.ms` decides whether it waits: 0 waits only while a partition is known to lag or its lag is not known yet, so that
a join does not miss a table row that is about to arrive. Source: Kafka Streams' PartitionGroup, KIP-353, KIP-695.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstreams_repl.engine.runtime.queues.java_queue import JavaPriorityQueue
from kstreams_repl.engine.runtime.queues.record_queue import RecordQueue, StreamClock
from kstreams_repl.system.errors import IllegalStateError
from kstreams_repl.system.types import RecordBatch, TopicPartition

FOREVER = 1 << 63
IDLE_DISABLED = -1


def _head_timestamp(queue: RecordQueue) -> int:
    return queue.head_ts


class PartitionGroup:
    """All record queues of one task."""

    def __init__(self, queues: Iterable[RecordQueue], clock: StreamClock, max_task_idle_ms: int) -> None:
        self.queues: dict[TopicPartition, RecordQueue] = {queue.partition: queue for queue in queues}
        self.clock = clock
        self.max_task_idle_ms = max_task_idle_ms
        self._filled: JavaPriorityQueue[RecordQueue] = JavaPriorityQueue(_head_timestamp)
        self._lags: dict[TopicPartition, int] = {}
        self._deadlines: dict[TopicPartition, int] = {}
        self.enforced = 0
        """How often the task continued without records of every partition (KIP-353's enforced processing)."""

    def add(self, partition: TopicPartition, batch: RecordBatch) -> None:
        queue = self.queues.get(partition)
        if queue is None:
            raise IllegalStateError(
                f"partition {partition} does not belong to this task", topic=partition.topic, partition=partition.partition
            )
        was_empty = not queue.has_head
        queue.add(batch)
        if was_empty and queue.has_head:
            self._filled.offer(queue)

    def set_lag(self, partition: TopicPartition, lag: int | None) -> None:
        """Set how many records of the partition are on the broker and not yet here; None = unknown."""
        if lag is None:
            self._lags.pop(partition, None)
        else:
            self._lags[partition] = lag

    @property
    def buffered(self) -> int:
        return sum(queue.size for queue in self.queues.values())

    @property
    def buffered_bytes(self) -> int:
        return sum(queue.buffered_bytes for queue in self.queues.values())

    def ready(self, wall_clock: int) -> bool:
        """Return whether the next record may be processed now; False if nothing is buffered."""
        filled = len(self._filled)
        if self.max_task_idle_ms == IDLE_DISABLED:
            return filled > 0
        if filled == len(self.queues):
            if self._deadlines:
                self._deadlines.clear()
            return True
        if not filled and not self.max_task_idle_ms:
            return False
        for partition, queue in self.queues.items():
            if queue.has_head:
                self._deadlines.pop(partition, None)
                continue
            if self._lags.get(partition, 1) > 0:
                self._deadlines.pop(partition, None)
                return False
            if wall_clock < self._deadlines.setdefault(partition, wall_clock + self.max_task_idle_ms):
                return False
        if filled:
            self.enforced += 1
        return filled > 0

    @property
    def first(self) -> RecordQueue | None:
        """The queue with the next record; None: nothing is buffered."""
        return self._filled.peek()

    @property
    def head_time(self) -> int | None:
        """The timestamp of the next record; None: nothing is buffered."""
        first = self._filled.peek()
        return None if first is None else first.head_ts

    def has_before(self, limit: int) -> bool:
        """Return whether the next record is earlier than `limit`."""
        first = self._filled.peek()
        return first is not None and first.head_ts < limit

    def run(self, count: int, before: int = FOREVER) -> int:
        """Process at most `count` records of one queue while it has the smallest head timestamp. Call it only when `ready`.

        Args:
            before: end before the first record of this time or later; the next record must be earlier.
        """
        filled = self._filled
        queue = filled.poll()
        following = filled.peek()
        poison = queue.corrupted
        done = queue.run(count, before if following is None else min(before, following.head_ts))
        if not poison:
            queue.entered += done
        if queue.has_head:
            filled.offer(queue)
        return done

    def entered(self, partitions: Iterable[TopicPartition]) -> int:
        """Return how many records of these partitions were passed to their source's node."""
        return sum(self.queues[partition].entered for partition in partitions)

    def clear(self) -> None:
        for queue in self.queues.values():
            queue.clear()
        self._filled.remove_if(lambda queue: True)
        self._lags.clear()
        self.clock.now = -1
