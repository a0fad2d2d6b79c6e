"""The record at which an application failed: find it, and show it with its error."""

from __future__ import annotations

from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of
from kstreams_repl.pictures.markup import one_line
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.topics.read import decoded, rows_of
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.repl.session.views.picture.silent_nodes import upstream
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import RecordPosition, TopicPartition

KEY_CHARACTERS, VALUE_CHARACTERS = 200, 600


def record_at(client: ClusterClient, position: RecordPosition) -> ReadRecord | None:
    """Return the record at an offset, decoded as far as possible (else its bytes); None if the broker no longer has it."""
    at = TopicPartition(position.topic, position.partition)
    (readable,) = ranges_of(client.admin, position.topic, partitions=[position.partition], isolation="read_uncommitted")
    if not readable.start <= position.offset < readable.end:
        return None
    found, _ = rows_of(client.admin, [OffsetRange(at, position.offset, position.offset + 1)], 1, first=True)
    records = decoded(found, position.topic, *client.serdes_of(position.topic))
    return records[0] if records and records[0].offset == position.offset else None


def with_record(client: ClusterClient, name: str, error: KStreamsError, topology: Topology) -> KStreamsError:
    """Return an application's error with its record: in ``error.record`` and in its message, shortened and escaped; of a record of an
    internal topic, also the topics that it comes from.
    """
    position = error.record_position
    if position is None or error.application is not None:
        return error
    error.fields["application"] = name
    try:
        record = record_at(client, position)
    except KStreamsError:  # the broker or the topic is unavailable: the error itself matters more
        return error
    if record is not None:
        error.fields["record"] = record
    error.message += f"\n  record {position}: {shown(record)}"
    internal = position.topic.removeprefix(f"{name}-")
    if internal in topology.internal_topics and internal != position.topic:
        readers = [node.name for node in topology.nodes.values() if isinstance(node, SourceNode) and internal in node.topics]
        above = [topology.nodes[node] for reader in readers for node in sorted(upstream(topology, reader))]
        topics = {topic for node in above if isinstance(node, SourceNode) for topic in node.topics if topic not in topology.internal_topics}
        error.message += f"\n  {position.topic} is written by the application itself, from records of {', '.join(sorted(topics))}"
    error.args = (error.message,)
    return error


def shown(record: ReadRecord | None) -> str:
    """Return key and value on one line, shortened, with terminal control characters escaped."""
    if record is None:
        return "the broker no longer has it"
    return f"key {one_line(repr(record.key), limit=KEY_CHARACTERS)}, value {one_line(repr(record.value), limit=VALUE_CHARACTERS)}"
