"""How far a bounded run is: by the committed offsets with their metadata and the ends of the intermediate topics, read in this order
(`host.batch.completion`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from kstreams_repl.engine.commit.offset_metadata import decode
from kstreams_repl.engine.runtime.metadata_names import BEHIND, WAITING, WINDOWS_CLOSED
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.system.types import TaskId, TopicPartition


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a bounded run is.

    Attributes:
        left: offsets to go, by partition that is not finished. Of intermediate topics: as far as they have been written.
        partitions: number of all input partitions.
        waiting: records in asynchronous nodes, by task that has any.
        open_windows: tasks that are to close their windows at the end of the run, and have not.
        intermediate: the input partitions that the application writes itself.
        unwritten: commits with rows that their tables do not have, by task that has any.
    """

    left: Mapping[TopicPartition, int]
    partitions: int
    waiting: Mapping[TaskId, int] = field(default_factory=dict)
    open_windows: Set[TaskId] = frozenset()
    unwritten: Mapping[TaskId, int] = field(default_factory=dict)
    intermediate: Set[TopicPartition] = frozenset()

    @property
    def is_processed(self) -> bool:
        """Whether every partition is finished, no record waits in an asynchronous node, and no window is to be closed."""
        return not self.left and not self.waiting and not self.open_windows

    @property
    def is_complete(self) -> bool:
        """Whether everything is processed, and the tables have all rows."""
        return self.is_processed and not self.unwritten

    @property
    def done(self) -> int:
        """Number of finished partitions."""
        return self.partitions - len(self.left)

    @property
    def offsets_left(self) -> int:
        """Offsets to go, over all partitions."""
        return sum(self.left.values())

    @property
    def input_left(self) -> int:
        """Offsets to go of the input alone: intermediate topics grow while the run goes on."""
        return sum(offsets for partition, offsets in self.left.items() if partition not in self.intermediate)


def progress_of(
    committed: Mapping[TopicPartition, int],
    stops: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    waiting: Mapping[TaskId, int] | None = None,
) -> RunProgress:
    """Return the progress.

    Args:
        committed: read before `ends`; a partition without a committed offset is not finished.
        stops: of bounded partitions.
        ends: of intermediate ones.
        waiting: of the same read as `committed` (`waiting_records`).

    Example:
        >>> a, b = TopicPartition("flights", 0), TopicPartition("app-by-origin-repartition", 0)
        >>> progress_of({a: 120, b: 7}, {a: 120}, {b: 9}).left
        {TopicPartition(topic='app-by-origin-repartition', partition=0): 2}
    """
    limits = {**stops, **ends}
    left = {partition: max(1, to - committed.get(partition, 0)) for partition, to in limits.items() if committed.get(partition, -1) < to}
    return RunProgress(left, len(limits), waiting or {}, intermediate=ends.keys())


def progress_since(admin: Admin, plan: ApplicationPlan, committed: Mapping[TopicPartition, CommittedOffset]) -> RunProgress:
    """Return the progress of a bounded run, given the offsets that were committed before the call."""
    stops = plan.stops or {}
    intermediate = [at for at in input_partitions(plan) if at not in stops]
    ends = admin.end_offsets(intermediate, isolation="read_uncommitted")
    tasks = {spec.task_id: tuple(spec.partitions) for specs in plan.assignment for spec in specs}
    still_open = frozenset() if plan.closes is None else tasks.keys() - closed_tasks(tasks, committed, plan.closes)
    processed = progress_of({at: found.offset for at, found in committed.items()}, stops, ends, waiting_records(tasks, committed))
    return replace(processed, open_windows=still_open, unwritten=unwritten_commits(tasks, committed))


def input_partitions(plan: ApplicationPlan) -> list[TopicPartition]:
    """Return the input partitions of all tasks."""
    return sorted({partition for specs in plan.assignment for spec in specs for partition in spec.partitions})


def waiting_records(
    tasks: Mapping[TaskId, Iterable[TopicPartition]], committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[TaskId, int]:
    """Return how many records wait in the asynchronous nodes of each task that has any, as of its last commit.

    Args:
        tasks: with their input partitions.
    """
    return _counts(WAITING, tasks, committed)


def unwritten_commits(
    tasks: Mapping[TaskId, Iterable[TopicPartition]], committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[TaskId, int]:
    """Return how many commits have rows that their tables do not have, of each task that has any.

    Args:
        tasks: with their input partitions.
    """
    return _counts(BEHIND, tasks, committed)


def _counts(
    name: str, tasks: Mapping[TaskId, Iterable[TopicPartition]], committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[TaskId, int]:
    counts = {
        task: max((decode(committed[at].metadata).entries.get(name, 0) for at in partitions if at in committed), default=0)
        for task, partitions in tasks.items()
    }
    return {task: count for task, count in counts.items() if count > 0}


def closed_tasks(
    tasks: Mapping[TaskId, Iterable[TopicPartition]], committed: Mapping[TopicPartition, CommittedOffset], run: int
) -> set[TaskId]:
    """Return the tasks, of those given with their input partitions, that have closed their windows at the end of a run."""

    def has_closed(partition: TopicPartition) -> bool:
        return partition in committed and decode(committed[partition].metadata).entries.get(WINDOWS_CLOSED) == run

    return {task for task, partitions in tasks.items() if any(map(has_closed, partitions))}
