"""Restore: bring stores up to their changelogs' ends, in batches that bypass the store's buffer of uncommitted writes; position
and rows are written in one store transaction.

The target is the *read_uncommitted* end after fencing, and a changelog counts as restored when the reader's position has passed
it: with an open transaction, the read_committed end lies before records that commit later. A store whose position lies below the
log's start cannot be brought up to date by replay over it (deleted keys would come back), so it is emptied first.

The targets are fixed when a `ChangelogReader` is created, before any task of the instance runs. Once `step` has returned a task, its
stores belong to the caller: its logs are removed from the consumer, because the restore must not read what the task writes to
them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.host.instance.state.changelog_retention import check_whole
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.host.instance.state.environment_attributes import forget_inputs
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, Isolation, make_consumer
from kstreams_repl.host.kafka.failures import translate
from kstreams_repl.host.kafka.group_offsets import assign, is_partition_end, unassign
from kstreams_repl.host.kafka.reading import READ_GROUP, is_passing_for_reader, positions
from kstreams_repl.host.kafka.record_batch import columns
from kstreams_repl.system.errors import TaskCorruptedError
from kstreams_repl.system.types import TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.host.kafka.clients import Message

_BATCH = 50_000
_LOG = logging.getLogger("kstreams_repl.host.instance")
_REPORT_SECONDS = 0.2
_QUIET_SECONDS = 2.0
"""Time without a record after which the restore checks that the logs still exist."""


@dataclass(slots=True)
class RestoreProgress:
    """Progress of a restore, in offsets, so compaction makes `remaining` an upper bound of records."""

    records: int = 0
    remaining: int = 0
    batches: int = 0
    tasks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(records restored, remaining) of each task."""

    def copied(self) -> RestoreProgress:
        """Return a copy."""
        return RestoreProgress(self.records, self.remaining, self.batches, dict(self.tasks))


class ChangelogReader:
    """The restore of several stores over one consumer; only one thread at a time may use it.

    Args:
        limits: end offset of each log that is an input of its task: its committed offset.
        floors: offsets below which logs of windows are no longer needed, as committed (`changelog_retention`).

    Attributes:
        missing: logs whose ends are not reached.
        progress: as of the last step, updated a few times a second.

    Raises:
        TaskCorruptedError: a changelog does not fit its store.
    """

    def __init__(
        self,
        settings: ClientSettings,
        admin: Admin,
        logs: Sequence[tuple[Environment, ChangelogPartition]],
        *,
        limits: Mapping[TopicPartition, int],
        floors: Mapping[TopicPartition, int],
        isolation: Isolation,
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._isolation = isolation
        self._consumer: Any = None
        self.missing: set[TopicPartition] = set()
        self.progress = self._counts = RestoreProgress()
        if not logs:
            return
        by_partition: dict[TopicPartition, list[tuple[Environment, ChangelogPartition]]] = {}
        for environment, log in logs:
            by_partition.setdefault(log.partition, []).append((environment, log))
        ends = admin.end_offsets(by_partition, isolation="read_uncommitted")
        for partition, owners in by_partition.items():
            if any(log.is_source for _, log in owners):
                ends[partition] = min(ends[partition], limits.get(partition, 0))
        firsts = admin.beginning_offsets(by_partition)
        for partition, owners in by_partition.items():
            for environment, log in owners:
                check_whole(environment, log, firsts[partition], floors.get(partition))
        self._starts = starts = {
            partition: min(
                max(
                    environment.positions.get(str(partition), 0) if log.store.persistent else 0,
                    firsts[partition],
                    min(floors.get(partition, 0), ends[partition]),
                )
                for environment, log in owners
            )
            for partition, owners in by_partition.items()
        }
        missing = self.missing = {partition for partition in by_partition if starts[partition] < ends[partition]}
        self._ends = ends
        self._tasks_of = {
            partition: tuple(dict.fromkeys(str(log.task) for _, log in by_partition[partition])) for partition in missing
        }
        self._counts.remaining = sum(ends[partition] - starts[partition] for partition in missing)
        for partition in missing:
            task = self._tasks_of[partition][0]
            done, left = self._counts.tasks.get(task, (0, 0))
            self._counts.tasks[task] = (done, left + ends[partition] - starts[partition])
        self.progress = self._counts.copied()
        if not missing:
            return
        from kstreams_repl.engine.stores.log.changelog_restore import Restorer

        self._ids = {name: topic.id for name, topic in admin.describe_topics({partition.topic for partition in missing}).items()}
        self._restorers = {
            partition: [Restorer(log.store, environment, str(partition)) for environment, log in by_partition[partition]]
            for partition in missing
        }
        self._untouched = {partition: [environment for environment, _ in by_partition[partition]] for partition in missing}
        """Environments whose input offsets are dropped with the first restored record (`forget_inputs`)."""
        self._next_report = self._next_check = 0.0
        self._began = time.monotonic()
        for name, (_, left) in self.progress.tasks.items():
            _LOG.info("restoring up to %d records", left, extra={"task": name})

    @property
    def lacking(self) -> set[str]:
        """Tasks whose stores have not reached their targets."""
        return {name for partition in self.missing for name in self._tasks_of[partition]}

    def run(self, go_on: Callable[[], bool], progress: Callable[[RestoreProgress], None], *, until: float | None = None) -> bool:
        """Restore all stores, or as far as possible until a monotonic time; return False when `go_on` returned False before.

        Args:
            progress: called a few times a second, and at the end.
        """
        if not self.missing:
            return True
        progress(self.progress)
        reported = self.progress
        while self.missing and (until is None or time.monotonic() < until):
            if not go_on():
                return False
            self.step()
            if self.progress is not reported:
                reported = self.progress
                progress(reported)
        return True

    def step(self) -> set[str]:
        """Apply the records that have arrived; return the tasks whose stores are complete and are not touched any more."""
        now = time.monotonic()
        if self._consumer is None:
            self._open()
            self._next_report, self._next_check = now + _REPORT_SECONDS, now + _QUIET_SECONDS
        missing, ends, counts = self.missing, self._ends, self._counts
        messages = self._consumer.consume(_BATCH, 0.02)
        if messages:
            self._next_check = time.monotonic() + _QUIET_SECONDS
        elif time.monotonic() >= self._next_check:
            _check_exist(self._admin, self._ids, missing)
            self._next_check = time.monotonic() + _QUIET_SECONDS
        for partition, batch in columns(messages, self._on_error):
            if partition not in missing:  # fetched before the log was removed from the consumer
                continue
            if batch.offsets[-1] >= ends[partition]:
                batch = batch.before(ends[partition])  # a store's log that is an input continues after its committed offset
            for environment in self._untouched.pop(partition, ()):
                forget_inputs(environment)
            for restorer in self._restorers[partition]:
                restorer.apply(batch)
            counts.records += len(batch)
            counts.batches += 1
            task = self._tasks_of[partition][0]
            done, left = counts.tasks[task]
            counts.tasks[task] = (done + len(batch), left)
        reached = positions(self._consumer, missing)
        over = sorted(partition for partition, position in reached.items() if position >= ends[partition])
        lacked = self.lacking if over else set()
        for partition in over:
            missing.discard(partition)
            for restorer in self._restorers.pop(partition):
                restorer.finish(min(reached[partition], ends[partition]))  # records beyond a limit were cut off and are read again later
        if over and missing:
            unassign(self._consumer, over)
        if not missing or time.monotonic() >= self._next_report:
            self._report(reached)
        if not missing:
            self.close()
        complete = lacked - self.lacking
        for name in complete:
            done, _ = counts.tasks.get(name, (0, 0))
            _LOG.info("restored %d records in %.1f s", done, time.monotonic() - self._began, extra={"task": name})
        return complete

    def close(self) -> None:
        """Close the consumer; the stores keep their rows and position."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open(self) -> None:
        self._consumer = make_consumer(
            self._settings,
            group_id=READ_GROUP,
            isolation=self._isolation,
            role="restore",
            queued_max_messages_kbytes=128 * 1024,
        )
        assign(self._consumer, {partition: self._starts[partition] for partition in self.missing})

    def _report(self, reached: Mapping[TopicPartition, int]) -> None:
        counts = self._counts
        self._next_report = time.monotonic() + _REPORT_SECONDS
        left_of: dict[str, int] = {}
        for partition in self.missing:
            name = self._tasks_of[partition][0]
            left_of[name] = left_of.get(name, 0) + self._ends[partition] - reached.get(partition, self._starts[partition])
        counts.remaining = sum(left_of.values())
        counts.tasks = {name: (done, left_of.get(name, 0)) for name, (done, _) in counts.tasks.items()}
        self.progress = counts.copied()

    def _on_error(self, message: Message, error: object) -> None:
        if not is_partition_end(error) and not is_passing_for_reader(error):
            raise translate(error, "restoring a store", topic=message.topic(), bootstrap_servers=self._settings.bootstrap_servers)


def _check_exist(admin: Admin, ids: Mapping[str, str], missing: set[TopicPartition]) -> None:
    """Raise for a log that was deleted while it was read: the client would wait for the topic to come back."""
    now = admin.describe_topics({partition.topic for partition in missing})
    for partition in missing:
        if partition.topic not in now or now[partition.topic].id != ids.get(partition.topic):
            raise TaskCorruptedError(
                f"the changelog topic {partition.topic} was deleted while a store was restored from it",
                hint="reset the application, so that it rebuilds its state from its input",
                topic=partition.topic,
                partition=partition.partition,
            )
