"""One workload deployed on Spark, measured by what its instances report.

The clock starts when the first instance begins to process its first records, and stops with the commit after which every record
of the input is committed: start-up is excluded, the last commit is included. The reports are small local files, so reading them
costs the broker nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kstreams_repl import Topology
from kstreams_repl.host.spark.instance_reports import ApplicationReport
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig import workloads
from workshop.bench.rig.processes import ProcessSampler
from workshop.bench.rig.testbed import COMPRESSION, LINGER_MS, Testbed, give_up
from workshop.bench.rig.thread_times import PartTimes
from workshop.bench.rig.workloads import Topics

Clients = Literal["defaults", "tuned"]
DEFAULTS: Final[Clients] = "defaults"
TUNED: Final[Clients] = "tuned"
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Settings:
    """How a workload is deployed; the peer gets the same settings."""

    guarantee: str = "exactly_once_v2"
    instances: int = 2
    commit_ms: int = 100
    epoch_ms: int = 10_000
    max_seconds: int = 300
    cache_bytes: int | None = None
    """Size of the record cache; None: the default of each system."""
    clients: Clients = TUNED
    """The producers' linger and compression: the same on both systems, or the defaults of each."""

    def config(self) -> dict[str, Any]:
        """Return Kafka Streams' settings."""
        return {
            **({} if self.cache_bytes is None else {"statestore.cache.max.bytes": self.cache_bytes}),
            "processing.guarantee": self.guarantee,
            "num.stream.threads": self.instances,
            "commit.interval.ms": self.commit_ms,
            "repl.epoch.ms": self.epoch_ms,
            **{f"producer.{name}": value for name, value in self.sending.items()},
        }

    @property
    def sending(self) -> Mapping[str, object]:
        """The settings of the producers that are given to both systems."""
        return {"linger.ms": LINGER_MS, "compression.type": COMPRESSION} if self.clients == TUNED else {}


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run: its start and end (seconds since 1970), and the number of committed records at each sample."""

    records: int
    began: float
    ended: float
    cpu_seconds: float
    broker_cpu_seconds: float
    rss_mb: int
    broker_rss_mb: int
    samples: tuple[tuple[float, int], ...] = field(repr=False)
    threads: PartTimes = field(default_factory=dict, repr=False)

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def rate(self) -> float:
        return self.records / max(self.seconds, 0.001)

    def time_of(self, count: int) -> float:
        """Return when this many records were committed, interpolated linearly between samples."""
        before_at, before = self.began, 0
        for at, committed in self.samples:
            if not committed:
                continue
            if committed >= count:
                return before_at + (at - before_at) * (count - before) / max(1, committed - before)
            before_at, before = at, committed
        return self.ended


def committed_of(report: ApplicationReport, topic: str) -> int:
    """Return the number of committed records of a topic that was not written in transactions, so that offsets count records."""
    return sum(offset for at, offset in report.committed.items() if at.rpartition("-")[0] == topic)


def run_workload(
    testbed: Testbed,
    workload: str,
    topics: Topics,
    records: int,
    settings: Settings,
    name: str,
    *,
    during: AbstractContextManager[object] | None = None,
    then: Callable[[Application], None] | None = None,
) -> MeasuredRun:
    """Run a workload of `workloads` with `run_topology`."""
    topology = workloads.topology(workload, topics)
    after_table = workload == "join"
    return run_topology(
        testbed, topology, {topics.input: records}, settings, name, during=during, then=then, after_table=after_table
    )


def run_topology(
    testbed: Testbed,
    topology: Topology,
    inputs: Mapping[str, int],
    settings: Settings,
    name: str,
    *,
    during: AbstractContextManager[object] | None = None,
    then: Callable[[Application], None] | None = None,
    after_table: bool = False,
    settle_seconds: float = 0.0,
    counted: Callable[[ApplicationReport], int] | None = None,
) -> MeasuredRun:
    """Deploy, wait until every record is committed, stop, and delete what the application made (except its output).

    Args:
        inputs: number of records of each input topic.
        during: context that is active during the measurement, for example another sampler.
        then: called after the measurement, while the application still runs.
        after_table: the clock starts when the topic's first record is processed; a table is read before it.
        settle_seconds: the application has finished when it has committed nothing for so long, for topologies with repartition topics;
            the clock stops with the last commit.
        counted: the number of records of a sample; None: the committed ones of the inputs.

    Raises:
        KStreamsError: the application failed, or did not finish in time.
    """
    own, broker = ProcessSampler(testbed.own_processes), ProcessSampler(testbed.broker_processes)
    records = sum(inputs.values())
    samples: list[tuple[float, int]] = []
    began: float | None = None
    latest: tuple[object, float] | None = None
    app = testbed.session.deploy(topology, name, config=settings.config())
    try:
        with own, broker, during or nullcontext():
            deadline = time.monotonic() + settings.max_seconds
            while True:
                report = app.reports
                done = sum(min(committed_of(report, topic), wanted) for topic, wanted in inputs.items())
                count = done if counted is None else counted(report)
                if not samples or count != samples[-1][1]:
                    samples.append((commit_time_of(report), count))
                elif not count:
                    samples[-1] = (commit_time_of(report), 0)
                firsts = [one.first_at for one in report.instances.values() if one.first_at is not None]
                began = min([*firsts, *([] if began is None else [began])], default=None)
                state = (report.committed, commit_time_of(report))
                if latest is None or state != latest[0]:
                    latest = state, time.monotonic()
                if done >= records and time.monotonic() - latest[1] >= settle_seconds:
                    break
                if app.status == "failed":
                    raise app.error or KStreamsError(f"{name} failed")
                if time.monotonic() > deadline:
                    raise give_up(f"{name}: {records:,} committed records (there are {done:,})", settings.max_seconds)
                time.sleep(_POLL_SECONDS)
        if then is not None:
            then(app)
    finally:
        app.stop()
        testbed.session.cleanup(name)
    ended = max(one.committed_at for one in report.instances.values() if one.committed_at is not None)
    if after_table:
        began = stream_began(samples, began)
    assert began is not None  # something was committed, so something was processed
    return MeasuredRun(
        records,
        began,
        ended,
        own.cpu_between(began, ended),
        broker.cpu_between(began, ended),
        own.peak_rss_mb,
        broker.peak_rss_mb,
        tuple(samples),
    )


def stream_began(samples: list[tuple[float, int]], processed_first: float | None) -> float | None:
    """Return when the stream's first record was processed if a table is read before it: extrapolated from the first two samples
    with committed records, but not before the last sample without any."""
    none_at = max((at for at, committed in samples if committed == 0), default=processed_first)
    some = [(at, committed) for at, committed in samples if committed > 0]
    if len(some) < 2 or none_at is None:
        return processed_first
    (at, committed), (later, more) = some[:2]
    return max(none_at, at - committed * (later - at) / (more - committed))


def commit_time_of(report: ApplicationReport) -> float:
    """Return the time of a report's sum of commits: the last commit or, before the first, a time at which none had happened."""
    commits = [one.committed_at for one in report.instances.values() if one.committed_at is not None]
    if commits:
        return max(commits)
    return min((one.at_ms / 1000 for one in report.instances.values()), default=time.time())
