"""What instances report, as values a driver, a notebook or a test can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kstreams_repl.instance.control import LeaseWriter


@dataclass(frozen=True, slots=True)
class TaskReport:
    """One task. `records` since its instance took it over; `rate` in records per second, lately; `lag` in records, -1 while unknown;
    `committed` by ``topic-partition``.
    """

    task: str
    records: int
    lag: int
    buffered: int
    stream_time: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """One instance.

    Attributes:
        state: restoring, running, recovering, paused, stopped, failed or superseded.
        rate: records per second, lately.
        restored, restore_remaining: changelog records read when the tasks were taken over, and those still to read.
        snapshots, from_snapshots: commit ids, by task, of the last snapshot taken, and of the one its stores began from.
        snapshot_trouble: why snapshots cannot be taken or read now. The application goes on without them.
        recycled: environments that stayed open in the process from one generation to the next.
        first_at, committed_at: when it began to process its first records, and when it last committed any (seconds since 1970).
        stage: which step of its take-over an instance is at.
        trouble: why it is recovering.
        place: on a cluster, the executor's state directory.
        taps: whether values that pass its nodes can be looked at: on a cluster only where the driver's control directory is on its disk.
        standbys: of the tasks whose stores it keeps copies of, how many records each is behind; -1 while unknown.
    """

    slot: int
    state: str
    pid: int
    at_ms: int
    records: int = 0
    rate: float = 0.0
    commits: int = 0
    commit_id: int = -1
    warm: bool = False
    first_at: float | None = None
    committed_at: float | None = None
    restored: int = 0
    restore_remaining: int = 0
    stage: str | None = None
    trouble: str | None = None
    failure: Mapping[str, Any] | None = None
    tasks: Mapping[str, TaskReport] = field(default_factory=dict)
    place: str | None = None
    taps: bool = True
    recycled: int = 0
    snapshots: Mapping[str, int] = field(default_factory=dict)
    from_snapshots: Mapping[str, int] = field(default_factory=dict)
    standbys: Mapping[str, int] = field(default_factory=dict)
    snapshot_trouble: str | None = None


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """All instances of one generation, by slot; empty before the first report."""

    generation: int
    instances: Mapping[int, InstanceReport] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return sum(instance.records for instance in self.instances.values())

    @property
    def rate(self) -> float:
        return sum(instance.rate for instance in self.instances.values())

    @property
    def tasks(self) -> dict[str, TaskReport]:
        return {name: task for instance in self.instances.values() for name, task in sorted(instance.tasks.items())}

    @property
    def lag(self) -> int:
        """Records behind, over all tasks; -1 while any task does not know."""
        lags = [task.lag for task in self.tasks.values()]
        return -1 if not lags or min(lags) < 0 else sum(lags)

    @property
    def committed(self) -> dict[str, int]:
        """Next input offset by ``topic-partition``."""
        return {at: offset for task in self.tasks.values() for at, offset in task.committed.items()}


def read_reports(lease: LeaseWriter, generation: int) -> ApplicationReport:
    """The last reports of a generation's instances."""
    told = lease.reports(generation)
    return ApplicationReport(generation, {slot: _instance(report) for slot, report in sorted(told.items())})


def _instance(report: Mapping[str, Any]) -> InstanceReport:
    tasks = {
        name: TaskReport(
            name,
            said["records"],
            said["lag"],
            said["buffered"],
            said["stream_time"],
            said["dropped"],
            said["committed"],
            said.get("rate", 0.0),
        )
        for name, said in (report.get("tasks") or {}).items()
    }
    plain = {name: report[name] for name in InstanceReport.__dataclass_fields__ if name != "tasks" and name in report}
    return InstanceReport(**plain, tasks=tasks)
