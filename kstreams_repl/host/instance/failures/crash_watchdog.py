"""Handling of user code that kills its process or never returns.

Spark restarts a worker that segfaults, exits by `os._exit`, is killed for its memory use, or loops for ever inside a user's
function. Uncommitted input is processed again, so nothing is lost or counted twice; but a record that kills every process would
do so for ever. So each slot has two small files next to its stores: in one the process marks that a commit is open, in the other
the interpreter writes the stack of a process that crashes (`faulthandler`). Steps of the next process (`begin`):

1. If a process of this generation ended while its commit was open, it died while processing. The files say where: by the watchdog's
   entry, the traced task's location, or the stack.
2. After `retries` deaths at the same location, raise an error that names node, record and line.
3. Else the slot works *traced* for a while (`engine.runtime.compiler.crash_trace`), so that the next death has a location, down to the
   record.

The *watchdog* checks whether one call of user code stays at one record for `max.poll.interval.ms`; if so, it writes the location
and ends the process. A call that holds the interpreter's lock, so that no other thread runs, is ended by `faulthandler`'s timer,
which needs no lock.

Cost: two writes of one byte per task and commit; no per-record work.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.failures.careful_period import CarefulPeriod
from kstreams_repl.host.instance.failures.crash_location import WorkerCrash, crash_of_stack, user_line_of
from kstreams_repl.host.instance.polling.background_threads import PeriodicThread
from kstreams_repl.host.instance.state.state_directory import tasks_folder
from kstreams_repl.system.errors import WorkerDiedError
from kstreams_repl.system.process_info import start_time
from kstreams_repl.system.types import JsonMapping

_LOG = logging.getLogger("kstreams_repl.host.instance")
WATCHDOG_THREAD = PeriodicThread("watchdog")
CALM_SECONDS = 10.0
"""How long a slot works traced after a death."""
_HISTORY_BYTES, _OPEN_BYTES, _LOCATION_BYTES = 8192, 1024, 2048
_OPEN_AT, _LOCATION_AT = _HISTORY_BYTES, _HISTORY_BYTES + _OPEN_BYTES
_MOST_DEATHS = 12
_CHECKS = 8
"""Number of the watchdog's checks within the longest allowed call."""


class TaskCrashMarks:
    """The crash marks of one task (`active_task.ActiveTask`); also its `Trace` while the slot works traced.

    Attributes:
        open: a commit of the task is open: user code has run since the last one.
        active: the `ActiveTask`, once it exists.
    """

    __slots__ = ("open", "active", "traced", "_watchdog", "_number", "_task")

    def __init__(self, watchdog: CrashWatchdog, number: int, task: str) -> None:
        self.open = False
        self.active: Any = None
        self.traced = watchdog.careful
        self._watchdog = watchdog
        self._number = number
        self._task = task

    def begin(self) -> None:
        """Mark that user code is about to run."""
        self.open = True
        self._watchdog.write(b"\x01", _OPEN_AT + self._number % _OPEN_BYTES)

    def end(self) -> None:
        """Mark that all processed records are committed."""
        self.open = False
        self._watchdog.write(b"\x00", _OPEN_AT + self._number % _OPEN_BYTES)

    def at(self, node: str | None, topic: str | None, partition: int, offset: int) -> None:
        """Write the location that user code is at; None for the node clears it."""
        self._watchdog.write_location(None if node is None else WorkerCrash(self._task, node, topic, partition, offset))


class CrashWatchdog(CarefulPeriod):
    """The crash detection of one slot in this process.

    Args:
        plan: names, directories, nodes and limits.

    Attributes:
        careful: instances opened from now on trace their tasks.
    """

    def __init__(self, plan: ApplicationPlan, slot: int, executor: str) -> None:
        super().__init__()
        folder = tasks_folder(Path(plan.state_directory), plan.application_id, executor)
        self._plan = plan
        self._slot = slot
        self._about = {"application": plan.application_id, "instance": slot}
        self._marks = folder / f".working-{slot}"
        self._stack = folder / f".stack-{slot}"
        self._seconds: float = plan.config["max.poll.interval.ms"] / 1000
        self._retries: int = plan.config["repl.crash.retries"]
        self._nodes = frozenset(node.name for spec in plan.assignment[slot] for node in spec.subtopology.nodes)
        self._me = {"pid": os.getpid(), "start": start_time(os.getpid())}
        self._file: int | None = None
        self._stack_file: FileIO | None = None
        self._deaths: list[WorkerCrash] = []
        self._calls: dict[str, tuple[object, float]] = {}
        self._tasks: list[TaskCrashMarks] = []

    # ---- the runner's side

    def begin(self) -> None:
        """Read the marks of the previous process, then begin to write marks; on a full disk none are written.

        Raises:
            WorkerDiedError: step 2.
        """
        self._deaths = self._read()
        self._tasks.clear()
        self.careful = False
        if self._deaths:
            self.take_care(CALM_SECONDS)
            last = self._deaths[-1]
            if sum(last.is_same(other) for other in self._deaths) >= self._retries:
                raise self._error(last)
        self.close()
        history = {"generation": self._plan.generation, **self._me, "deaths": [death.plain() for death in self._deaths]}
        try:
            self._marks.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(self._marks, os.O_CREAT | os.O_RDWR, 0o600)
            os.posix_fallocate(self._file, 0, _LOCATION_AT + _LOCATION_BYTES)
            self._stack_file = self._stack.open("wb", buffering=0)
        except OSError as error:
            _LOG.info("crashes cannot be located, because their files cannot be written: %s", error, extra=self._about)
            self.close()
            return
        self.write(json.dumps(history).encode().ljust(_HISTORY_BYTES)[:_HISTORY_BYTES] + bytes(_OPEN_BYTES), 0)
        self.write_location(None)

    def arm(self) -> None:
        """Start watching the tasks."""
        if self._stack_file is not None:
            faulthandler.enable(self._stack_file)
        self._calls.clear()
        WATCHDOG_THREAD.watch(self, min(1.0, self._seconds / _CHECKS), self._check)

    def rest(self) -> None:
        """Stop watching: no task is being processed."""
        WATCHDOG_THREAD.forget(self)
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()

    def close(self) -> None:
        """Close the files and leave them to the next process, with no commit marked as open."""
        file, self._file = self._file, None
        stack, self._stack_file = self._stack_file, None
        if file is not None:
            with suppress(OSError, ValueError):
                if self._is_mine(json.loads(os.pread(file, _HISTORY_BYTES, 0))):
                    os.pwrite(file, bytes(_OPEN_BYTES), _OPEN_AT)
            os.close(file)
        if stack is not None:
            stack.close()

    def task(self, task: str, number: int) -> TaskCrashMarks:
        """Create the marks of one task; `number` is its index in the slot's file."""
        made = TaskCrashMarks(self, number, task)
        self._tasks.append(made)
        return made

    def calm(self) -> bool:
        """Return whether the traced period is over; if so, drop the deaths before it."""
        over = super().calm()
        if over:
            self._deaths.clear()
            self.write(json.dumps({"generation": self._plan.generation, **self._me, "deaths": []}).encode().ljust(_HISTORY_BYTES), 0)
        return over

    # ---- the files

    def write(self, data: bytes, position: int) -> None:
        """Write to the slot's file, if there is one; errors are ignored."""
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, data, position)

    def write_location(self, death: WorkerCrash | None) -> None:
        """Write the location of a death; None clears it."""
        text = b"" if death is None else json.dumps(death.plain()).encode()
        self.write((text if len(text) < _LOCATION_BYTES else b"").ljust(_LOCATION_BYTES), _LOCATION_AT)

    def _is_mine(self, history: JsonMapping) -> bool:
        return history.get("pid") == self._me["pid"] and history.get("start") == self._me["start"]

    def _read(self) -> list[WorkerCrash]:
        """Return the deaths so far, including the previous process's if it died at work."""
        try:
            data = self._marks.read_bytes()
            history = json.loads(data[:_HISTORY_BYTES])
            if history["generation"] != self._plan.generation:
                return []
            deaths = [WorkerCrash.read(each) for each in history["deaths"]]
            if self._is_mine(history):
                return deaths
            if start_time(history["pid"]) == history["start"] or not any(data[_OPEN_AT:_LOCATION_AT]):
                return deaths
            location = data[_LOCATION_AT:].strip()
            death = WorkerCrash.read(json.loads(location)) if location else WorkerCrash()
            stack = crash_of_stack(self._stack.read_text(encoding="utf-8", errors="replace"), self._nodes)
        except (OSError, ValueError, KeyError, TypeError):  # no file yet, or its content is of another format
            return []
        death = death.merged(stack)
        _LOG.warning("worker process %s %s", history["pid"], death, extra=self._about)
        return [*deaths, death][-_MOST_DEATHS:]

    def _error(self, death: WorkerCrash) -> WorkerDiedError:
        line = f"\n  {death.file}:{death.line}" if death.file else ""
        times = sum(death.is_same(other) for other in self._deaths)
        return WorkerDiedError(
            f"the worker process {death}{line}\n  this happened {times} times",
            hint="check this node's function for a crash in native code, os._exit, too much memory, or an endless loop "
            "(max.poll.interval.ms); fix it and deploy again: committed work is kept and no record is lost",
            node=death.node,
            task=death.task,
            topic=death.topic,
            partition=None if death.topic is None else death.partition,
            offset=None if death.topic is None else death.offset,
            user_line=death.user_line,
            deaths=times,
        )

    # ---- the watchdog

    def _check(self) -> None:
        now = time.monotonic()
        if self._stack_file is not None:
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._stack_file)
        for watched in list(self._tasks):
            active = watched.active
            if active is None:
                continue
            thread, name = active.inside, str(active.id)
            if not thread:
                self._calls.pop(name, None)
                continue
            record = active.task.record
            call = (active.calls, record.topic, record.partition, record.offset, record.timestamp)
            known = self._calls.get(name)
            if known is None or known[0] != call:
                self._calls[name] = (call, now)
            elif now - known[1] >= self._seconds:
                self._end(active, thread)

    def _end(self, active: Any, thread: int) -> None:
        frame, record = sys._current_frames().get(thread), active.task.record
        line = user_line_of(frame)
        cause = f"did not return within {self._seconds:g} s"
        file, number = ("", 0) if line is None else (line.file, line.line)
        death = WorkerCrash(str(active.id), active.task.node_at(frame), record.topic, record.partition, record.offset, cause, file, number)
        _LOG.error("killing this process, because it %s", death, extra=self._about)
        self.write_location(death)
        os.kill(os.getpid(), signal.SIGKILL)
