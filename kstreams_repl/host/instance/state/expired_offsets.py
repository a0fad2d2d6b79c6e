"""Inputs without a committed offset under exactly once: when the stores of their task may supply the offset, and when it is
unknown.

The group's offsets expire, may be deleted by hand, and are deleted with their topic. A store's own commit holds them too, but it
may be one or more commits behind the group's (a crash before step 5, postponed store commits, a snapshot), while the restore
brings its rows up to the changelog's end: input read from that offset would be counted twice. The same holds for rows restored
from the changelog alone when the input is read from its beginning. In both cases the changelog has committed records beyond the
position known here.

Under at least once there is nothing to compare: its changelogs also hold records of commits that did not complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.state.changelogs import changelogs_of
from kstreams_repl.host.instance.state.environment_attributes import INPUT, RECREATED
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.host.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.system.errors import TaskCorruptedError
from kstreams_repl.system.types import TopicPartition


def check_expired_offsets(
    plan: ApplicationPlan,
    spec: TaskSpec,
    environment: Environment,
    committed: Mapping[TopicPartition, CommittedOffset],
    admin: Admin,
) -> None:
    """Check that a task whose inputs have no committed offset does not reprocess input whose effects are in its changelogs.

    Raises:
        TaskCorruptedError: it would.
    """
    lacking = [partition for partition in spec.partitions if partition not in committed]
    if not lacking or not plan.config.exactly_once:
        return
    own = [log for log in changelogs_of(spec) if not log.is_source]
    kept = [environment.positions.get(f"{INPUT}{partition}", -1) for partition in lacking]
    if any(offset >= 0 for offset in kept):
        positions = {log.partition: environment.positions.get(str(log.partition)) for log in own if log.store.persistent}
        state = f"the local stores of task {spec.task_id} are at commit {environment.commit_id}, behind their changelogs"
        advanced = _has_records(admin, {log: position for log, position in positions.items() if position is not None})
    elif environment.commit_id < 0 and len(lacking) == len(spec.partitions) and RECREATED not in kept:
        state = f"task {spec.task_id} has no local stores, only changelogs with records"
        advanced = _has_records(admin, {log.partition: 0 for log in own}) and not admin.committed_offsets(plan.application_id)
    else:
        return
    if advanced:
        partition = lacking[0]
        raise TaskCorruptedError(
            f"the position of task {spec.task_id} in its input is unknown: the group {plan.application_id} has no committed offset of "
            f"{partition}, and {state}",
            hint="commit the offsets at which the group should continue (kafka-consumer-groups --reset-offsets), or reset the application, "
            "so that state and offsets begin together",
            path=environment.path,
            topic=partition.topic,
            partition=partition.partition,
            task=str(spec.task_id),
        )


def _has_records(admin: Admin, starts: Mapping[TopicPartition, int]) -> bool:
    """Return whether any partition has a committed record at or after the given offset."""
    if not starts:
        return False
    firsts = admin.beginning_offsets(starts)
    ends = admin.end_offsets(starts, isolation="read_uncommitted")
    ranges = [OffsetRange(log, max(start, firsts[log]), ends[log]) for log, start in starts.items()]
    if not any(each.start < each.end for each in ranges):
        return False
    with closing(read_ranges(admin.settings, ranges)) as found:  # type: ignore[type-var]
        return next(found, None) is not None
