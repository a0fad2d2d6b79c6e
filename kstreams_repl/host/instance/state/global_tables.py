"""Global tables of one instance: loaded completely before its tasks start, then kept up to date.

They have a consumer of their own, take part in no commit, and are read from the beginning at each take-over (their stores are in
memory).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kstreams_repl.engine.runtime.global_task import GlobalTask
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import make_consumer
from kstreams_repl.host.kafka.failures import translate
from kstreams_repl.host.kafka.group_offsets import assign, is_partition_end, is_passing
from kstreams_repl.host.kafka.reading import positions
from kstreams_repl.host.kafka.record_batch import columns
from kstreams_repl.system.types import TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.host.kafka.clients import Message

_BATCH = 20_000


class GlobalTables:
    """All global stores of an instance and the consumer that keeps them up to date."""

    def __init__(self, plan: ApplicationPlan, admin: Admin, *, wall_clock: Callable[[], int]) -> None:
        self._partitions = plan.global_partitions
        self._admin = admin
        self._settings = plan.settings
        self.environment = MemoryEnvironment()
        self.task = GlobalTask(
            plan.application_id,
            plan.global_subtopologies,
            config=plan.config,
            environment=self.environment,
            wall_clock=wall_clock,
        )
        self._consumer = make_consumer(
            plan.settings, group_id=plan.application_id, isolation="read_committed", role="global", enable_partition_eof=True
        )
        self.loaded = 0

    @property
    def stores(self) -> Mapping[str, object]:
        """The global stores by name."""
        return self.task.stores

    def load(self, go_on: Callable[[], bool]) -> bool:
        """Read every partition up to its current end; return False when `go_on` returned False before that."""
        starts = self._admin.beginning_offsets(self._partitions)
        ends = self._admin.end_offsets(self._partitions, isolation="read_committed")
        assign(self._consumer, starts)
        missing = {partition for partition in self._partitions if starts[partition] < ends[partition]}
        while missing:
            if not go_on():
                return False
            self._apply(self._consumer.consume(_BATCH, 0.02))
            reached = positions(self._consumer, missing)
            missing = {partition for partition in missing if reached.get(partition, 0) < ends[partition]}
        return True

    def follow(self) -> int:
        """Apply the records that have arrived; return how many."""
        return self._apply(self._consumer.consume(_BATCH, 0))

    def _apply(self, messages: Sequence[object]) -> int:
        count = 0
        for partition, batch in columns(list(messages), self._on_error):
            self.task.update(partition.topic, partition.partition, batch)
            count += len(batch)
        self.loaded += count
        return count

    def _on_error(self, message: Message, error: object) -> None:
        if not is_partition_end(error) and not is_passing(error):
            raise translate(
                error, "reading a global table", topic=message.topic(), bootstrap_servers=self._settings.bootstrap_servers
            )

    def close(self) -> None:
        """Close the stores and the consumer."""
        try:
            self.task.close()
        finally:
            self._consumer.close()


def partitions_of(topics: Sequence[str], counts: Mapping[str, int]) -> tuple[TopicPartition, ...]:
    """Return every partition of the topics."""
    return tuple(TopicPartition(topic, number) for topic in topics for number in range(counts[topic]))
