"""Inputs without a committed offset, exactly once: when the stores of their task may say where to go on, and when nobody can.

The group's offsets expire, are deleted by hand, and go with a topic that is deleted. A store's own commit knows them too, but it may be one
commit or some behind the group's (a crash before step 5, commits that were put off, a snapshot), and the restore brings its rows up to the
changelog's end all the same: input from there on would be counted twice. The same goes for rows that come from the changelog alone, beside
input that is read from its beginning. Both show as committed records in a changelog beyond what is known here.

At least once has nothing to compare: records of a commit that never came stand in its changelogs, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from kstreams_repl.errors import TaskCorruptedError
from kstreams_repl.instance.local_state import INPUT, MADE_ANEW, changelogs_of
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.kafka.admin import Admin, CommittedOffset
from kstreams_repl.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.runtime.task import TaskSpec
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.types import TopicPartition


def refuse_forgotten_inputs(
    plan: ApplicationPlan,
    spec: TaskSpec,
    environment: Environment,
    committed: Mapping[TopicPartition, CommittedOffset],
    admin: Admin,
) -> None:
    """See that a task whose inputs have no committed offset does not read again what its changelogs hold the effects of.

    Raises:
        TaskCorruptedError: it would.
    """
    lacking = [at for at in spec.partitions if at not in committed]
    if not lacking or not plan.config.exactly_once:
        return
    own = [log for log in changelogs_of(spec) if not log.is_source]
    kept = [environment.positions.get(f"{INPUT}{at}", -1) for at in lacking]
    if any(offset >= 0 for offset in kept):
        positions = {log.partition: environment.positions.get(str(log.partition)) for log in own if log.store.persistent}
        what = f"is at commit {environment.commit_id}, behind its changelogs"
        went_on = _has_records(admin, {at: position for at, position in positions.items() if position is not None})
    elif environment.commit_id < 0 and len(lacking) == len(spec.partitions) and MADE_ANEW not in kept:
        what = "is in its changelogs alone"
        went_on = _has_records(admin, {log.partition: 0 for log in own}) and not admin.committed_offsets(plan.application_id)
    else:
        return
    if went_on:
        at = lacking[0]
        raise TaskCorruptedError(
            f"the state of task {spec.task_id} {what}, and the group {plan.application_id} has no committed offset of {at} any more: "
            "where its input goes on is not known",
            hint="commit offsets for the group where its input is to go on (kafka-consumer-groups --reset-offsets), "
            "or reset the application, so that state and offsets begin together",
            path=environment.path,
            topic=at.topic,
            partition=at.partition,
            task=str(spec.task_id),
        )


def _has_records(admin: Admin, starts: Mapping[TopicPartition, int]) -> bool:
    """Whether any partition has a committed record at or after that offset."""
    if not starts:
        return False
    firsts = admin.beginning_offsets(starts)
    ends = admin.end_offsets(starts, isolation="read_uncommitted")
    ranges = [OffsetRange(at, max(start, firsts[at]), ends[at]) for at, start in starts.items()]
    if not any(each.start < each.end for each in ranges):
        return False
    with closing(read_ranges(admin.settings, ranges)) as found:  # type: ignore[type-var]
        return next(found, None) is not None
