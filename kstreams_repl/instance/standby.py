"""Standby copies: an instance keeps stores of other instances' tasks on its own disk, up to date from their changelogs.

One thread and one consumer per instance (the restore thread of the threading refactor). A copy is an environment like an active
task's, with its position inside each store transaction; a promoted copy is opened where it lies and only reads the delta. A
task is active or a copy, never both: whoever runs it takes the environment's owner token, and the copy's next write, which
checks the token inside its transaction, finds out and lets go. A copy never takes an environment from a task that runs.

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

from kstreams_repl.errors import KStreamsError, StateStoreError, TaskCorruptedError, TaskMigratedError
from kstreams_repl.instance.cleanup import opening
from kstreams_repl.instance.local_state import (
    Changelog,
    changelogs_of,
    date_former,
    discard,
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
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.instance.state_directory import task_directory
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import make_consumer
from kstreams_repl.kafka.failures import translate
from kstreams_repl.kafka.group_offsets import assign, is_partition_end, is_passing
from kstreams_repl.kafka.reading import READ_GROUP, positions
from kstreams_repl.kafka.record_batch import columns
from kstreams_repl.runtime.task import TaskSpec
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.stores.restore import Restorer
from kstreams_repl.types import RecordBatch, TopicPartition

_LOG = logging.getLogger("kstreams_repl.instance")
_BATCH = 10_000
_POLL_SECONDS = 0.1
_LOOK_SECONDS = 1.0
"""How often ends and committed offsets are asked, and environments tried that were in use."""

_AS_OF_SECONDS = 60.0
"""How often a copy that keeps up writes down that it does."""

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
    """Ends of the changelogs, and when they were asked; a copy that has reached them holds all that was told until then."""
    noted: float = 0.0


class StandbyCopies:
    """The copies of one instance; `start` opens them in a thread of their own.

    Args:
        executor: whose directory they lie in.
        spares: environments open in this process; those of our tasks are taken out and used as they are.
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
        self._ends: dict[TopicPartition, int] = {}
        self.updated: dict[str, int] = {}
        """Changelog records written into the copy of each task."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"standby-{plan.application_id}-{slot}", daemon=True)

    def start(self) -> StandbyCopies:
        self._thread.start()
        return self

    @property
    def open(self) -> int:
        """How many copies are kept up to date now."""
        return len(self._copies)

    def lags(self) -> dict[str, int]:
        """Records behind the changelogs' ends as of the last look, by task; -1 while a copy cannot be kept (its task runs on this
        executor) or is not open yet.
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
        """Stop following and hand the environments over, open."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        kept = {copy.environment.path: copy.environment for copy in self._copies.values()}
        self._copies = {}
        spares, self._spares = self._spares, {}
        return spares | {path: environment for path, environment in kept.items() if path is not None}

    def close(self) -> None:
        for environment in self.release().values():
            with suppress(KStreamsError):
                environment.close()

    # ---- the thread

    def _run(self) -> None:
        admin = Admin(self._plan.settings)
        consumer: Any = None
        next_look = 0.0
        while not self._over.is_set():
            try:
                if consumer is None:
                    consumer = make_consumer(
                        self._plan.settings,
                        group_id=READ_GROUP,
                        isolation="read_committed" if self._plan.config.exactly_once else "read_uncommitted",
                        restoring=True,
                    )
                    self._assign(consumer)
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + _LOOK_SECONDS
                    if self._open_missing(admin):
                        self._assign(consumer)
                    self._look(admin, consumer)
                self._step(consumer)
            except KStreamsError as error:  # a broker that is away, a changelog that is gone: looked at again
                _LOG.info("standby copies of %s wait: %s", self._plan.application_id, error)
                self._over.wait(_LOOK_SECONDS)
        if consumer is not None:
            consumer.close()

    def _step(self, consumer: Any) -> None:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            return
        lost = False
        for at, batch in columns([message, *consumer.consume(_BATCH, 0)], self._on_error):
            for name, copy in list(self._copies.items()):
                if at in copy.restorers:
                    lost = not self._apply(name, copy, at, batch) or lost
        if lost:
            self._assign(consumer)

    def _apply(self, name: str, copy: _Copy, at: TopicPartition, batch: RecordBatch) -> bool:
        """Write a batch into a copy; False when the copy is lost, because its task runs here by now or the disk failed."""
        try:
            for restorer in copy.restorers[at]:
                restorer.apply(batch)
        except (TaskMigratedError, StateStoreError) as error:
            _LOG.info("the standby copy of %s is let go of: %s", name, error)
            del self._copies[name]
            with suppress(KStreamsError):
                copy.environment.close()
            return False
        copy.reached[at] = batch.offsets[-1] + 1
        self.updated[name] = self.updated.get(name, 0) + len(batch)
        return True

    def _look(self, admin: Admin, consumer: Any) -> None:
        """Learn ends, and keep positions that moved over markers and compacted stretches."""
        wanted = {at for copy in self._copies.values() for at in copy.restorers}
        if not wanted:
            return
        asked = time.time()
        ends = admin.end_offsets(wanted, isolation="read_committed" if self._plan.config.exactly_once else "read_uncommitted")
        for at, position in positions(consumer, wanted).items():
            for copy in self._copies.values():
                if at in copy.restorers and position > copy.reached[at] and position >= ends[at]:
                    for restorer in copy.restorers[at]:
                        with suppress(TaskMigratedError, StateStoreError):  # the next batch finds out
                            restorer.finish(position)
                    copy.reached[at] = position
        for copy in self._copies.values():
            _note_time(copy, asked, ends)
        self._ends = ends

    def _open_missing(self, admin: Admin) -> bool:
        """Open copies that are not open; whether any is new."""
        missing = {name: spec for name, spec in self._specs.items() if name not in self._copies}
        if not missing:
            return False
        logs = {
            name: [log for log in changelogs_of(spec) if log.store.persistent and not log.is_source]
            for name, spec in missing.items()
        }
        every = [log for each in logs.values() for log in each]
        partitions = {log.partition for log in every}
        firsts = admin.beginning_offsets(partitions)
        ends = admin.end_offsets(partitions, isolation="read_uncommitted")
        topic_ids = topic_ids_of(admin, every)
        opened = False
        for name, spec in missing.items():
            environment = self._own(spec)
            if environment is None:
                continue
            why = why_not_trusted(
                environment,
                logs[name],
                firsts,
                ends,
                topic_ids,
                config=self._plan.config,
                committed=partial(admin.committed_offsets, self._plan.application_id, list(spec.partitions), stable=False),
            )
            if why is not None:
                _LOG.warning("the standby copy of %s is made anew: %s", name, why)
                environment = fresh_environment(environment, self._token)
            remember_topics(environment, logs[name], topic_ids)
            copy = _Copy(spec, logs[name], environment)
            for log in logs[name]:
                copy.restorers.setdefault(log.partition, []).append(Restorer(log.store, environment, str(log.partition)))
                copy.reached[log.partition] = max(environment.positions.get(str(log.partition), 0), firsts[log.partition])
            forget_inputs(environment)
            self._copies[name] = copy
            opened = True
        return opened

    def _own(self, spec: TaskSpec) -> Environment | None:
        """The task's environment on this executor, unless the task runs here."""
        from kstreams_repl.stores.engine.lmdb import LmdbEnvironment

        path = self._path(spec)
        written = written_at(path)
        environment: Any = self._spares.pop(os.path.realpath(path), None)
        try:
            if environment is None:
                environment = _opened(path)
            else:
                environment.recycle()
            assert isinstance(environment, LmdbEnvironment)
            environment.take_ownership(self._token, unless=is_held)
            date_former(environment, written)
        except TaskMigratedError:
            environment.close()
            return None
        except StateStoreError as error:
            _LOG.info("the standby copy of %s cannot be opened now: %s", spec.task_id, error)
            return None
        return environment

    def _path(self, spec: TaskSpec) -> Path:
        return task_directory(Path(self._plan.state_directory), self._plan.application_id, spec.task_id, self._executor)

    def _assign(self, consumer: Any) -> None:
        starts: dict[TopicPartition, int] = {}
        for copy in self._copies.values():
            for at, reached in copy.reached.items():
                starts[at] = min(reached, starts.get(at, reached))
        assign(consumer, starts)

    def _on_error(self, message: Any, error: Any) -> None:
        if not is_partition_end(error) and not is_passing(error):
            raise translate(
                error,
                "following a changelog",
                topic=message.topic(),
                bootstrap_servers=self._plan.settings.bootstrap_servers,
            )


def _note_time(copy: _Copy, asked: float, ends: Mapping[TopicPartition, int]) -> None:
    """Write down, now and then, until when a copy holds all that its changelogs told. A copy of a task with a store whose log is an
    input stays as old as it was: that store is not followed.
    """
    if copy.goal is not None and all(copy.reached[at] >= end for at, end in copy.goal[1].items()):
        if copy.goal[0] - copy.noted >= _AS_OF_SECONDS and not any(log.is_source for log in changelogs_of(copy.spec)):
            copy.noted = copy.goal[0]
            with suppress(TaskMigratedError, StateStoreError):  # the next batch finds out
                note_time(copy.environment, copy.goal[0])
                copy.environment.commit({}, copy.environment.commit_id)
        copy.goal = None
    if copy.goal is None:
        copy.goal = asked, {at: ends[at] for at in copy.reached if at in ends}


def _opened(path: Path) -> Any:
    from kstreams_repl.stores.engine.lmdb import LmdbEnvironment

    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with opening(path.parent):
            return LmdbEnvironment(path, lock_timeout=5.0)
    except TaskCorruptedError as error:
        _LOG.warning("a standby copy is made anew: %s", error)
        discard(path)
        with opening(path.parent):
            return LmdbEnvironment(path, lock_timeout=5.0)
