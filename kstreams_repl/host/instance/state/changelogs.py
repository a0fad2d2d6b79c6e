"""The changelogs of a task's stores, and what the broker says about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.stores.log.log_serdes import with_log_serdes
from kstreams_repl.engine.topology.internal_topics import WINDOWED_KINDS
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.system.types import TaskId, TopicPartition

TOMBSTONE_SECONDS = 24 * 60 * 60
"""How long a changelog keeps deletions (``delete.retention.ms``) by default."""


@dataclass(frozen=True, slots=True)
class ChangelogPartition:
    """One store of one task and the partition of its log."""

    task: TaskId
    store: StoreBuilder
    partition: TopicPartition

    @property
    def is_source(self) -> bool:
        """Whether the log is an input of the task: it is restored up to the committed offset, not to its end."""
        return self.store.source_topic is not None

    @property
    def is_timed(self) -> bool:
        """Whether its records expire with their windows (`changelog_retention`)."""
        return not self.is_source and self.store.kind in WINDOWED_KINDS

    @property
    def keeps_all(self) -> bool:
        """Whether its topic is compacted only: its start stays 0 unless records are deleted explicitly."""
        timed = self.store.retention_ms is not None and self.store.kind is not StoreKind.VERSIONED
        return not self.is_source and not timed and "delete" not in str((self.store.topic_config or {}).get("cleanup.policy", ""))

    def keeps_deletions_seconds(self, config: StreamsConfig) -> float:
        """Return how long it keeps deletions at least, in seconds, as the application has configured it."""
        configured = {} if self.is_source else {**config.topic_configs, **(self.store.topic_config or {})}
        retention_ms = configured.get("delete.retention.ms")
        return TOMBSTONE_SECONDS if retention_ms is None else int(retention_ms) / 1000


def changelogs_of(spec: TaskSpec) -> list[ChangelogPartition]:
    """Return the logs of a task's stores; stores without a log are left out."""
    logs = []
    for store in spec.subtopology.stores:
        topic = store.source_topic
        if topic is not None:
            topic = f"{spec.application_id}-{topic}" if topic in spec.internal_topics else topic
            store = with_log_serdes(store, spec.config, topic)
        elif store.logging:
            topic = f"{spec.application_id}-{store.name}-changelog"
        if topic is not None:
            logs.append(ChangelogPartition(spec.task_id, store, TopicPartition(topic, spec.task_id.partition)))
    return logs


@dataclass(frozen=True, slots=True)
class ChangelogBounds:
    """The first and the read_uncommitted end offsets of changelogs, and the broker's ids of their topics (and of input topics)."""

    firsts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]

    @classmethod
    def read(cls, admin: Admin, logs: Sequence[ChangelogPartition], inputs: Iterable[TopicPartition] = ()) -> ChangelogBounds:
        """Ask the broker.

        Args:
            inputs: partitions whose topics' ids are wanted, too.
        """
        partitions = {log.partition for log in logs}
        topics = {partition.topic for partition in (*partitions, *inputs)}
        return cls(
            admin.beginning_offsets(partitions),
            admin.end_offsets(partitions, isolation="read_uncommitted"),
            {name: topic.id for name, topic in admin.describe_topics(topics).items()},
        )
