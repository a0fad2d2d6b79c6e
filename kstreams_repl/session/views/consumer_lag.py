"""Consumer lag of an application, from the broker's offsets.

Committed offsets are read *before* the ends of the topics, so the end of a repartition topic includes what a commit wrote to it:
a lag of 0 means that no unprocessed record is left. Offsets that hold no record (transaction markers) are recognised by reading
them. Records that asynchronous nodes hold are behind the committed offsets, so their number is part of the commit
(`runtime.async_calls.WAITING`); it is read with the offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kstreams_repl.instance.run_progress import waiting_records
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.group_admin import CommittedOffset
from kstreams_repl.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.topology.names import internal_topic
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.topology import Topology
from kstreams_repl.types import TaskId, TopicPartition

FEW = 3
"""Number of offsets at an end that are read to check whether they are records."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """The committed offsets, the number of records after them on each input and repartition partition, and the number before them
    that asynchronous nodes hold: they wait for a call, or for another try.
    """

    committed: Mapping[TopicPartition, CommittedOffset]
    records: Mapping[TopicPartition, int]
    waiting: int = 0


def remaining_records(admin: Admin, application_id: str, topology: Topology) -> int:
    """Return the number of records that are not processed and committed: on the input and repartition topics, and in asynchronous nodes."""
    found = remaining(admin, application_id, topology, exact=False)
    return sum(found.records.values()) + found.waiting


def remaining(admin: Admin, application_id: str, topology: Topology, *, exact: bool = True) -> Remaining:
    """Return the records that are not committed as processed, by partition.

    Args:
        exact: False: read the last offsets of a partition only when nothing else is left, to decide whether all is processed.
    """
    counts = admin.topics()
    tasks = tasks_of(topology, application_id, counts)
    partitions = [at for task in tasks.values() for at in task]
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
    return Remaining(committed, left, sum(waiting_records(tasks, committed).values()))


def tasks_of(topology: Topology, application_id: str, known: Mapping[str, int]) -> dict[TaskId, list[TopicPartition]]:
    """Return the input partitions of each task, of the topics that exist.

    Args:
        known: number of partitions, by topic on the broker.
    """
    found: dict[TaskId, list[TopicPartition]] = {}
    for part in topology.subtopologies():
        if part.global_:
            continue
        sources = [node for node in part.nodes if isinstance(node, SourceNode)]
        for topic in dict.fromkeys(topic for node in sources for topic in topics_of_source(node, topology, application_id, known)):
            for number in range(known.get(topic, 0)):
                found.setdefault(TaskId(part.id, number), []).append(TopicPartition(topic, number))
    return found


def topics_of_source(node: SourceNode, topology: Topology, application_id: str, known: Mapping[str, int]) -> list[str]:
    """Return the topics that one source reads, by their names on the broker."""
    named = [internal_topic(application_id, topic) if topic in topology.internal_topics else topic for topic in node.topics]
    return named if node.pattern is None else [*named, *(topic for topic in known if node.pattern.fullmatch(topic))]
