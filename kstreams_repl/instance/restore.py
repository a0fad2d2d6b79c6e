"""Restore: bring stores up to their changelogs' ends, in batches past the write overlay, position and rows in one store
transaction.

The target is the *read_uncommitted* end after fencing, and a changelog counts as restored when the reader's position has
passed it: beside an open transaction the read_committed end lies before records that commit later. A store whose position
lies below the log's start cannot be brought up to date by replay over it (deleted keys would come back), so it is emptied
first.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kstreams_repl.errors import TaskCorruptedError
from kstreams_repl.instance.local_state import Changelog, forget_inputs
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings, Isolation, make_consumer
from kstreams_repl.kafka.failures import translate
from kstreams_repl.kafka.group_offsets import assign, is_partition_end, is_passing
from kstreams_repl.kafka.reading import READ_GROUP, positions
from kstreams_repl.kafka.record_batch import columns
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.types import RecordBatch, TopicPartition

_BATCH = 50_000
_REPORT_SECONDS = 0.2
_QUIET_SECONDS = 2.0
"""Without a record, before it is asked whether the logs are still there."""


@dataclass(slots=True)
class RestoreProgress:
    """How far a restore is; offsets, so compaction makes `remaining` an upper bound of records."""

    records: int = 0
    remaining: int = 0
    batches: int = 0
    tasks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(records restored, remaining) of each task."""


def restore_changelogs(
    settings: ClientSettings,
    admin: Admin,
    logs: Sequence[tuple[Environment, Changelog]],
    *,
    limits: Mapping[TopicPartition, int],
    isolation: Isolation,
    go_on: Callable[[], bool],
    progress: Callable[[RestoreProgress], None] | None = None,
) -> bool:
    """Restore all of them over one consumer; False when `go_on` said no before the end.

    Args:
        limits: where a log that is an input of its task ends: its committed offset.

    Raises:
        TaskCorruptedError: a changelog does not fit its store.
    """
    if not logs:
        return True
    by_partition: dict[TopicPartition, list[tuple[Environment, Changelog]]] = {}
    for environment, log in logs:
        by_partition.setdefault(log.partition, []).append((environment, log))
    ends = admin.end_offsets(by_partition, isolation="read_uncommitted")
    for at, owners in by_partition.items():
        if any(log.is_source for _, log in owners):
            ends[at] = min(ends[at], limits.get(at, 0))
    firsts = admin.beginning_offsets(by_partition)
    for at, owners in by_partition.items():
        for environment, log in owners:
            _check_whole(environment, log, firsts[at])
    starts = {
        at: min(
            max(environment.positions.get(str(at), 0) if log.store.persistent else 0, firsts[at]) for environment, log in owners
        )
        for at, owners in by_partition.items()
    }
    missing = {at for at in by_partition if starts[at] < ends[at]}
    task_of = {at: str(owners[0][1].task) for at, owners in by_partition.items()}
    told = RestoreProgress(remaining=sum(ends[at] - starts[at] for at in missing))
    for at in missing:
        told.tasks[task_of[at]] = (0, told.tasks.get(task_of[at], (0, 0))[1] + ends[at] - starts[at])
    if not missing:
        return True
    from kstreams_repl.stores.restore import Restorer

    ids = {name: topic.id for name, topic in admin.describe_topics({at.topic for at in missing}).items()}
    appliers = {at: [Restorer(log.store, environment, str(at)) for environment, log in by_partition[at]] for at in missing}
    if progress is not None:
        progress(told)
    consumer = make_consumer(
        settings, group_id=READ_GROUP, isolation=isolation, enable_partition_eof=True, queued_max_messages_kbytes=128 * 1024
    )
    try:
        assign(consumer, {at: starts[at] for at in missing})
        owners_of = {at: [environment for environment, _ in by_partition[at]] for at in missing}
        still = partial(_check_there, admin, ids)
        return _read(consumer, settings, missing, ends, appliers, owners_of, go_on, progress, told, task_of, still)
    finally:
        consumer.close()


def _check_whole(environment: Environment, log: Changelog, first: int) -> None:
    """Refuse to build a store from a log that somebody has cut: what lay before is gone."""
    position = environment.positions.get(str(log.partition), 0) if log.store.persistent else 0
    if log.keeps_all and position < first:
        raise TaskCorruptedError(
            f"the changelog {log.partition} of store {log.store.name} begins at offset {first}: records before it were deleted, and "
            f"{'no local copy has them' if not position else f'the local copy ends at {position}'}",
            hint="reset the application, so that it builds its state anew from its input; and look who deletes records of this topic "
            "(its cleanup.policy must be compact)",
            store=log.store.name,
            topic=log.partition.topic,
            partition=log.partition.partition,
            task=str(log.task),
        )


def _read(
    consumer: Any,
    settings: ClientSettings,
    missing: set[TopicPartition],
    ends: dict[TopicPartition, int],
    appliers: dict[TopicPartition, list[Any]],
    owners_of: dict[TopicPartition, list[Environment]],
    go_on: Callable[[], bool],
    progress: Callable[[RestoreProgress], None] | None,
    told: RestoreProgress,
    task_of: Mapping[TopicPartition, str],
    check_there: Callable[[set[TopicPartition]], None],
) -> bool:
    def on_error(message: Any, error: Any) -> None:
        if not is_partition_end(error) and not is_passing(error):
            raise translate(error, "restoring a store", topic=message.topic(), bootstrap_servers=settings.bootstrap_servers)

    next_report = time.monotonic() + _REPORT_SECONDS
    next_look = time.monotonic() + _QUIET_SECONDS
    while missing:
        if not go_on():
            return False
        messages = consumer.consume(_BATCH, 0.02)
        if messages:
            next_look = time.monotonic() + _QUIET_SECONDS
        elif time.monotonic() >= next_look:
            check_there(missing)
            next_look = time.monotonic() + _QUIET_SECONDS
        for at, batch in columns(messages, on_error):
            if batch.offsets[-1] >= ends[at]:
                batch = _before(batch, ends[at])
            for environment in owners_of.pop(at, ()):
                forget_inputs(environment)
            for restorer in appliers[at]:
                restorer.apply(batch)
            told.records += len(batch)
            told.batches += 1
            done, left = told.tasks[task_of[at]]
            told.tasks[task_of[at]] = (done + len(batch), left)
        reached = positions(consumer, missing)
        for at, position in reached.items():
            if position >= ends[at]:
                missing.discard(at)
                for restorer in appliers[at]:
                    restorer.finish(position)
        if progress is not None and time.monotonic() >= next_report:
            next_report = time.monotonic() + _REPORT_SECONDS
            left_of: dict[str, int] = {}
            for at in missing:
                left_of[task_of[at]] = left_of.get(task_of[at], 0) + ends[at] - reached.get(at, 0)
            told.remaining = sum(left_of.values())
            told.tasks = {name: (done, left_of.get(name, 0)) for name, (done, _) in told.tasks.items()}
            progress(told)
    if progress is not None:
        told.remaining = 0
        told.tasks = {name: (done, 0) for name, (done, _) in told.tasks.items()}
        progress(told)
    return True


def _check_there(admin: Admin, ids: Mapping[str, str], missing: set[TopicPartition]) -> None:
    """Raise for a log that was deleted while it was read: the client waits for such a topic to come back."""
    now = admin.describe_topics({at.topic for at in missing})
    for at in missing:
        if at.topic not in now or now[at.topic].id != ids.get(at.topic):
            raise TaskCorruptedError(
                f"the changelog {at.topic} was deleted while a store was restored from it",
                hint="reset the application, so that it builds its state anew from its input",
                topic=at.topic,
                partition=at.partition,
            )


def _before(batch: RecordBatch, end: int) -> RecordBatch:
    """The records below an offset: an input that is its store's log goes on after the committed one."""
    keep = bisect_left(batch.offsets, end)
    headers = None if batch.headers is None else batch.headers[:keep]
    return RecordBatch(
        batch.keys[:keep], batch.values[:keep], batch.timestamps[:keep], batch.offsets[:keep], headers, batch.topic
    )
