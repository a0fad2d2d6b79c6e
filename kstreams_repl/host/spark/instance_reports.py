"""Reports of instances as values for a driver, a notebook or a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kstreams_repl.host.instance.control.channel import ControlChannel
from kstreams_repl.system.types import JsonMapping


@dataclass(frozen=True, slots=True)
class TaskReport:
    """One task. `records` since its instance initialised it; `rate` is the recent rate in records per second; `lag` in records, -1 when
    unknown; `committed` and `lags` by ``topic-partition``; `slow_ms` is the mean time of a record if it is above 100 ms.
    """

    task: str
    records: int
    lag: int
    buffered: int
    stream_time: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)
    rate: float = 0.0
    lags: Mapping[str, int] = field(default_factory=dict)
    slow_ms: float | None = None


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """One instance.

    Attributes:
        state: restoring, running, recovering, paused, stopped, failed or superseded.
        rate: recent rate in records per second.
        restored, restore_remaining: changelog records read while the tasks were initialised, and those still to read.
        snapshots, from_snapshots: commit ids, by task, of the last snapshot taken, and of the one from which its stores were restored.
        snapshot_trouble: why snapshots currently cannot be taken or read. The application runs without them.
        uncopied: nodes in which objects wait that cannot be copied, and the types of these.
        recycled: environments that stayed open in the process from one generation to the next.
        first_at, committed_at: when it began to process its first records, and when it last committed records (epoch seconds).
        stage: the current step of its task initialisation.
        trouble: why it is recovering.
        place: on a cluster, the executor's state directory.
        skipped: by input partition, how many offsets were deleted from the topic (by its retention) before they were read.
        nodes: counts of the nodes of its tasks since the application was created: taken, given, records taken per second, dropped by
            reason. None if it reports none: at rest the commit contains them.
        global_nodes: as `nodes`, for global tables, which are read again with each task initialisation.
        calls: for each asynchronous node: in_flight, waiting, to_retry, failed, repeats, breaker, latency_ms.
        standbys: for each standby task, how many records it is behind; -1 when unknown.
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
    failure: JsonMapping | None = None
    tasks: Mapping[str, TaskReport] = field(default_factory=dict)
    place: str | None = None
    recycled: int = 0
    snapshots: Mapping[str, int] = field(default_factory=dict)
    from_snapshots: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[str, JsonMapping] = field(default_factory=dict)
    standbys: Mapping[str, int] = field(default_factory=dict)
    snapshot_trouble: str | None = None
    uncopied: Sequence[tuple[str, str]] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[str, Sequence[Any]] | None = None
    global_nodes: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """All instances of one generation by slot; empty before the first report."""

    generation: int
    instances: Mapping[int, InstanceReport] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return sum(instance.records for instance in self.instances.values())

    @property
    def remote(self) -> bool:
        """Whether its instances run on other hosts than their driver, as far as they have reported."""
        return any(instance.place is not None for instance in self.instances.values())

    @property
    def rate(self) -> float:
        return sum(instance.rate for instance in self.instances.values())

    @property
    def tasks(self) -> dict[str, TaskReport]:
        return {name: task for instance in self.instances.values() for name, task in sorted(instance.tasks.items())}

    @property
    def lag(self) -> int:
        """The total lag in records; -1 while it is unknown for any task."""
        lags = [task.lag for task in self.tasks.values()]
        return -1 if not lags or min(lags) < 0 else sum(lags)

    @property
    def committed(self) -> dict[str, int]:
        """Next input offset by ``topic-partition``."""
        return {at: offset for task in self.tasks.values() for at, offset in task.committed.items()}


def read_reports(lease: ControlChannel, generation: int) -> ApplicationReport:
    """Return the latest reports of a generation's instances."""
    return application_report(generation, lease.reports(generation))


def application_report(generation: int, reports: Mapping[int, JsonMapping]) -> ApplicationReport:
    """Return the reports of a generation's instances, given by slot as a control channel has them."""
    return ApplicationReport(generation, {slot: _instance(report) for slot, report in sorted(reports.items())})


def _instance(report: JsonMapping) -> InstanceReport:
    tasks = {
        name: TaskReport(
            name,
            task["records"],
            task["lag"],
            task["buffered"],
            task["stream_time"],
            task["dropped"],
            task["committed"],
            task.get("rate", 0.0),
            task.get("lags") or {},
            task.get("slow_ms"),
        )
        for name, task in (report.get("tasks") or {}).items()
    }
    plain = {name: report[name] for name in InstanceReport.__dataclass_fields__ if name != "tasks" and name in report}
    return InstanceReport(**plain, tasks=tasks)
