"""The result of one stretch of an instance, by task, as shown in Spark's progress of an epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kstreams_repl.instance.tasks.active_task import ActiveTask
from kstreams_repl.types import TaskId


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """One task in one stretch: records processed, dropped and restored in it; `lag` at its end, -1 while unknown."""

    records: int = 0
    dropped: int = 0
    restored: int = 0
    lag: int = -1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one stretch of an instance.

    Attributes:
        state: ``running`` (the deadline was reached), ``paused``, ``stopped``, ``superseded`` or ``failed``.
        tasks: the work of each task in this stretch.
        failure: of a failed one, as `failure_of` returns it.
        seconds: duration of the stretch.
    """

    slot: int
    state: str
    tasks: Mapping[str, TaskOutcome] = field(default_factory=dict)
    failure: Mapping[str, Any] | None = None
    warm: bool = False
    seconds: float = 0.0

    @property
    def records(self) -> dict[str, int]:
        """Records processed, by task."""
        return {name: task.records for name, task in self.tasks.items()}


class Done:
    """Adds up the tasks' work in a stretch, also across take-overs within it."""

    def __init__(self, carried: Mapping[str, TaskOutcome] | None = None) -> None:
        self._before: dict[str, tuple[int, int]] = {}
        self._done: dict[str, TaskOutcome] = dict(carried or {})
        self._restored: dict[str, int] = {name: task.restored for name, task in self._done.items()}

    def told(self) -> None:
        """Note that the work up to now has been reported."""
        self._done, self._restored = {}, {}

    def begin(self, tasks: Iterable[ActiveTask]) -> None:
        """Start counting these tasks; a task kept between epochs has counts already."""
        self._before = {str(task.id): (task.records, sum(task.task.dropped.values())) for task in tasks}

    def restored(self, counts: Mapping[str, int]) -> None:
        """Take the counts of a restore, in progress or complete, since the last call."""
        for name, count in counts.items():
            self._restored[name] = self._restored.get(name, 0) + count

    def count(self, tasks: Iterable[ActiveTask], lags: Mapping[TaskId, int]) -> None:
        """Take the tasks' work since the last call."""
        for task in tasks:
            name, dropped = str(task.id), sum(task.task.dropped.values())
            before = self._before.get(name, (0, 0))
            known = self._done.get(name, TaskOutcome())
            self._done[name] = TaskOutcome(
                known.records + task.records - before[0],
                known.dropped + dropped - before[1],
                known.restored,
                lags.get(task.id, -1),
            )
            self._before[name] = (task.records, dropped)

    def by_task(self) -> dict[str, TaskOutcome]:
        """Return the outcome of each task."""
        names = [*self._done, *(name for name in self._restored if name not in self._done)]
        return {
            name: TaskOutcome(known.records, known.dropped, self._restored.get(name, 0), known.lag)
            for name in names
            for known in [self._done.get(name, TaskOutcome())]
        }
