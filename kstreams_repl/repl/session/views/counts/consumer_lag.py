"""Consumer lag of an application, from the broker's offsets.

Committed offsets are read *before* the ends of the topics, so the end of a repartition topic includes what a commit wrote to it:
a lag of 0 means that no unprocessed record is left. Offsets that hold no record (transaction markers, aborted records) are
recognised by reading them (`host.kafka.record_counter`). Records that asynchronous nodes hold are behind the committed offsets, so
their number is part of the commit (`engine.runtime.metadata_names.WAITING`); it is read with the offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.reports.run_progress import waiting_records
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.host.kafka.reading import FEW_OFFSETS, OffsetRange
from kstreams_repl.host.kafka.record_counter import RecordCounter
from kstreams_repl.system.types import TaskId, TopicPartition

FEW = 100
"""Number of offsets that are read to decide whether nothing is left, when that is asked many times a second."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """The committed offsets, the number of records after them on each input and repartition partition, and the number before them
    that asynchronous nodes hold: they wait for a call, or for another try.
    """

    committed: Mapping[TopicPartition, CommittedOffset]
    records: Mapping[TopicPartition, int]
    waiting: int = 0

    @property
    def total(self) -> int:
        """Records that are not processed and committed."""
        return sum(self.records.values()) + self.waiting


def remaining(admin: Admin, counter: RecordCounter, application_id: str, topology: Topology, *, most: int = FEW_OFFSETS) -> Remaining:
    """Return the records that are not committed as processed, by partition.

    Args:
        most: number of offsets that are read to count their records; partitions with more count as if each offset held a record.
    """
    counts = admin.topics()
    tasks = tasks_of(topology, application_id, counts)
    partitions = [at for task in tasks.values() for at in task]
    committed = admin.committed_offsets(application_id, partitions, stable=False)
    ends = admin.end_offsets(partitions)
    starts = admin.beginning_offsets(partitions)
    left = [OffsetRange(at, max(starts[at], committed[at].offset if at in committed else 0), ends[at]) for at in partitions]
    return Remaining(committed, counter.behind(admin.settings, left, most=most), sum(waiting_records(tasks, committed).values()))


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
