"""What the test driver and the mock context provide to a processor besides records: metrics and a directory, as an instance
does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.metrics.catalogue import TASK, TASK_ID, THREAD_ID
from kstreams_repl.engine.metrics.counters import Steps
from kstreams_repl.engine.metrics.custom import StreamsMetrics
from kstreams_repl.engine.metrics.metrics_registry import Registry
from kstreams_repl.engine.metrics.metrics_snapshot import Metric
from kstreams_repl.engine.metrics.sensors import Window, record
from kstreams_repl.engine.processor.current_call import CallContext
from kstreams_repl.engine.runtime.calls.call import CallRunner
from kstreams_repl.engine.runtime.calls.call_results import ResultLog
from kstreams_repl.engine.runtime.nodes.collector import Direct, Send, Site
from kstreams_repl.engine.runtime.task import TOTALS, StreamTask
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.system.extras import extras
from kstreams_repl.system.forks import finalizer_of
from kstreams_repl.system.types import Headers

if TYPE_CHECKING:
    from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
    from kstreams_repl.table_files.row_batches import Misfit
    from kstreams_repl.test_driver.virtual_calls import VirtualCallRunner

NO_HEADERS: Headers = []
_MAP_BYTES = 1 << 30
"""Size of the address space of a test's stores; the file grows with its rows."""


class CollectorTopics(Protocol):
    """What the collector asks about topics (`testing.driver_tasks.DriverTopics`)."""

    def partitions(self, topic: str) -> int: ...

    def partition_of(self, topic: str, key: bytes | None) -> int: ...


class DriverCollector:
    """Collects the output of the driver's tasks, in order."""

    def __init__(self, topics: CollectorTopics) -> None:
        self.sent: list[tuple[str, bytes | None, bytes | None, int, Headers, int]] = []
        self.tables: dict[tuple[str, int], DriverRows] = {}
        self.partitions, self.partition_of = topics.partitions, topics.partition_of

    def sender(self, topic: str, site: Site | None = None) -> Send:
        append, partition_of = self.sent.append, self.partition_of

        def send(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            number = partition_of(topic, key) if partition is None else partition
            append((topic, key, value, timestamp, list(headers) if headers else [], number))

        return send

    def direct(self, topic: str, site: Site | None = None) -> Direct:
        """Return the call that sinks make in loops when they are deployed, so that the driver's tests cover it."""
        append, partition_of = self.sent.append, self.partition_of

        def produce(
            topic: str, value: bytes | None, key: bytes | None, place: int, _: None, __: None, timestamp: int, headers: Headers = NO_HEADERS
        ) -> None:
            append((topic, key, value, timestamp, list(headers), partition_of(topic, key) if place < 0 else place))

        def refused(error: Exception, *record: object) -> None:
            raise error

        return Direct(produce, refused)

    def rows(self, node: str, table: TableFiles, partition: int, misfit: Misfit, context: Callable[[], object] | None = None) -> DriverRows:
        rows = self.tables[node, partition] = DriverRows(table, misfit, context)
        return rows


class DriverRows:
    """`engine.runtime.nodes.collector.RowSink` that keeps the rows in memory."""

    def __init__(self, table: TableFiles, misfit: Misfit, context: Callable[[], object] | None) -> None:
        from kstreams_repl.table_files.row_batches import RowBatches

        self.table = table
        self._rows = RowBatches(table, misfit, context)
        self.append = self._rows.append
        self.written: list[dict[str, object]] = []

    def recover(self, head: int) -> None: ...

    def convert(self) -> None:
        self._rows.convert()

    def stage(self, offsets: Mapping[str, int]) -> int | None:
        for batch in self._rows.take():
            self.written += batch.to_pylist()
        return None

    def committed(self) -> None: ...

    @property
    def behind(self) -> int:
        return 0


class DriverHost:
    """The environment of one task, or of the mock context, which has no task and never calls `give`.

    Args:
        results: durable results of asynchronous nodes that are known already; None: none.
    """

    def __init__(
        self,
        config: StreamsConfig,
        wall_clock: Callable[[], int],
        call_latency: Callable[[CallContext], int] | None = None,
        results: ResultLog | None = None,
    ) -> None:
        self._registry = Registry(
            config["metrics.recording.level"], Window(config["metrics.num.samples"], config["metrics.sample.window.ms"])
        )
        self._tags: Mapping[str, str] = {THREAD_ID: f"{config['application.id']}-StreamThread-1"}
        self._wall_clock = wall_clock
        self.custom = StreamsMetrics(config["metrics.recording.level"])
        self.custom.read_all = self.metrics
        self._task: StreamTask | None = None
        self._totals = [(read, self._registry.sensor().rate_and_total(name), Steps()) for name, read in TOTALS.items()]
        self._directory: Path | None = None
        self._environment: LmdbEnvironment | None = None
        self.calls: VirtualCallRunner | None = None
        """The runner of the task's asynchronous nodes; None: it has none."""
        self._call_latency, self._results = call_latency, results

    def give(self, task: StreamTask) -> StreamTask:
        """Attach this host to a task before it is initialised, so that its processors can use it. Returns the task."""
        self._task = task
        for _, sensor, _ in self._totals:
            self._registry.add(sensor, TASK, {**self._tags, TASK_ID: str(task.id)})
        task.attach(state_dir=self.state_dir, runner=self._call_runner, metrics=self.custom)
        return task

    def _call_runner(self) -> CallRunner:
        from kstreams_repl.test_driver.virtual_calls import VirtualCallRunner  # brings asyncio

        runner = VirtualCallRunner(self._wall_clock, self._call_latency, self._results)
        self.calls = runner
        return runner

    def run_calls(self) -> bool:
        """Run the calls of asynchronous nodes that are due; return whether a result waits to be replayed."""
        if self.calls is None or self._task is None or self._task.calls is None:
            return False
        self.calls.run()
        due = self._task.calls.next_due
        return bool(self._task.calls.arrived) or due is not None and due <= self._wall_clock()

    def time_of_calls(self, until: int) -> int | None:
        """Return the next time up to `until` (ms) at which calls have something to do; None: they have not."""
        if self.calls is None or self._task is None or self._task.calls is None:
            return None
        due = [time for time in (self.calls.next_due, self._task.calls.next_due) if time is not None and time <= until]
        return max(min(due), self._wall_clock()) if due else None

    def fold(self) -> None:
        """Add what was recorded so far to the metrics: before the clock advances, and before metrics are read."""
        now = self._wall_clock()
        if self._task is not None:
            for read, sensor, steps in self._totals:
                record(sensor, steps.take(read(self._task)), now)
        self.custom.fold(self._registry, self._tags, now)

    def metrics(self) -> list[Metric]:
        """Return all metrics as of now."""
        self.fold()
        return list(self._registry.snapshot(self._wall_clock()))

    def state_dir(self) -> Path:
        """Return a temporary directory; made at the first call, removed by `close`."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="kstreams-test-"))
            self._remove = finalizer_of(self, shutil.rmtree, self._directory, True)
        return self._directory

    def environment(self, copied: Path | None = None) -> LmdbEnvironment:
        """Return the LMDB environment of a task that runs as deployed.

        Args:
            copied: a directory with an environment that no one has open; this one is a copy of it. None: it is empty.

        Raises:
            KStreamsError: lmdb is not installed.
        """
        with extras():
            from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
        place, size = self.state_dir() / "lmdb", 0
        if copied is not None:
            shutil.copytree(copied, place, ignore=shutil.ignore_patterns("lock.mdb"))
            size = (place / "data.mdb").stat().st_size
        self._environment = LmdbEnvironment(place, map_bytes=_MAP_BYTES + 2 * size)
        if self._environment.owner is not None:  # the copy belongs to this task
            self._environment.take_ownership("copy")
        return self._environment

    def close(self) -> None:
        """Remove the directory. Metrics can still be read."""
        if self.calls is not None:
            self.calls.close()
        if self._environment is not None:
            self._environment.close()
        if self._directory is not None:
            self._remove()
