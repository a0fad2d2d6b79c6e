"""Preview of a deploy, as far as it is known without Spark: checked topics, internal topics to be created, tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.operators.lateness import lateness_in
from kstreams_repl.engine.topology.differences.schema_diff import SchemaDiff
from kstreams_repl.engine.topology.partitions import ResolvedTopology, resolve_partitions
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.alignment_rules import late_reasons
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.pictures.table import Table
from kstreams_repl.system.types import TopicPartition


def check(admin: Admin, topology: Topology, application_id: str, config: StreamsConfig) -> ResolvedTopology:
    """Return the topology with the partitions of its topics and its tasks, as the configured partition grouper assigns them.

    Raises:
        UnknownTopicError, TopologyError: it does not fit the cluster.
    """
    from kstreams_repl.host.spark.planning.plan_builder import check_topics

    counts = admin.topics()
    check_topics(admin, topology, config, counts)
    return resolve_partitions(topology, application_id, counts, grouper=config["partition.grouper"])


def late_warnings(admin: Admin, topology: Topology, config: StreamsConfig) -> list[str]:
    """Return a line for each node that may drop records of history as late, and the reason."""
    if not any(lateness_in(part.nodes) for part in topology.subtopologies()):
        return []
    return [
        f"warning: {node} has no grace and may drop records of history: {why}. Hint: give the window a grace, docs/concepts/late-records.md"
        for node, why in late_reasons(topology.subtopologies(), config, admin.topics()).items()
    ]


def preview_table(
    admin: Admin,
    topology: Topology,
    application_id: str,
    config: StreamsConfig,
    offsets: Mapping[TopicPartition, int] | None = None,
    schemas: Sequence[SchemaDiff] = (),
) -> Table:
    """Return one row for each internal topic and sub-topology, each schema, and each partition that begins at a given offset."""
    resolved = check(admin, topology, application_id, config)
    existing = admin.topics()
    rows: list[tuple[str, str, object, str]] = []
    for topic in (*resolved.repartition_topics, *resolved.changelog_topics):
        rows.append(("topic", topic.name, topic.partitions, "exists" if topic.name in existing else "to be created"))
    for part in topology.subtopologies():
        tasks = sum(task.subtopology == part.id for task in resolved.tasks)
        rows.append(
            ("sub-topology", f"{part.id}: reads {', '.join(part.source_topics)}", tasks, "global" if part.global_ else "tasks")
        )
    rows += [("may drop late records", node, "", why) for node, why in late_reasons(topology.subtopologies(), config, existing).items()]
    rows += [(f"{schema.part} schema", schema.topic, str(schema.change), schema.reason) for schema in schemas]
    rows += [("partition", str(at), offset, "begins at this offset") for at, offset in sorted((offsets or {}).items())]
    return Table.of(
        ("what", "name", "partitions, tasks or offset", ""), rows, note=f"nothing is started; deploy {application_id} to do so"
    )
