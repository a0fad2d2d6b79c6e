"""Step 4 of the take-over: where each input partition begins, by committed offsets, the stores' own commits, or the reset policy."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, STREAM_TIME, OffsetMetadata, decode
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.topology.bounds.offset_reset import duration_ms
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.instance import wall_clock
from kstreams_repl.host.instance.state.changelog_retention import FLOOR
from kstreams_repl.host.instance.state.environment_attributes import INPUT, RECREATED
from kstreams_repl.host.instance.state.expired_offsets import check_expired_offsets
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.system.errors import InputOffsetError, TaskCorruptedError
from kstreams_repl.system.types import TopicPartition

_LOG = logging.getLogger("kstreams_repl.host.instance")


@dataclass(frozen=True, slots=True)
class StartOffset:
    """Where one input partition begins, and the metadata committed with that offset.

    Attributes:
        reset: the offset is not the committed one, which the broker no longer has; the next commit must include it.
        skipped: how many offsets between the committed one and this were deleted, or are passed over, unread.
    """

    offset: int
    metadata: OffsetMetadata
    reset: bool = False
    skipped: int = 0


def restore_progress(task: StreamTask, starts: Mapping[TopicPartition, StartOffset]) -> None:
    """Set a task's times and processor metadata to those committed with its start offsets; call it before `StreamTask.initialize`."""
    for partition in task.spec.partitions:
        metadata = starts[partition].metadata
        task.set_partition_time(partition, metadata.partition_time, metadata.stream_time)
        task.set_metadata(
            {
                name: number
                for name, number in metadata.entries.items()
                if name not in (COMMIT_ID, STREAM_TIME) and not name.startswith(FLOOR)
            }
        )


def start_offsets(
    plan: ApplicationPlan, specs: Sequence[TaskSpec], environments: Mapping[str, Environment], admin: Admin
) -> dict[TopicPartition, StartOffset]:
    """Return the start of each input partition. A missing offset is never reset for a store that has content.

    Raises:
        TaskCorruptedError: a store has content, but the offset of its input is lost.
        InputOffsetError: there is no usable offset, and ``auto.offset.reset`` is 'none'.
    """
    by_partition = {partition: spec for spec in specs for partition in spec.partitions}
    committed = admin.committed_offsets(plan.application_id, list(by_partition))
    for spec in specs:
        check_expired_offsets(plan, spec, environments[str(spec.task_id)], committed, admin)
    first = admin.beginning_offsets(list(by_partition))
    last = admin.end_offsets(list(by_partition), isolation="read_uncommitted")
    starts = {}
    for partition, spec in by_partition.items():
        last_commit = committed.get(partition)
        environment = environments[str(spec.task_id)]
        if last_commit is None:
            last_commit = _in_store(environment, partition)
        if last_commit is not None:
            offset = max(last_commit.offset, first[partition]) if _may_skip(spec, partition) else last_commit.offset
            in_log = first[partition] <= offset <= last[partition]
            if not in_log:
                offset = _after_loss(plan, spec, partition, offset, first[partition], last[partition], admin)
            skipped = 0 if in_log else max(0, offset - last_commit.offset)
            starts[partition] = StartOffset(offset, decode(last_commit.metadata), reset=not in_log, skipped=skipped)
        elif environment.commit_id >= 0 and not _is_new(environment, partition) and any(s.persistent for s in spec.subtopology.stores):
            raise TaskCorruptedError(
                f"task {spec.task_id} has local state of commit {environment.commit_id}, but {partition} has no committed offset",
                hint="reset the application, so that state and offsets begin together",
                path=environment.path,
                topic=partition.topic,
                partition=partition.partition,
            )
        else:
            recreated = environment.positions.get(f"{INPUT}{partition}") == RECREATED
            offset = _beginning(plan, partition, _reset_policy(plan, spec, partition), first[partition], last[partition], admin)
            if plan.stops is not None:  # "latest" was looked up when the run began
                offset = max(first[partition], min(offset, plan.stops.get(partition, offset)))
            starts[partition] = StartOffset(offset, OffsetMetadata(), reset=recreated)
    return starts


def _in_store(environment: Environment, partition: TopicPartition) -> CommittedOffset | None:
    """Return the input offset in the store's own commit: group offsets expire, the store's do not."""
    offset = environment.positions.get(f"{INPUT}{partition}", -1)
    return None if offset < 0 else CommittedOffset(offset)


def _is_new(environment: Environment, partition: TopicPartition) -> bool:
    """Return whether the task's last commit knew its inputs but not this one: it was added since, or its topic was recreated."""
    inputs = {name: offset for name, offset in environment.positions.items() if name.startswith(INPUT)}
    return bool(inputs) and inputs.get(f"{INPUT}{partition}", RECREATED) == RECREATED


def _may_skip(spec: TaskSpec, partition: TopicPartition) -> bool:
    """Return whether missing offsets may be skipped: repartition topics are purged up to the committed offset, so no record is
    lost.
    """
    prefix = f"{spec.application_id}-"
    return partition.topic.startswith(prefix) and partition.topic.removeprefix(prefix) in spec.internal_topics


def _beginning(plan: ApplicationPlan, partition: TopicPartition, policy: str, first: int, last: int, admin: Admin) -> int:
    """Return the offset at which a reset policy begins."""
    if policy == "earliest":
        return first
    ago = duration_ms(policy)
    latest = _latest(plan, partition, last, admin)  # before the lookup by time: every later record has an offset at or above it
    offset = None if ago is None else admin.offsets_for_time({partition: max(0, wall_clock() - ago)})[partition]
    return latest if offset is None else offset


def _latest(plan: ApplicationPlan, partition: TopicPartition, last: int, admin: Admin) -> int:
    """Return the offset of new records; under exactly once it lies before records of open transactions, which no consumer has
    read.
    """
    return admin.end_offsets([partition], isolation="read_committed")[partition] if plan.config.exactly_once else last


def _after_loss(
    plan: ApplicationPlan, spec: TaskSpec, partition: TopicPartition, committed: int, first: int, last: int, admin: Admin
) -> int:
    """Return where to continue when the broker no longer has the committed offset, by the source's reset policy; log a warning.
    """
    policy = _reset_policy(plan, spec, partition, committed, first, last)
    offset = _beginning(plan, partition, policy, first, last, admin)
    lost = f"{first - committed} unprocessed offsets were deleted" if committed < first else "the log is shorter than before"
    _LOG.warning(
        "%s: the committed offset %d is outside the log, which has offsets %d to %d (%s); continuing at %d (auto.offset.reset: %s)",
        partition, committed, first, last, lost, offset, policy,
    )  # fmt: skip
    return offset


def _reset_policy(
    plan: ApplicationPlan, spec: TaskSpec, partition: TopicPartition, committed: int | None = None, first: int = 0, last: int = 0
) -> str:
    name = spec.partitions[partition]
    node = next(node for node in spec.subtopology.nodes if node.name == name)
    policy = (node.offset_reset if isinstance(node, SourceNode) else None) or plan.config["auto.offset.reset"]
    if _may_skip(spec, partition):
        return "earliest"
    if policy == "none":
        problem = (
            "no offset is committed for it"
            if committed is None
            else f"the committed offset {committed} is outside the log, which has offsets {first} to {last}"
        )
        raise InputOffsetError(
            f"cannot start reading {partition}: {problem}, and auto.offset.reset is 'none'",
            hint="commit an offset for the group, or set auto.offset.reset to 'earliest' or 'latest'",
            topic=partition.topic,
            partition=partition.partition,
            offset=committed,
        )
    return str(policy)
