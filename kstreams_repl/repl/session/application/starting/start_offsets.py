"""Where a deployed application begins to read: the offsets of a time, for partitions without a committed offset."""

from __future__ import annotations

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.bounds.offset_reset import duration_ms
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.partitions import resolve_partitions
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.repl.session.topics.produce import milliseconds
from kstreams_repl.system.errors import CallError, KStreamsError
from kstreams_repl.system.types import TopicPartition

POLICIES = ("earliest", "latest", "none")


def is_time(start: object) -> bool:
    """Return whether `start` is a time, not an end of the topic.

    Raises:
        CallError: it is neither.
    """
    if start is None or start in POLICIES or (isinstance(start, str) and duration_ms(start) is not None):
        return False
    try:
        milliseconds(start)
    except (KStreamsError, TypeError, ValueError) as error:
        raise CallError(
            f"start must be 'earliest', 'latest' or a time, got {start!r}",
            hint="a time is milliseconds since 1970, a datetime or ISO text: start='2013-03-01'",
        ) from error
    return True


def starting_offsets(admin: Admin, name: str, topology: Topology, config: StreamsConfig, start: object) -> dict[TopicPartition, int]:
    """Return the starting offsets, for a start at a time, of the partitions without a committed offset.

    Each is the offset of the first record at that time or later, else the end. Internal topics, sources with an offset reset of
    their own and topics of global tables are left out.

    Raises:
        UnknownTopicError, TopologyError: the topology does not fit the cluster.
        KStreamsError: `start` cannot be parsed as a time.
    """
    at_ms = milliseconds(start)
    counts = admin.topics()
    resolved = resolve_partitions(topology, name, counts, grouper=config["partition.grouper"])
    nodes = [node for node in topology.nodes.values() if isinstance(node, SourceNode) and node.offset_reset]
    internal = {f"{name}-{topic}" for topic in topology.internal_topics}

    def decided(topic: str) -> bool:
        return topic in internal or any(
            topic in node.topics or (node.pattern is not None and node.pattern.fullmatch(topic)) for node in nodes
        )

    inputs = [partition for partitions in resolved.tasks.values() for partition in partitions if not decided(partition.topic)]
    committed = admin.committed_offsets(name, inputs)
    fresh = [partition for partition in inputs if partition not in committed]
    # the ends first: records written from now on have that time or a later one
    ends = admin.end_offsets(fresh, isolation="read_uncommitted")
    found = admin.offsets_for_time(dict.fromkeys(fresh, at_ms))
    return {partition: ends[partition] if offset is None else offset for partition, offset in found.items()}
