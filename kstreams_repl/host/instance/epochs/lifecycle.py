"""The states of tasks, instances and runners: one enum and one transition table each. Any other transition raises an error that
lists the last ones.

- `TaskState`: one task at its instance. It is RESTORING while the restore thread holds it and other tasks run; a task whose
  stores were complete at the take-over goes from CREATED to RUNNING. Source: Kafka Streams' Task.State, without SUSPENDED, because
  a pause keeps the whole instance.
- `InstanceState`: the open clients and tasks of one slot. IDLE: kept by the instance cache, at a commit, without a poll loop.
- `RunnerState`: the slot as its reports show it, over all instances that the runner opens and, in one process and generation, over
  all epochs.

Drawn in docs/design/010-host.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from kstreams_repl.system.errors import IllegalStateTransitionError
from kstreams_repl.system.log_context import about
from kstreams_repl.system.types import TaskId

_REMEMBERED = 8
_LOG = logging.getLogger("kstreams_repl.host.instance")


class TaskState(StrEnum):
    """The state of a task."""

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    COMMITTING = "committing"
    FAILED = "failed"
    CLOSED = "closed"


class InstanceState(StrEnum):
    """The state of an open instance."""

    OPENING = "opening"
    RESTORING = "restoring"
    RUNNING = "running"
    IDLE = "idle"
    CLOSED = "closed"


class RunnerState(StrEnum):
    """The state of a slot, as its reports give it."""

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    RECOVERING = "recovering"
    PAUSED = "paused"
    STOPPED = "stopped"
    SUPERSEDED = "superseded"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the runner's instance is closed and its generation does not continue."""
        return self in (RunnerState.STOPPED, RunnerState.SUPERSEDED, RunnerState.FAILED)


TASK_TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    TaskState.CREATED: frozenset({TaskState.RESTORING, TaskState.RUNNING, TaskState.CLOSED}),
    TaskState.RESTORING: frozenset({TaskState.RUNNING, TaskState.CLOSED}),
    TaskState.RUNNING: frozenset({TaskState.COMMITTING, TaskState.FAILED, TaskState.CLOSED}),
    TaskState.COMMITTING: frozenset({TaskState.RUNNING, TaskState.FAILED, TaskState.CLOSED}),
    TaskState.FAILED: frozenset({TaskState.CLOSED}),
    TaskState.CLOSED: frozenset(),
}
_OPEN = frozenset({InstanceState.RESTORING, InstanceState.RUNNING})
INSTANCE_TRANSITIONS: Mapping[InstanceState, frozenset[InstanceState]] = {
    InstanceState.OPENING: _OPEN | {InstanceState.CLOSED},
    InstanceState.RESTORING: frozenset({InstanceState.RUNNING, InstanceState.IDLE, InstanceState.CLOSED}),
    InstanceState.RUNNING: frozenset({InstanceState.IDLE, InstanceState.CLOSED}),
    InstanceState.IDLE: _OPEN | {InstanceState.CLOSED},
    InstanceState.CLOSED: frozenset(),
}
_ENDS = frozenset({RunnerState.PAUSED, RunnerState.STOPPED, RunnerState.SUPERSEDED, RunnerState.FAILED})
_WORKS = frozenset({RunnerState.RESTORING, RunnerState.RUNNING, RunnerState.RECOVERING})
RUNNER_TRANSITIONS: Mapping[RunnerState, frozenset[RunnerState]] = {
    RunnerState.CREATED: _WORKS | _ENDS,
    RunnerState.RESTORING: _WORKS | _ENDS,
    RunnerState.RUNNING: _WORKS | _ENDS,
    RunnerState.RECOVERING: _WORKS | _ENDS,
    RunnerState.PAUSED: (_WORKS | _ENDS) - {RunnerState.PAUSED},
    RunnerState.STOPPED: frozenset({RunnerState.FAILED}),  # its report could not be written
    RunnerState.SUPERSEDED: frozenset({RunnerState.FAILED}),
    RunnerState.FAILED: frozenset(),
}

S = TypeVar("S", bound=StrEnum)


class Lifecycle(Generic[S]):
    """A state and the last transitions that led to it."""

    __slots__ = ("name", "state", "_history")
    transitions: ClassVar[Mapping[StrEnum, frozenset[StrEnum]]]
    hint: ClassVar[str | None] = (
        "this is a bug in kstreams_repl, not in the topology; redeploy to initialise the tasks again, and report it"
    )

    def __init__(self, name: str, first: S) -> None:
        self.name = name
        self.state = first
        self._history: deque[str] = deque([first.value], _REMEMBERED)

    def check(self, wanted: S, why: str = "") -> None:
        """Raise if a state cannot be entered.

        Raises:
            IllegalStateTransitionError: the table has no such transition; the error lists the last ones.
        """
        if wanted not in self.transitions[self.state]:
            reason = f" ({why})" if why else ""
            raise IllegalStateTransitionError(
                f"{self.name} is {self.state} and cannot become {wanted}{reason}; transitions so far: {self.history}",
                hint=self.hint,
                state=self.state.value,
                wanted=wanted.value,
            )

    def enter(self, state: S, why: str) -> None:
        """Enter a state; raise as `check` does."""
        self.check(state, why)
        self._entering(state, why)
        self.state = state
        self._history.append(f"{state} ({why})")

    def _entering(self, state: S, why: str) -> None:
        """Log the transition; the base class does not."""

    @property
    def history(self) -> str:
        """The last transitions, oldest first."""
        return ", then ".join(self._history)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.history})"


class TaskLifecycle(Lifecycle[TaskState]):
    """The states of one task.

    Example:
        >>> life = TaskLifecycle(TaskId(0, 1))
        >>> life.enter(TaskState.RUNNING, "initialised")
        >>> life.enter(TaskState.COMMITTING, "commit 1")
        >>> life
        TaskLifecycle(task 0_1: created, then running (initialised), then committing (commit 1))
    """

    __slots__ = ("_task",)
    transitions = TASK_TRANSITIONS  # type: ignore[assignment]

    def __init__(self, task: TaskId) -> None:
        super().__init__(f"task {task}", TaskState.CREATED)
        self._task = str(task)

    def _entering(self, state: TaskState, why: str) -> None:
        level = logging.ERROR if state is TaskState.FAILED else logging.INFO
        if TaskState.COMMITTING in (state, self.state) and state is not TaskState.FAILED:
            level = logging.DEBUG
        _LOG.log(level, "%s -> %s (%s)", self.state.value, state.value, why, extra={"task": self._task})


class InstanceLifecycle(Lifecycle[InstanceState]):
    """The states of one open instance; its runner logs them as the slot's."""

    __slots__ = ()
    transitions = INSTANCE_TRANSITIONS  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        super().__init__(f"instance {name}", InstanceState.OPENING)


class RunnerLifecycle(Lifecycle[RunnerState]):
    """The states of one slot in one process and generation: one line in the log for each change, although reports repeat a state
    a few times a second.
    """

    __slots__ = ("_application", "_slot", "_generation")
    transitions = RUNNER_TRANSITIONS  # type: ignore[assignment]

    def __init__(self, application: str, slot: int, generation: int) -> None:
        super().__init__(f"instance {application}[{slot}]", RunnerState.CREATED)
        self._application, self._slot, self._generation = application, slot, generation

    def enter(self, state: RunnerState, why: str = "") -> None:
        """Enter a state, unless it is the current one; `why` is by default the generation."""
        if state is not self.state:
            super().enter(state, why or f"generation {self._generation}")

    def _entering(self, state: RunnerState, why: str) -> None:
        about(self._application, self._slot)
        level = logging.ERROR if state is RunnerState.FAILED else logging.INFO
        _LOG.log(level, "%s -> %s (%s)", self.state.value, state.value, why)
