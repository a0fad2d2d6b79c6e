"""State and offsets with which an application begins that has none of its own: at a savepoint, or at a commit of another application.

Numbered: 1. reject an application that has state of its own, and a topology that would read the rows wrongly · 2. create the
internal topics · 3. write records and offsets in **one** transaction of the control id · 4. start as always. Before the commit of
3 the application has no state; after it, it has all of it, and each later record of its inputs counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.partitions import ResolvedTopology, resolve_partitions
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.journal.journal import JournalControl, TopicRecord, ensure_journal
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.repl.session.application.starting.deploy_preview import check
from kstreams_repl.repl.session.cleanup import Cleanup
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.system.errors import DeployError
from kstreams_repl.system.types import TopicPartition

_TRANSACTION_MS = 600_000


class Beginning:
    """The beginning of one application. The constructor checks (step 1), `write` does steps 2 and 3.

    Args:
        own: what there is of the application already.
        where: at what it begins, for errors.

    Raises:
        DeployError: the application has topics, offsets or state of its own.
        UnknownTopicError, TopologyError: the topology does not fit the cluster.
    """

    def __init__(
        self, client: ClusterClient, name: str, topology: Topology, config: StreamsConfig, *, own: Cleanup, where: str
    ) -> None:
        self.client, self.name, self.topology, self.config = client, name, topology, config
        if own.topics or own.group:
            raise DeployError(
                f"{name} has state of its own: expected none for a start from {where}",
                hint=f"session.cleanup({name!r}) deletes that state; or choose another name",
                application=name,
            )
        self.resolved = _resolved(client.admin, topology, name, config)

    @property
    def inputs(self) -> frozenset[TopicPartition]:
        """The input partitions whose offsets it brings."""
        raise NotImplementedError

    def read(self) -> tuple[Iterator[TopicRecord], Mapping[TopicPartition, OffsetAndMetadata]]:
        """Return the records to write to the application's topics, which exist, and its offsets."""
        raise NotImplementedError

    def write(self) -> None:
        """Write state and offsets to the broker, in one transaction."""
        from kstreams_repl.host.spark.planning.plan_builder import create_internal_topics

        # 2. Internal topics.
        ensure_journal(self.client.admin, self.name)
        create_internal_topics(self.client.admin, self.resolved, self.config)
        records, offsets = self.read()
        # 3. Records and offsets.
        control = JournalControl(self.client.settings, self.name, transaction_timeout_ms=_TRANSACTION_MS)
        try:
            control.write(topic_records=records, offsets=offsets)
        finally:
            control.close()

    @property
    def own_topics(self) -> dict[str, int | None]:
        """The application's internal topics, with their numbers of partitions."""
        return {topic.name: topic.partitions for topic in (*self.resolved.changelog_topics, *self.resolved.repartition_topics)}


def _resolved(admin: Admin, topology: Topology, name: str, config: StreamsConfig) -> ResolvedTopology:
    check(admin, topology, name, config)
    counts = admin.topics()
    return resolve_partitions(topology, name, counts, grouper=config["partition.grouper"], topic_configs=config.topic_configs)
