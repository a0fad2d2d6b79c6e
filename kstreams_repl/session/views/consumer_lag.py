"""Consumer lag of an application, from the broker's offsets.

Committed offsets are read *before* the ends of the topics, so the end of a repartition topic includes what a commit wrote to it:
a lag of 0 means that no unprocessed record is left. Offsets that hold no record (transaction markers) are recognised by reading
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.group_admin import CommittedOffset
from kstreams_repl.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.topology.names import internal_topic
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.topology import Topology
from kstreams_repl.types import TopicPartition

FEW = 3
"""Number of offsets at an end that are read to check whether they are records."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """The committed offsets, and the number of records after them on each input and repartition partition."""

    committed: Mapping[TopicPartition, CommittedOffset]
    records: Mapping[TopicPartition, int]


def remaining_records(admin: Admin, application_id: str, topology: Topology) -> int:
    """Return the number of records on the application's input and repartition topics that are not committed as processed."""
    return sum(remaining(admin, application_id, topology, exact=False).records.values())


def remaining(admin: Admin, application_id: str, topology: Topology, *, exact: bool = True) -> Remaining:
    """Return the records that are not committed as processed, by partition.

    Args:
        exact: False: read the last offsets of a partition only when nothing else is left, to decide whether all is processed.
    """
    counts = admin.topics()
    partitions = [TopicPartition(topic, number) for topic in topics_of(topology, application_id, counts) for number in range(counts[topic])]
    committed = admin.committed_offsets(application_id, partitions, stable=False)
    ends = admin.end_offsets(partitions)
    starts = admin.beginning_offsets(partitions)
    left: dict[TopicPartition, int] = {}
    few = []
    for at in partitions:
        start = max(starts[at], committed[at].offset if at in committed else 0)
        left[at] = max(0, ends[at] - start)
        if 0 < left[at] <= FEW:
            few.append(OffsetRange(at, start, ends[at]))
    if few and (exact or sum(left.values()) == sum(item.end - item.start for item in few)):
        left |= dict.fromkeys((item.partition for item in few), 0)
        for at, batch in read_ranges(admin.settings, few):
            left[at] += len(batch)
    return Remaining(committed, left)


def topics_of(topology: Topology, application_id: str, known: Mapping[str, int]) -> list[str]:
    """Return the topics that tasks read, by their names on the broker, without those that do not exist."""
    found: dict[str, None] = {}
    for part in topology.subtopologies():
        if part.global_:
            continue
        for node in part.nodes:
            if isinstance(node, SourceNode):
                found |= dict.fromkeys(topics_of_source(node, topology, application_id, known))
    return [topic for topic in found if topic in known]


def topics_of_source(node: SourceNode, topology: Topology, application_id: str, known: Mapping[str, int]) -> list[str]:
    """Return the topics that one source reads, by their names on the broker."""
    named = [internal_topic(application_id, topic) if topic in topology.internal_topics else topic for topic in node.topics]
    return named if node.pattern is None else [*named, *(topic for topic in known if node.pattern.fullmatch(topic))]
