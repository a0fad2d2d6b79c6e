"""How much an application has still to read, from the broker's own numbers.

Committed offsets are read *before* the ends of the topics: what a commit put on a repartition topic is then seen in its end, so 0 means
that nothing is left anywhere. Offsets that hold no record (markers of transactions) are told from records by reading them.
"""

from __future__ import annotations

from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.topology.names import internal_topic
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.topology import Topology
from kstreams_repl.types import TopicPartition

FEW = 3
"""So many offsets at an end are read to see whether they are records."""


def remaining_records(admin: Admin, application_id: str, topology: Topology) -> int:
    """Records on the application's input and repartition topics that are not committed as processed."""
    counts = admin.topics()
    partitions = [
        TopicPartition(topic, number) for topic in _topics(topology, application_id, counts) for number in range(counts[topic])
    ]
    committed = admin.committed_offsets(application_id, stable=False)
    ends = admin.end_offsets(partitions)
    starts = admin.beginning_offsets(partitions)
    left, few = 0, []
    for at in partitions:
        start = max(starts[at], committed[at].offset if at in committed else 0)
        gap = ends[at] - start
        if 0 < gap <= FEW:
            few.append(OffsetRange(at, start, ends[at]))
        elif gap > 0:
            left += gap
    if left:
        return left + sum(item.end - item.start for item in few)
    return sum(len(batch) for _, batch in read_ranges(admin.settings, few))


def _topics(topology: Topology, application_id: str, known: dict[str, int]) -> list[str]:
    found: dict[str, None] = {}
    for part in topology.subtopologies():
        if part.global_:
            continue
        for node in part.nodes:
            if isinstance(node, SourceNode):
                for topic in node.topics:
                    found[internal_topic(application_id, topic) if topic in topology.internal_topics else topic] = None
                if node.pattern is not None:
                    found |= dict.fromkeys(topic for topic in known if node.pattern.fullmatch(topic))
    return [topic for topic in found if topic in known]
