"""Standby copies: an instance keeps stores of other instances' tasks on its own disk, up to date from their changelogs.

One thread and one consumer per instance (the restore thread of the threading refactor). A copy is an environment like an active
task's, with its position inside each store transaction; a promoted copy is opened in its directory and reads only the missing
records. A task is either active or a copy: the new owner writes its token into the environment, and the copy's next write, which
checks the token inside its transaction, fails and the copy is closed. A copy never takes an environment from a running task.

A store whose log is an input topic has no copies: that topic is no longer than the store needs.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kstreams_repl.commit.offset_metadata import decode
from kstreams_repl.errors import KStreamsError, StateStoreError, TaskCorruptedError, TaskMigratedError
from kstreams_repl.instance.application_plan import ApplicationPlan
from kstreams_repl.instance.state.changelog_retention import check_whole, floors_of
from kstreams_repl.instance.state.state_cleanup import discard_unused, is_in_use, opening
from kstreams_repl.instance.state.state_directory import task_directory
from kstreams_repl.instance.state.state_manager import (
    Changelog,
    changelogs_of,
    date_former,
    forget_inputs,
    fresh_environment,
    is_held,
    note_time,
    owner_token,
    remember_topics,
    topic_ids_of,
    why_not_trusted,
    written_at,
)
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import make_consumer
from kstreams_repl.kafka.failures import translate
from kstreams_repl.kafka.group_offsets import assign, is_partition_end, is_passing
from kstreams_repl.kafka.reading import READ_GROUP, positions
from kstreams_repl.kafka.record_batch import columns
from kstreams_repl.log_context import carried
from kstreams_repl.runtime.task import TaskSpec
from kstreams_repl.stores.changelog_restore import Restorer
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.types import RecordBatch, TopicPartition

_LOG = logging.getLogger("kstreams_repl.instance")
_BATCH = 10_000
_POLL_SECONDS = 0.1
_LOOK_SECONDS = 1.0
"""Interval between requests for end and committed offsets, and between attempts to open environments that were in use."""
_LONGEST_WAIT_SECONDS = 30.0
"""Longest delay between two attempts to open a copy; delays begin at the interval of `_look`."""
_AS_OF_SECONDS = 60.0
"""How often a copy that is up to date writes that time down."""

Spares = dict[str, Environment]
"""Environments that stay open in this process from one generation to the next, by path."""


@dataclass(slots=True)
class _Copy:
    spec: TaskSpec
    logs: list[Changelog]
    environment: Environment
    restorers: dict[TopicPartition, list[Restorer]] = field(default_factory=dict)
    reached: dict[TopicPartition, int] = field(default_factory=dict)
    goal: tuple[float, dict[TopicPartition, int]] | None = None
    """(when they were requested, changelog ends); a copy that has reached them is up to date as of that time."""
    noted: float = 0.0


class StandbyCopies:
    """The copies of one instance; `start` opens them in a thread of their own.

    Args:
        executor: whose directory they are in.
        spares: environments open in this process; those of the copied tasks are removed from it and used as they are.
    """

    def __init__(self, plan: ApplicationPlan, slot: int, executor: str, spares: Spares) -> None:
        self._plan = plan
        self._specs = {str(spec.task_id): spec for spec in plan.standbys[slot]}
        self._executor = executor
        self._spares: Spares = {}
        for spec in self._specs.values():
            path = os.path.realpath(self._path(spec))
            if path in spares:
                self._spares[path] = spares.pop(path)
        self._token = f"{owner_token(plan.generation, slot)}/standby"
        self._copies: dict[str, _Copy] = {}
        self._waits: dict[str, tuple[float, float]] = {}
        """Copies that could not be opened: (monotonic time of the next attempt, seconds of the last delay)."""
        self._assigned = False
        """Whether the consumer's assignment covers the missing records of all copies."""
        self._ends: dict[TopicPartition, int] = {}
        self.updated: dict[str, int] = {}
        """Changelog records written into the copy of each task."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=carried(self._run), name=f"standby-{plan.application_id}-{slot}", daemon=True)

    def start(self) -> StandbyCopies:
        """Start the thread."""
        self._thread.start()
        return self

    @property
    def open(self) -> int:
        """Number of copies that are being kept up to date."""
        return len(self._copies)

    def lags(self) -> dict[str, int]:
        """Return records behind the changelogs' ends as of the last request, by task; -1 for a copy that cannot be kept (its task
        runs on this executor) or is not open yet.
        """
        lags = {}
        for name in self._specs:
            copy = self._copies.get(name)
            if copy is None or any(at not in self._ends for at in copy.reached):
                lags[name] = -1
            else:
                lags[name] = sum(max(0, self._ends[at] - reached) for at, reached in list(copy.reached.items()))
        return lags

    def release(self) -> Spares:
        """Stop following and return the environments, open."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        kept = {copy.environment.path: copy.environment for copy in self._copies.values()}
        self._copies = {}
        spares, self._spares = self._spares, {}
        return spares | {path: environment for path, environment in kept.items() if path is not None}

    def close(self) -> None:
        """Stop following and close the copies."""
        for environment in self.release().values():
            with suppress(KStreamsError):
                environment.close()

    # ---- the thread

    def _run(self) -> None:
        admin: Admin | None = None
        consumer: Any = None
        next_look = 0.0
        try:
            while not self._over.is_set():
                try:
                    admin = Admin(self._plan.settings) if admin is None else admin
                    consumer = self._consumer() if consumer is None else consumer
                    look = time.monotonic() >= next_look
                    if look:
                        next_look = time.monotonic() + _LOOK_SECONDS
                        self._open_missing(admin)
                    if not self._assigned:
                        self._assign(admin, consumer)
                    if look:
                        self._look(admin, consumer)
                    self._step(consumer)
                    continue
                except KStreamsError as error:  # the broker is unavailable, or a changelog was deleted: tried again later
                    _LOG.info("standby copies wait: %s", error)
                except Exception:  # from the client library or the file system: one failing copy must not stop the others
                    _LOG.warning("standby copies wait", exc_info=True)
                self._assigned = False  # records that were fetched but not written must be read again
                self._over.wait(_LOOK_SECONDS)
                next_look = time.monotonic() + _LOOK_SECONDS  # meanwhile the open copies continue
        finally:
            if consumer is not None:
                consumer.close()

    def _consumer(self) -> Any:
        return make_consumer(
            self._plan.settings,
            group_id=READ_GROUP,
            isolation=self._plan.isolation,
            role="restore",
        )

    def _step(self, consumer: Any) -> None:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            return
        for at, batch in columns([message, *consumer.consume(_BATCH, 0)], self._on_error):
            for name, copy in list(self._copies.items()):
                if at in copy.restorers:
                    self._apply(name, copy, at, batch)

    def _apply(self, name: str, copy: _Copy, at: TopicPartition, batch: RecordBatch) -> None:
        """Write a batch into a copy; close the copy if its task now runs here, the disk failed, or a record does not fit."""
        try:
            for restorer in copy.restorers[at]:
                restorer.apply(batch)
        except Exception as error:
            self._give_up(name, copy, error)
            self._assigned = False
            return
        self._waits.pop(name, None)
        copy.reached[at] = batch.offsets[-1] + 1
        self.updated[name] = self.updated.get(name, 0) + len(batch)

    def _give_up(self, name: str, copy: _Copy, why: object) -> None:
        _LOG.info("closing the standby copy: %s", why, extra={"task": name})
        del self._copies[name]
        self._put_off(name)
        with suppress(KStreamsError):
            copy.environment.close()

    def _put_off(self, name: str) -> None:
        """Delay the next attempt to open a copy, twice as long as the last delay up to the maximum."""
        wait = min(2 * self._waits.get(name, (0.0, _LOOK_SECONDS / 2))[1], _LONGEST_WAIT_SECONDS)
        self._waits[name] = time.monotonic() + wait, wait

    def _look(self, admin: Admin, consumer: Any) -> None:
        """Request ends, and save positions that moved past transaction markers and compacted offsets."""
        wanted = {at for copy in self._copies.values() for at in copy.restorers}
        if not wanted:
            return
        asked = time.time()
        ends = admin.end_offsets(wanted, isolation=self._plan.isolation)
        for at, position in positions(consumer, wanted).items():
            for copy in self._copies.values():
                if at in copy.restorers and position > copy.reached[at] and position >= ends[at]:
                    for restorer in copy.restorers[at]:
                        with suppress(TaskMigratedError, StateStoreError):  # the next batch raises it again
                            restorer.finish(position)
                    copy.reached[at] = position
        for copy in self._copies.values():
            _note_time(copy, asked, ends)
        self._ends = ends

    def _open_missing(self, admin: Admin) -> None:
        """Open missing copies independently of each other: one that cannot be opened is tried again later."""
        now = time.monotonic()
        missing = {
            name: spec for name, spec in self._specs.items() if name not in self._copies and self._waits.get(name, (now, 0.0))[0] <= now
        }
        if not missing:
            return
        logs = {
            name: [log for log in changelogs_of(spec) if log.store.persistent and not log.is_source]
            for name, spec in missing.items()
        }
        every = [log for each in logs.values() for log in each]
        partitions = {log.partition for log in every}
        firsts = admin.beginning_offsets(partitions)
        ends = admin.end_offsets(partitions, isolation="read_uncommitted")
        topic_ids = topic_ids_of(admin, every)
        for name, spec in missing.items():
            copy = None
            try:
                copy = self._open(admin, spec, logs[name], (firsts, ends, topic_ids))
            except Exception as error:
                _LOG.warning("the standby copy cannot be opened now: %s", error, extra={"task": name})
            if copy is None:
                self._put_off(name)
            else:
                self._copies[name] = copy
                self._assigned = False

    def _open(
        self,
        admin: Admin,
        spec: TaskSpec,
        logs: list[Changelog],
        broker: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int], Mapping[str, str]],
    ) -> _Copy | None:
        """Open a copy from disk, or create one; return None while its task runs here.

        Raises:
            TaskCorruptedError: the log no longer begins with the store's first record.
        """
        path = self._path(spec)
        environment = self._own(spec, path)
        if environment is None:
            return None
        try:
            why = why_not_trusted(
                environment,
                logs,
                *broker,
                config=self._plan.config,
                committed=partial(admin.committed_offsets, self._plan.application_id, list(spec.partitions), stable=False),
            )
            if why is not None:
                _LOG.warning("the standby copy is rebuilt: %s", why, extra={"task": str(spec.task_id)})
                environment = fresh_environment(environment, self._token, in_force=lambda: not is_in_use(path))
            floors: dict[TopicPartition, int] = {}
            if any(log.is_timed and broker[0][log.partition] > 0 for log in logs):  # committed before the records were deleted
                known = admin.committed_offsets(self._plan.application_id, list(spec.partitions), stable=False)
                floors = floors_of(logs, [decode(committed.metadata) for committed in known.values()], broker[2])
            for log in logs:  # a later owner of the copy would take a partial log for the whole
                check_whole(environment, log, broker[0][log.partition], floors.get(log.partition))
            remember_topics(environment, logs, broker[2])
            copy = _Copy(spec, logs, environment)
            for log in logs:
                copy.restorers.setdefault(log.partition, []).append(Restorer(log.store, environment, str(log.partition)))
                copy.reached[log.partition] = max(environment.positions.get(str(log.partition), 0), broker[0][log.partition])
            forget_inputs(environment)
            return copy
        except BaseException:
            with suppress(KStreamsError):
                environment.close()
            raise

    def _own(self, spec: TaskSpec, path: Path) -> Environment | None:
        """Take the task's environment on this executor, unless the task runs here."""
        environment: Any = self._spares.pop(os.path.realpath(path), None)
        written = written_at(path)
        try:
            if environment is not None:
                environment.recycle()
            elif _runs_here(path):
                return None
            else:
                environment = _opened(path)
            environment.take_ownership(self._token, unless=is_held)
            date_former(environment, written)
            owned: Environment = environment
            return owned
        except BaseException as error:
            if environment is not None:
                with suppress(KStreamsError):
                    environment.close()
            if isinstance(error, TaskMigratedError):
                return None
            raise

    def _path(self, spec: TaskSpec) -> Path:
        return task_directory(Path(self._plan.state_directory), self._plan.application_id, spec.task_id, self._executor)

    def _assign(self, admin: Admin, consumer: Any) -> None:
        starts: dict[TopicPartition, int] = {}
        firsts = admin.beginning_offsets([log.partition for copy in self._copies.values() for log in copy.logs if log.is_timed])
        for name, copy in list(self._copies.items()):
            if any(reached < firsts.get(at, 0) for at, reached in copy.reached.items()):
                self._give_up(name, copy, "its changelog begins after it by now")  # reopened later as a copy that is behind
                continue
            for at, reached in copy.reached.items():
                starts[at] = min(reached, starts.get(at, reached))
        assign(consumer, starts)
        self._assigned = True

    def _on_error(self, message: Any, error: Any) -> None:
        if not is_partition_end(error) and not is_passing(error):
            raise translate(
                error,
                "following a changelog",
                topic=message.topic(),
                bootstrap_servers=self._plan.settings.bootstrap_servers,
            )


def _note_time(copy: _Copy, asked: float, ends: Mapping[TopicPartition, int]) -> None:
    """Write, at intervals, the time as of which a copy is up to date with its changelogs. The time of a copy stays if a store's
    log is an input: that store is not followed.
    """
    if copy.goal is not None and all(copy.reached[at] >= end for at, end in copy.goal[1].items()):
        if copy.goal[0] - copy.noted >= _AS_OF_SECONDS and not any(log.is_source for log in changelogs_of(copy.spec)):
            copy.noted = copy.goal[0]
            with suppress(TaskMigratedError, StateStoreError):  # the next batch raises it again
                note_time(copy.environment, copy.goal[0])
                copy.environment.commit({}, copy.environment.commit_id)
        copy.goal = None
    if copy.goal is None:
        copy.goal = asked, {at: ends[at] for at in copy.reached if at in ends}


def _runs_here(path: Path) -> bool:
    """Return whether a running task holds an environment, without opening it, which would read all of its pages."""
    from kstreams_repl.stores.engine.lmdb import is_open_here
    from kstreams_repl.stores.engine.snapshot import LmdbSnapshot

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


def _opened(path: Path) -> Any:
    from kstreams_repl.stores.engine.failures import storage_error
    from kstreams_repl.stores.engine.lmdb import LmdbEnvironment

    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with opening(path.parent):
                return LmdbEnvironment(path, lock_timeout=5.0)
        except TaskCorruptedError as error:
            if not discard_unused(path):
                raise
            _LOG.warning("a standby copy is made anew: %s", error)
            with opening(path.parent):
                return LmdbEnvironment(path, lock_timeout=5.0)
    except OSError as error:
        raise storage_error(error, str(path), "opening") from error
