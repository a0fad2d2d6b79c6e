"""The standby tasks of one instance: one thread and one consumer that keep them up to date (`standby_task`).

Source: the restore thread of the threading refactor.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.state.changelogs import ChangelogBounds
from kstreams_repl.host.instance.state.owner_token import owner_token
from kstreams_repl.host.instance.state.standby_task import StandbyTask, open_standby_task, standby_logs
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.instance.state.state_manager import OpenEnvironments
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import make_consumer
from kstreams_repl.host.kafka.failures import translate
from kstreams_repl.host.kafka.group_offsets import assign, is_partition_end
from kstreams_repl.host.kafka.reading import READ_GROUP, is_passing_for_reader, positions
from kstreams_repl.host.kafka.record_batch import columns
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.log_context import carried
from kstreams_repl.system.types import TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.host.kafka.clients import Consumer, Message

_LOG = logging.getLogger("kstreams_repl.host.instance")
_BATCH = 10_000
_POLL_SECONDS = 0.1
_CHECK_SECONDS = 1.0
"""Interval between requests for end and committed offsets, and between attempts to open environments that were in use."""
_LONGEST_WAIT_SECONDS = 30.0
"""Longest delay between two attempts to open a standby task; delays begin at `_CHECK_SECONDS`."""


class StandbyTasks:
    """The standby tasks of one instance; `start` opens them in a thread of their own.

    Args:
        executor: whose directory they are in.
        environments: open in this process; those of the standby tasks are removed from it and used as they are.

    Attributes:
        updated: changelog records written into each standby task.
    """

    def __init__(self, plan: ApplicationPlan, slot: int, executor: str, environments: OpenEnvironments) -> None:
        self._plan = plan
        self._specs = {str(spec.task_id): spec for spec in plan.standbys[slot]}
        self._executor = executor
        paths = [os.path.realpath(self._path(spec)) for spec in self._specs.values()]
        self._environments = {path: environments.pop(path) for path in paths if path in environments}
        self._token = f"{owner_token(plan.generation, slot)}/standby"
        self._tasks: dict[str, StandbyTask] = {}
        self._waits: dict[str, tuple[float, float]] = {}
        """Tasks that could not be opened: (monotonic time of the next attempt, seconds of the last delay)."""
        self._assigned = False
        """Whether the consumer's assignment covers the missing records of all open tasks."""
        self._ends: dict[TopicPartition, int] = {}
        self.updated: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=carried(self._run), name=f"standby-{plan.application_id}-{slot}", daemon=True)

    def start(self) -> StandbyTasks:
        """Start the thread."""
        self._thread.start()
        return self

    @property
    def open(self) -> int:
        """Number of standby tasks that are being kept up to date."""
        return len(self._tasks)

    def lags(self) -> dict[str, int]:
        """Return records behind the changelogs' ends as of the last request, by task; -1 for one that cannot be kept (its task
        is active on this executor) or is not open yet.
        """
        lags = {}
        for name in self._specs:
            task = self._tasks.get(name)
            if task is None or any(partition not in self._ends for partition in task.reached):
                lags[name] = -1
            else:
                lags[name] = sum(max(0, self._ends[partition] - reached) for partition, reached in list(task.reached.items()))
        return lags

    def release(self) -> OpenEnvironments:
        """Stop the thread and return the environments, open."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        tasks, self._tasks = self._tasks, {}
        environments, self._environments = self._environments, {}
        return environments | {task.environment.path: task.environment for task in tasks.values() if task.environment.path is not None}

    def close(self) -> None:
        """Stop the thread and close the environments."""
        for environment in self.release().values():
            with suppress(KStreamsError):
                environment.close()

    # ---- the thread

    def _run(self) -> None:
        admin: Admin | None = None
        consumer: Consumer | None = None
        next_check = 0.0
        try:
            while not self._over.is_set():
                try:
                    admin = Admin(self._plan.settings) if admin is None else admin
                    consumer = self._consumer() if consumer is None else consumer
                    check = time.monotonic() >= next_check
                    if check:
                        next_check = time.monotonic() + _CHECK_SECONDS
                        self._open_missing(admin)
                    if not self._assigned:
                        self._assign(admin, consumer)
                    if check:
                        self._read_ends(admin, consumer)
                    self._step(consumer)
                    continue
                except KStreamsError as error:  # the broker is unavailable, or a changelog was deleted
                    _LOG.info("updating standby tasks failed, retrying in %.0f s: %s", _CHECK_SECONDS, error)
                except Exception:  # from the client library or the file system: one failing task must not stop the others
                    _LOG.warning("updating standby tasks failed, retrying in %.0f s", _CHECK_SECONDS, exc_info=True)
                self._assigned = False  # records that were fetched but not written must be read again
                self._over.wait(_CHECK_SECONDS)
                next_check = time.monotonic() + _CHECK_SECONDS  # until then, the open tasks continue
        finally:
            if consumer is not None:
                consumer.close()

    def _consumer(self) -> Consumer:
        return make_consumer(self._plan.settings, group_id=READ_GROUP, isolation=self._plan.isolation, role="restore")

    def _step(self, consumer: Consumer) -> None:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            return
        for partition, batch in columns([message, *consumer.consume(_BATCH, 0)], self._on_error):
            for name, task in list(self._tasks.items()):
                if partition in task.reached:
                    try:
                        task.apply(partition, batch)
                    except Exception as error:
                        self._give_up(name, task, error)
                        self._assigned = False
                        continue
                    self._waits.pop(name, None)
                    self.updated[name] = self.updated.get(name, 0) + len(batch)

    def _give_up(self, name: str, task: StandbyTask, why: object) -> None:
        _LOG.info("closing the standby task: %s", why, extra={"task": name})
        del self._tasks[name]
        self._delay(name)
        with suppress(KStreamsError):
            task.environment.close()

    def _delay(self, name: str) -> None:
        """Delay the next attempt to open a task, twice as long as the last delay up to the maximum."""
        wait = min(2 * self._waits.get(name, (0.0, _CHECK_SECONDS / 2))[1], _LONGEST_WAIT_SECONDS)
        self._waits[name] = time.monotonic() + wait, wait

    def _read_ends(self, admin: Admin, consumer: object) -> None:
        wanted = {partition for task in self._tasks.values() for partition in task.reached}
        if not wanted:
            return
        asked = time.time()
        ends = admin.end_offsets(wanted, isolation=self._plan.isolation)
        for partition, position in positions(consumer, wanted).items():
            for task in self._tasks.values():
                if partition in task.reached and position > task.reached[partition] and position >= ends[partition]:
                    task.advance(position, partition)
        for task in self._tasks.values():
            task.note_as_of(asked, ends)
        self._ends = ends

    def _open_missing(self, admin: Admin) -> None:
        """Open missing tasks independently of each other: one that cannot be opened is tried again later."""
        now = time.monotonic()
        missing = {
            name: spec for name, spec in self._specs.items() if name not in self._tasks and self._waits.get(name, (now, 0.0))[0] <= now
        }
        if not missing:
            return
        bounds = ChangelogBounds.read(admin, [log for spec in missing.values() for log in standby_logs(spec)])
        for name, spec in missing.items():
            path = self._path(spec)
            task = None
            try:
                task = open_standby_task(
                    spec,
                    path,
                    self._token,
                    self._environments.pop(os.path.realpath(path), None),
                    bounds,
                    config=self._plan.config,
                    committed=partial(admin.committed_offsets, self._plan.application_id, list(spec.partitions), stable=False),
                )
            except Exception as error:
                _LOG.warning("opening the standby task failed: %s", error, extra={"task": name})
            if task is None:
                self._delay(name)
            else:
                self._tasks[name] = task
                self._assigned = False

    def _path(self, spec: TaskSpec) -> Path:
        return task_directory(Path(self._plan.state_directory), self._plan.application_id, spec.task_id, self._executor)

    def _assign(self, admin: Admin, consumer: object) -> None:
        starts: dict[TopicPartition, int] = {}
        firsts = admin.beginning_offsets([log.partition for task in self._tasks.values() for log in task.logs if log.is_timed])
        for name, task in list(self._tasks.items()):
            if any(reached < firsts.get(partition, 0) for partition, reached in task.reached.items()):
                self._give_up(name, task, "its changelog begins after its position")  # reopened later as one that is behind
                continue
            for partition, reached in task.reached.items():
                starts[partition] = min(reached, starts.get(partition, reached))
        assign(consumer, starts)
        self._assigned = True

    def _on_error(self, message: Message, error: object) -> None:
        if not is_partition_end(error) and not is_passing_for_reader(error):
            raise translate(
                error,
                "following a changelog",
                topic=message.topic(),
                bootstrap_servers=self._plan.settings.bootstrap_servers,
            )
