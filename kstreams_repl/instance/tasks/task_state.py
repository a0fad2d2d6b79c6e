"""The states of a task at its instance, in one transition table; any other transition raises an error with the task's last
transitions.

    CREATED → RESTORING → RUNNING ⇄ COMMITTING          RUNNING, COMMITTING → FAILED          any → CLOSED

RESTORING: held by the restore thread while other tasks run; a task whose stores were complete at the take-over goes from CREATED
to RUNNING.

Source: Kafka Streams' Task.State. SUSPENDED is missing, because a pause keeps the whole instance (`instance_cache`) and its tasks
stay as they are, at a commit.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from enum import StrEnum

from kstreams_repl.errors import IllegalStateTransitionError
from kstreams_repl.types import TaskId


class TaskState(StrEnum):
    """The state of a task."""

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    COMMITTING = "committing"
    FAILED = "failed"
    CLOSED = "closed"


_NEXT: Mapping[TaskState, frozenset[TaskState]] = {
    TaskState.CREATED: frozenset({TaskState.RESTORING, TaskState.RUNNING, TaskState.CLOSED}),
    TaskState.RESTORING: frozenset({TaskState.RUNNING, TaskState.CLOSED}),
    TaskState.RUNNING: frozenset({TaskState.COMMITTING, TaskState.FAILED, TaskState.CLOSED}),
    TaskState.COMMITTING: frozenset({TaskState.RUNNING, TaskState.FAILED, TaskState.CLOSED}),
    TaskState.FAILED: frozenset({TaskState.CLOSED}),
    TaskState.CLOSED: frozenset(),
}
_REMEMBERED = 8
_LOG = logging.getLogger("kstreams_repl.instance")


class TaskLife:
    """The state of one task and its last transitions.

    Example:
        >>> life = TaskLife(TaskId(0, 1))
        >>> life.enter(TaskState.RUNNING, "taken over")
        >>> life.enter(TaskState.COMMITTING, "commit 1")
        >>> life
        TaskLife(0_1: created, then running (taken over), then committing (commit 1))
    """

    __slots__ = ("id", "state", "_story")

    def __init__(self, id: TaskId) -> None:
        self.id = id
        self.state = TaskState.CREATED
        self._story: deque[str] = deque([TaskState.CREATED.value], _REMEMBERED)

    def enter(self, state: TaskState, why: str) -> None:
        """Enter a state.

        Raises:
            IllegalStateTransitionError: the table has no such transition; the error names the last ones.
        """
        if state not in _NEXT[self.state]:
            raise IllegalStateTransitionError(
                f"task {self.id} is {self.state} and cannot become {state} ({why}); its story: {self.story}",
                hint="this is an error of the host, not of the topology: the task is taken over anew",
                task=str(self.id),
                state=self.state.value,
                wanted=state.value,
            )
        level = logging.ERROR if state is TaskState.FAILED else logging.INFO
        if TaskState.COMMITTING in (state, self.state) and state is not TaskState.FAILED:
            level = logging.DEBUG
        _LOG.log(level, "%s -> %s (%s)", self.state.value, state.value, why, extra={"task": str(self.id)})
        self.state = state
        self._story.append(f"{state} ({why})")

    @property
    def story(self) -> str:
        """The last transitions, oldest first."""
        return ", then ".join(self._story)

    def __repr__(self) -> str:
        return f"TaskLife({self.id}: {self.story})"
