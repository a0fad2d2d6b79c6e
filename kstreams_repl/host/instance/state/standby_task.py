"""One standby task: the stores of another instance's task on this executor's disk, up to date from their changelogs.

Its environment is like an active task's, with its position inside each store transaction; a promoted copy is opened in its
directory and reads only the missing records. A task is either active or standby: the new owner writes its token into the
environment, and the standby task's next write, which checks the token inside its transaction, fails. A standby task never takes an
environment from a running task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.commit.offset_metadata import decode
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.layers.row_format import keep_row_format
from kstreams_repl.engine.stores.log.changelog_restore import Restorer
from kstreams_repl.host.instance.state.changelog_retention import check_whole, floors_of
from kstreams_repl.host.instance.state.changelogs import ChangelogBounds, ChangelogPartition, changelogs_of
from kstreams_repl.host.instance.state.environment_attributes import (
    forget_inputs,
    remember_topics,
    set_as_of,
    set_missing_as_of,
    written_at,
)
from kstreams_repl.host.instance.state.owner_token import is_held
from kstreams_repl.host.instance.state.state_cleanup import discard_unused, is_in_use
from kstreams_repl.host.instance.state.state_manager import fresh_environment, open_lmdb, why_not_trusted
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.system.errors import KStreamsError, StateStoreError, TaskCorruptedError, TaskMigratedError
from kstreams_repl.system.types import RecordBatch, TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment

_LOG = logging.getLogger("kstreams_repl.host.instance")
_AS_OF_SECONDS = 60.0
"""How often a standby task that is up to date records that time."""


class StandbyTask:
    """One open standby task.

    Attributes:
        reached: the next offset to read of each changelog.
    """

    def __init__(
        self, logs: list[ChangelogPartition], environment: Environment, firsts: Mapping[TopicPartition, int], *, dated: bool
    ) -> None:
        self.logs = logs
        self.environment = environment
        self.reached = {
            log.partition: max(environment.positions.get(str(log.partition), 0), firsts[log.partition]) for log in logs
        }
        self._restorers: dict[TopicPartition, list[Restorer]] = {}
        for log in logs:
            self._restorers.setdefault(log.partition, []).append(Restorer(log.store, environment, str(log.partition)))
        self._dated = dated
        """Whether all stores are followed, so that the environment can be dated."""
        self._goal: tuple[float, dict[TopicPartition, int]] | None = None
        """(when they were requested, changelog ends); a standby task that has reached them is up to date as of that time."""
        self._as_of = 0.0

    def apply(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """Write a batch of one of its changelogs.

        Raises:
            Exception: its task is active here now, the disk failed, or a record does not fit.
        """
        for restorer in self._restorers[partition]:
            restorer.apply(batch)
        self.reached[partition] = batch.offsets[-1] + 1

    def advance(self, position: int, partition: TopicPartition) -> None:
        """Save a position that moved past transaction markers and compacted offsets."""
        for restorer in self._restorers[partition]:
            with suppress(TaskMigratedError, StateStoreError):  # the next batch raises it again
                restorer.finish(position)
        self.reached[partition] = position

    def note_as_of(self, asked: float, ends: Mapping[TopicPartition, int]) -> None:
        """Record, at intervals, the time as of which it is up to date with its changelogs.

        Args:
            asked: when the ends were requested (seconds since 1970).
        """
        if self._goal is not None and all(self.reached[partition] >= end for partition, end in self._goal[1].items()):
            if self._dated and self._goal[0] - self._as_of >= _AS_OF_SECONDS:
                self._as_of = self._goal[0]
                with suppress(TaskMigratedError, StateStoreError):  # the next batch raises it again
                    set_as_of(self.environment, self._as_of)
                    self.environment.commit({}, self.environment.commit_id)
            self._goal = None
        if self._goal is None:
            self._goal = asked, {partition: ends[partition] for partition in self.reached if partition in ends}


def open_standby_task(
    spec: TaskSpec,
    path: Path,
    token: str,
    opened: Environment | None,
    bounds: ChangelogBounds,
    *,
    config: StreamsConfig,
    committed: Callable[[], Mapping[TopicPartition, CommittedOffset]],
) -> StandbyTask | None:
    """Open a standby task from disk, or create one; return None while its task is active on this executor.

    Args:
        opened: its environment, if this process has it open.
        committed: returns the group's committed offsets of the task's inputs.

    Raises:
        TaskCorruptedError: the log no longer begins with the store's first record.
    """
    environment = _own(path, token, opened)
    if environment is None:
        return None
    logs = standby_logs(spec)
    try:
        why = why_not_trusted(environment, logs, bounds, config=config, committed=committed)
        if why is not None:
            _LOG.warning("rebuilding the standby task from its changelogs: %s", why, extra={"task": str(spec.task_id)})
            environment = fresh_environment(environment, token, in_force=lambda: not is_in_use(path))
        floors: dict[TopicPartition, int] = {}
        if any(log.is_timed and bounds.firsts[log.partition] > 0 for log in logs):  # committed before the records were deleted
            floors = floors_of(logs, [decode(known.metadata) for known in committed().values()], bounds.topic_ids)
        for log in logs:  # a later owner of the copy would take a partial log for the whole
            check_whole(environment, log, bounds.firsts[log.partition], floors.get(log.partition))
        for log in logs:
            keep_row_format(environment, log.store)
        remember_topics(environment, logs, bounds.topic_ids)
        dated = not any(log.is_source for log in changelogs_of(spec))  # a store whose log is an input is not followed
        task = StandbyTask(logs, environment, bounds.firsts, dated=dated)
        forget_inputs(environment)
        return task
    except BaseException:
        with suppress(KStreamsError):
            environment.close()
        raise


def standby_logs(spec: TaskSpec) -> list[ChangelogPartition]:
    """Return the changelogs that a standby task follows. A store whose log is an input topic has no copies: that topic is no
    longer than the store needs.
    """
    return [log for log in changelogs_of(spec) if log.store.persistent and not log.is_source]


def _own(path: Path, token: str, opened: Any) -> Environment | None:
    """Take the task's environment on this executor, unless the task is active here."""
    environment = opened
    written = written_at(path)
    try:
        if environment is not None:
            environment.recycle()
        elif _is_active_here(path):
            return None
        else:
            environment = _open(path)
        environment.take_ownership(token, unless=is_held)
        set_missing_as_of(environment, written)
        owned: Environment = environment
        return owned
    except BaseException as error:
        if environment is not None:
            with suppress(KStreamsError):
                environment.close()
        if isinstance(error, TaskMigratedError):
            return None
        raise


def _open(path: Path) -> LmdbEnvironment:
    try:
        return open_lmdb(path)
    except TaskCorruptedError as error:
        if not discard_unused(path):
            raise
        _LOG.warning("recreating a standby task: %s", error)
        return open_lmdb(path)


def _is_active_here(path: Path) -> bool:
    """Return whether a running task holds an environment, without opening it, which would read all of its pages."""
    from kstreams_repl.engine.stores.engine.lmdb import is_open_here
    from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot

    if is_open_here(path):
        return True
    if not is_in_use(path):
        return False
    try:
        with LmdbSnapshot(path) as snapshot:
            snapshot.meta()
            with snapshot.transaction() as view:
                owner = view.owner
                return owner is not None and is_held(owner, view.closed_in_order)
    except KStreamsError:  # opening the environment raises it again
        return False
