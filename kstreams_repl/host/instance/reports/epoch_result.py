"""The result of an instance's work in one epoch, by task, as shown in Spark's progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.system.types import JsonMapping, TaskId


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task in one epoch: records processed, dropped and restored in it; `lag` at its end, -1 while unknown."""

    records: int = 0
    dropped: int = 0
    restored: int = 0
    lag: int = -1


@dataclass(frozen=True, slots=True)
class EpochResult:
    """The result of one epoch of an instance.

    Attributes:
        state: ``running`` (the deadline was reached), ``paused``, ``stopped``, ``superseded`` or ``failed``.
        tasks: the work of each task in this epoch.
        failure: of a failed one, as `failure_of` returns it.
        seconds: duration of the epoch.
    """

    slot: int
    state: str
    tasks: Mapping[str, TaskResult] = field(default_factory=dict)
    failure: JsonMapping | None = None
    warm: bool = False
    seconds: float = 0.0

    @property
    def records(self) -> dict[str, int]:
        """Records processed, by task."""
        return {name: task.records for name, task in self.tasks.items()}


class TaskWork:
    """Adds up the tasks' work in an epoch, also across take-overs within it.

    Args:
        carried: work that no epoch has reported yet.
    """

    def __init__(self, carried: Mapping[str, TaskResult] | None = None) -> None:
        self._before: dict[str, tuple[int, int]] = {}
        self._done: dict[str, TaskResult] = dict(carried or {})
        self._restored: dict[str, int] = {name: task.restored for name, task in self._done.items()}

    def reset(self) -> None:
        """Start at zero: the work up to now has been reported."""
        self._done, self._restored = {}, {}

    def begin(self, tasks: Iterable[ActiveTask]) -> None:
        """Start counting these tasks; a task kept between epochs has counts already."""
        self._before = {str(task.id): (task.records, sum(task.task.dropped.values())) for task in tasks}

    def add_restored(self, counts: Mapping[str, int]) -> None:
        """Add the counts of a restore, in progress or complete, since the last call."""
        for name, count in counts.items():
            self._restored[name] = self._restored.get(name, 0) + count

    def add(self, tasks: Iterable[ActiveTask], lags: Mapping[TaskId, int]) -> None:
        """Add the tasks' work since the last call."""
        for task in tasks:
            name, dropped = str(task.id), sum(task.task.dropped.values())
            before = self._before.get(name, (0, 0))
            known = self._done.get(name, TaskResult())
            self._done[name] = TaskResult(
                known.records + task.records - before[0],
                known.dropped + dropped - before[1],
                known.restored,
                lags.get(task.id, -1),
            )
            self._before[name] = (task.records, dropped)

    def by_task(self) -> dict[str, TaskResult]:
        """Return the result of each task."""
        names = [*self._done, *(name for name in self._restored if name not in self._done)]
        return {
            name: TaskResult(known.records, known.dropped, self._restored.get(name, 0), known.lag)
            for name in names
            for known in [self._done.get(name, TaskResult())]
        }
