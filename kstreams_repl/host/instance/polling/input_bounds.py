"""Where the input of a bounded run ends, for one instance (KIP-95; docs/design/017-bounded-runs.md).

Two kinds of partitions: *bounded* ones have a stop offset, fixed when the run began; *intermediate* ones are written by the application
itself and are read to their end, however often it moves.

Invariants: no record at or above a stop offset reaches a task. A partition has reached its stop when the consumer's position is at or
above it: a record from there on arrived, the end of the partition was met there, or markers before it were consumed. The offset
of the last record does not show that, because compaction, transaction markers and aborted records leave gaps. A task whose
queue is empty commits that position instead of the offset after its last record, so the committed offsets show how far the run is, and
survive the instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.host.instance.instance_clients import InstanceClients
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.kafka.group_offsets import pause, positions
from kstreams_repl.system.types import RecordBatch, TopicPartition

_POSITION_SECONDS = 0.25


class InputBounds:
    """The bounds of one instance's input.

    Args:
        stops: by bounded partition (`ApplicationPlan.stops`).
    """

    def __init__(self, stops: Mapping[TopicPartition, int], clients: InstanceClients) -> None:
        self._stops = stops
        self._clients = clients
        self._read_at = 0.0
        self._positions: dict[TopicPartition, int] = {}
        """Of bounded partitions that have reached their stop, the stop; of intermediate ones, where their end was met last."""

    def assign(self, task: ActiveTask) -> None:
        """Add the partitions of a task. Its next commit includes all of them, so that each has a committed offset."""
        for partition, start in task.starts.items():
            if start >= self._stops.get(partition, start + 1):
                self._positions[partition] = self._stops[partition]
        task.passed = self._positions
        task.is_bounded = True
        task.touched = True

    def passed(self, partition: TopicPartition) -> int:
        """Return the offset below which nothing of a partition is left to arrive, as far as its end or its position showed; else -1."""
        return self._positions.get(partition, -1)

    def pause_reached(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching those of the partitions that have reached their stop."""
        reached = [partition for partition in partitions if self.is_reached(partition)]
        if reached:
            pause(self._clients.consumer, reached)

    def is_reached(self, partition: TopicPartition) -> bool:
        """Return whether every record of a bounded partition below its stop offset has arrived."""
        return partition in self._stops and partition in self._positions

    def cut(self, partition: TopicPartition, batch: RecordBatch) -> RecordBatch:
        """Return the records below the stop offset."""
        stop = self._stops.get(partition)
        if stop is None or batch.offsets[-1] < stop:
            return batch
        self._reach(partition, stop)
        return batch.before(stop)

    def met_end(self, partition: TopicPartition, offset: int) -> None:
        """Note that the consumer has met the end of a partition at this offset."""
        stop = self._stops.get(partition)
        if stop is None:
            self._positions[partition] = offset
        elif offset >= stop:
            self._reach(partition, stop)

    def _reach(self, partition: TopicPartition, stop: int) -> None:
        failpoint("B3")
        self._positions[partition] = stop
        pause(self._clients.consumer, [partition])

    def touch(self, tasks: Sequence[ActiveTask], now: float) -> None:
        """Let the next commit include tasks that have passed offsets without records, or whose tables have caught up. Call when every
        consumed message is in a queue.

        The end of a partition is reported once, by a message. The consumer's position, which passes markers as they are consumed, is read
        as well: a run must not depend on that message.

        Args:
            now: monotonic seconds.
        """
        if now >= self._read_at:
            self._read_at = now + _POSITION_SECONDS
            for partition, offset in positions(self._clients.consumer, [at for task in tasks for at in task.committed]).items():
                if not self.is_reached(partition) and offset > self._positions.get(partition, -1):
                    self.met_end(partition, offset)
        for task in tasks:
            if not task.touched and (task.has_passed_more() or task.task.tables_have_caught_up):
                task.touched = True
