"""Start an application from a savepoint (`starting.beginning`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.journal.journal import TopicRecord
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.repl.session.application.savepoints.savepoints import RECORDS, Savepoint, row_format
from kstreams_repl.repl.session.application.starting.beginning import Beginning
from kstreams_repl.repl.session.cleanup import Cleanup
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.system.errors import RecordingError, TopologyError
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.test_driver.recording import Recording


class SavepointStart(Beginning):
    """The start of one application from a savepoint.

    Raises:
        DeployError: the application has topics, offsets or state of its own.
        TopologyError: the topology would read the savepoint's rows wrongly, or lacks the nodes that its unprocessed records were
            sent to.
        RecordingError: it was changed.
    """

    def __init__(
        self, client: ClusterClient, savepoint: Savepoint, name: str, topology: Topology, config: StreamsConfig, *, own: Cleanup
    ) -> None:
        self.savepoint = savepoint
        super().__init__(client, name, topology, config, own=own, where=f"savepoint {savepoint.name!r}")
        self._refuse_other_rows(topology, config)
        self._records = Recording.load(self.savepoint.path / RECORDS)
        if len(self._records) != self.savepoint.records:
            path = self.savepoint.path
            raise RecordingError(
                f"savepoint {path} was changed: expected {self.savepoint.records:,} records, got {len(self._records):,}",
                hint="restore the directory from a backup, or take another savepoint: app.savepoint(name)",
                path=str(path),
            )
        self._refuse_other_topics()

    @property
    def inputs(self) -> frozenset[TopicPartition]:
        """The input partitions whose offsets come from the savepoint."""
        return frozenset(TopicPartition(topic, n) for topic, of in self.savepoint.offsets.items() for n in of)

    def read(self) -> tuple[Iterator[TopicRecord], Mapping[TopicPartition, OffsetAndMetadata]]:
        offsets = {TopicPartition(topic, n): offset for topic, of in self.savepoint.offsets.items() for n, offset in of.items()}
        own = self.own_topics
        internal = {f"{self.name}-{topic}": of for topic, of in self.savepoint.internal.items()}
        offsets |= {TopicPartition(topic, n): (0, text) for topic, of in internal.items() if topic in own for n, text in of.items()}
        return self._rows(), offsets

    def _rows(self) -> Iterator[TopicRecord]:
        own = self.own_topics
        for record in self._records:
            topic = f"{self.name}-{record.topic}"
            if topic in own:
                yield topic, record.partition, record.key, record.value, record.timestamp, record.headers

    def _refuse_other_rows(self, topology: Topology, config: StreamsConfig) -> None:
        for name, was in self.savepoint.stores.items():
            store = topology.stores.get(name)
            now = None if store is None else row_format(store, config)
            other = [] if now is None else [key for key in now if now[key] != was.get(key)]
            if now is not None and other:
                raise TopologyError(
                    f"store {name!r} of savepoint {self.savepoint.name!r} cannot be read: its {other[0]} was {was.get(other[0])}, "
                    f"would be {now[other[0]]}",
                    hint="deploy the topology of the savepoint, then edit it: app.edit(builder, migrate=…)",
                    store=name,
                )
        left = sorted(self.savepoint.stores.keys() - topology.stores.keys())
        if left:
            self.client.report(f"{self.name} has no store {', '.join(left)}: its records in the savepoint are not used")

    def _refuse_other_topics(self) -> None:
        own, prefix = self.own_topics, f"{self.name}-"
        unread = {record.topic for record in self._records if record.topic in self.savepoint.internal}
        for topic, partitions in self._records.topics.items():
            count = own.get(prefix + topic)
            if count is None and topic in unread:
                raise TopologyError(
                    f"the savepoint has unprocessed records of {topic!r}, which this topology does not read",
                    hint="give the operator that writes the topic the name that it had in the savepoint's topology",
                    topic=topic,
                )
            if count is not None and count != partitions:
                raise TopologyError(
                    f"expected {partitions} partitions of {prefix}{topic} as in the savepoint, got {count}",
                    hint="give the input topics as many partitions as they had when the savepoint was taken",
                    topic=prefix + topic,
                )
        there = self.client.admin.describe_topics(self.savepoint.topic_ids)
        for topic, known in self.savepoint.topic_ids.items():
            if topic in there and there[topic].id != known:
                raise TopologyError(
                    f"topic {topic} was deleted and created again since the savepoint was taken: its offsets no longer fit",
                    hint="deploy without from_savepoint",
                    topic=topic,
                )
