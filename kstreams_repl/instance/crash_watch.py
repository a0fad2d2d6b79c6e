"""What becomes of user code that takes its process with it, or never returns.

A worker that segfaults, leaves by `os._exit`, is killed for its memory, or loops for ever inside a user's function is started again by
Spark. What was not committed is processed again, so nothing is lost or done twice; but a record that kills every process would do so for
ever.
So each slot has two small files beside its stores: in one the process says that a commit is open, in the other the interpreter leaves the
stack of a process that crashes (`faulthandler`). Numbered, for the process that comes next (`begin`):

1. A process of this generation is gone while its commit was open: it *died at work*. Where is read from the files: what the watchdog wrote,
   the place of a traced task, the stack.
2. Died at work for the last time: the error names node, record and line. That is when the same place was it `retries` times.
3. Else the slot works *traced* for a while (`runtime.tracing`), so that the next death has a place, down to the record.

The *watchdog* looks whether one call of user code stays at one record for `max.poll.interval.ms`; it writes the place down and ends the
process. A call that holds the interpreter's lock, so that no other thread runs, is ended by `faulthandler`'s timer, which needs no lock.

Costs: two writes of one byte per task and commit; nothing per record.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kstreams_repl.errors import WorkerDiedError
from kstreams_repl.instance.crash_places import Death, death_of_stack, user_line_of
from kstreams_repl.instance.local_state import start_time
from kstreams_repl.instance.periodic import PeriodicThread
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.instance.state_directory import tasks_folder

_LOG = logging.getLogger("kstreams_repl.instance")
WATCHDOG_THREAD = PeriodicThread("watchdog")
CALM_SECONDS = 10.0
"""How long a slot works traced after a death."""
_HISTORY_BYTES, _OPEN_BYTES, _PLACE_BYTES = 8192, 1024, 2048
_OPEN_AT, _PLACE_AT = _HISTORY_BYTES, _HISTORY_BYTES + _OPEN_BYTES
_MOST_DEATHS = 12
_LOOKS = 8
"""Of the watchdog, while a call may last."""


class TaskWatch:
    """What a task tells of itself (`active_task.ActiveTask`); also its `runtime.tracing.Trace` while the slot works traced.

    Attributes:
        open: a commit of the task is open: user code has run since the last one.
        active: the `ActiveTask`, once there is one.
    """

    __slots__ = ("open", "active", "traced", "_watch", "_number", "_task")

    def __init__(self, watch: CrashWatch, number: int, task: str) -> None:
        self.open = False
        self.active: Any = None
        self.traced = watch.careful
        self._watch = watch
        self._number = number
        self._task = task

    def begin(self) -> None:
        """User code is about to run."""
        self.open = True
        self._watch.write(b"\x01", _OPEN_AT + self._number % _OPEN_BYTES)

    def end(self) -> None:
        """All that was done is committed."""
        self.open = False
        self._watch.write(b"\x00", _OPEN_AT + self._number % _OPEN_BYTES)

    def at(self, node: str | None, topic: str | None, partition: int, offset: int) -> None:
        self._watch.place(None if node is None else Death(self._task, node, topic, partition, offset))


class CrashWatch:
    """One slot in this process.

    Args:
        plan: names, directories, nodes and limits.

    Attributes:
        careful: tasks are to be traced; instances opened from now on.
    """

    def __init__(self, plan: ApplicationPlan, slot: int, executor: str) -> None:
        folder = tasks_folder(Path(plan.state_directory), plan.application_id, executor)
        self._plan = plan
        self._slot = slot
        self._marks = folder / f".working-{slot}"
        self._stack = folder / f".stack-{slot}"
        self._seconds: float = plan.config["max.poll.interval.ms"] / 1000
        self._retries: int = plan.config["repl.crash.retries"]
        self._nodes = frozenset(node.name for spec in plan.assignment[slot] for node in spec.subtopology.nodes)
        self._me = {"pid": os.getpid(), "start": start_time(os.getpid())}
        self._file: int | None = None
        self._stack_file: Any = None
        self._deaths: list[Death] = []
        self._calm_at = 0.0
        self._calls: dict[str, tuple[object, float]] = {}
        self._tasks: list[TaskWatch] = []
        self.careful = False

    # ---- the runner's side

    def begin(self) -> None:
        """Look at what the process before left, and leave marks from now on. Without room on the disk there are none.

        Raises:
            WorkerDiedError: step 2.
        """
        self._deaths = self._read()
        self._tasks.clear()
        self.careful = bool(self._deaths)
        if self._deaths:
            last = self._deaths[-1]
            if sum(last.is_same(other) for other in self._deaths) >= self._retries:
                raise self._error(last)
            self._calm_at = time.monotonic() + CALM_SECONDS
        self.close()
        told = {"generation": self._plan.generation, **self._me, "deaths": [death.plain() for death in self._deaths]}
        try:
            self._marks.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(self._marks, os.O_CREAT | os.O_RDWR, 0o600)
            os.posix_fallocate(self._file, 0, _PLACE_AT + _PLACE_BYTES)
            self._stack_file = self._stack.open("wb", buffering=0)
        except OSError as error:
            _LOG.info("a crash of instance %d of %s would leave no trace: %s", self._slot, self._plan.application_id, error)
            self.close()
            return
        self.write(json.dumps(told).encode().ljust(_HISTORY_BYTES)[:_HISTORY_BYTES] + bytes(_OPEN_BYTES), 0)
        self.place(None)

    def arm(self) -> None:
        """Watch the tasks from now on."""
        if self._stack_file is not None:
            faulthandler.enable(self._stack_file)
        self._calls.clear()
        WATCHDOG_THREAD.watch(self, min(1.0, self._seconds / _LOOKS), self._look)

    def rest(self) -> None:
        """Watch nothing for now: no task is at work."""
        WATCHDOG_THREAD.forget(self)
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()

    def close(self) -> None:
        """Leave the files to whoever comes next; nothing is open any more."""
        file, self._file = self._file, None
        stack, self._stack_file = self._stack_file, None
        if file is not None:
            with suppress(OSError, ValueError):
                if self._is_mine(json.loads(os.pread(file, _HISTORY_BYTES, 0))):
                    os.pwrite(file, bytes(_OPEN_BYTES), _OPEN_AT)
            os.close(file)
        if stack is not None:
            stack.close()

    def task(self, task: str, number: int) -> TaskWatch:
        made = TaskWatch(self, number, task)
        self._tasks.append(made)
        return made

    def bound(self, until: float) -> float:
        """How long to run: an instance that is traced ends early, to be opened again as a usual one."""
        return min(until, self._calm_at) if self.careful else until

    def calm(self) -> bool:
        """Whether the traced stretch is over; the deaths before it are forgotten."""
        if not self.careful or time.monotonic() < self._calm_at:
            return False
        self.careful = False
        self._deaths.clear()
        self.write(json.dumps({"generation": self._plan.generation, **self._me, "deaths": []}).encode().ljust(_HISTORY_BYTES), 0)
        return True

    # ---- the files

    def write(self, data: bytes, at: int) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, data, at)

    def place(self, death: Death | None) -> None:
        text = b"" if death is None else json.dumps(death.plain()).encode()
        self.write((text if len(text) < _PLACE_BYTES else b"").ljust(_PLACE_BYTES), _PLACE_AT)

    def _is_mine(self, told: Mapping[str, Any]) -> bool:
        return told.get("pid") == self._me["pid"] and told.get("start") == self._me["start"]

    def _read(self) -> list[Death]:
        """The deaths so far, with that of the process before if it died at work."""
        try:
            data = self._marks.read_bytes()
            told = json.loads(data[:_HISTORY_BYTES])
            if told["generation"] != self._plan.generation:
                return []
            deaths = [Death.read(each) for each in told["deaths"]]
            if self._is_mine(told):
                return deaths
            if start_time(told["pid"]) == told["start"] or not any(data[_OPEN_AT:_PLACE_AT]):
                return deaths
            place = data[_PLACE_AT:].strip()
            death = Death.read(json.loads(place)) if place else Death()
            stack = death_of_stack(self._stack.read_text(encoding="utf-8", errors="replace"), self._nodes)
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or a file of another kind
            return []
        death = death.merged(stack)
        _LOG.warning("worker %s of instance %d of %s %s", told["pid"], self._slot, self._plan.application_id, death)
        return [*deaths, death][-_MOST_DEATHS:]

    def _error(self, death: Death) -> WorkerDiedError:
        line = f"\n  {death.file}:{death.line}" if death.file else ""
        times = sum(death.is_same(other) for other in self._deaths)
        return WorkerDiedError(
            f"the worker {death}{line}\n  and so it went {times} times",
            hint="a crash in native code, os._exit, too much memory, or a loop without an end in this node's function "
            "(max.poll.interval.ms); fix it and deploy again: what was committed stays and nothing is lost",
            node=death.node,
            task=death.task,
            topic=death.topic,
            partition=None if death.topic is None else death.partition,
            offset=None if death.topic is None else death.offset,
            user_line=death.user_line,
            deaths=times,
        )

    # ---- the watchdog

    def _look(self) -> None:
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
            at = active.task.services.record
            call = (active.calls, at.topic, at.partition, at.offset, at.timestamp)
            known = self._calls.get(name)
            if known is None or known[0] != call:
                self._calls[name] = (call, now)
            elif now - known[1] >= self._seconds:
                self._end(active, thread)

    def _end(self, active: Any, thread: int) -> None:
        frame, at = sys._current_frames().get(thread), active.task.services.record
        line = user_line_of(frame)
        cause = f"did not return within {self._seconds:g} s"
        file, number = ("", 0) if line is None else (line.file, line.line)
        death = Death(str(active.id), active.task.node_at(frame), at.topic, at.partition, at.offset, cause, file, number)
        _LOG.error("instance %d of %s is ended, for it %s", self._slot, self._plan.application_id, death)
        self.place(death)
        os.kill(os.getpid(), signal.SIGKILL)
