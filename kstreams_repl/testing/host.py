"""What the test driver and the mock context provide to a processor besides records: metrics and a directory, as an instance
does."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kstreams_repl.config import StreamsConfig
from kstreams_repl.extras import extras
from kstreams_repl.metrics.catalogue import TASK, TASK_ID, THREAD_ID
from kstreams_repl.metrics.counters import Steps
from kstreams_repl.metrics.custom import StreamsMetrics
from kstreams_repl.metrics.registry import Registry
from kstreams_repl.metrics.sensors import Window, record
from kstreams_repl.metrics.snapshot import Metric
from kstreams_repl.runtime.collector import Send, Site
from kstreams_repl.runtime.task import StreamTask
from kstreams_repl.types import Headers

_MAP_BYTES = 1 << 30
"""Size of the address space of a test's stores; the file grows with its rows."""


class DriverCollector:
    """Collects the task's output in order; every topic has one partition."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None, bytes | None, int, Headers]] = []

    def sender(self, topic: str, site: Site | None = None) -> Send:
        append = self.sent.append

        def send(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            append((topic, key, value, timestamp, list(headers) if headers else []))

        return send

    def partitions(self, topic: str) -> int:
        return 1

    def partition_of(self, topic: str, key: bytes) -> int:
        return 0


class DriverHost:
    """The environment of one task, or of the mock context, which has no task and never calls `give`."""

    def __init__(self, config: StreamsConfig, wall_clock: Callable[[], int]) -> None:
        self._registry = Registry(
            config["metrics.recording.level"], Window(config["metrics.num.samples"], config["metrics.sample.window.ms"])
        )
        self._tags: Mapping[str, str] = {THREAD_ID: f"{config['application.id']}-StreamThread-1"}
        self._wall_clock = wall_clock
        self.custom = StreamsMetrics(config["metrics.recording.level"])
        self.custom.read_all = self.metrics
        self._task: StreamTask | None = None
        self._dropped, self._steps = self._registry.sensor().rate_and_total("dropped-records"), Steps()
        self._directory: Path | None = None
        self._environment: Any = None

    def give(self, task: StreamTask) -> StreamTask:
        """Attach this host to a task before it is initialised, so that its processors can use it. Returns the task."""
        self._task = task
        self._registry.add(self._dropped, TASK, {**self._tags, TASK_ID: str(task.id)})
        task.services.metrics, task.services.make_state_dir = self.custom, self.state_dir
        return task

    def fold(self) -> None:
        """Add what was recorded so far to the metrics: before the clock advances, and before metrics are read."""
        now = self._wall_clock()
        if self._task is not None:
            record(self._dropped, self._steps.take(sum(self._task.dropped.values())), now)
        self.custom.fold(self._registry, self._tags, now)

    def metrics(self) -> list[Metric]:
        """Return all metrics as of now."""
        self.fold()
        return list(self._registry.snapshot(self._wall_clock()))

    def state_dir(self) -> Path:
        """Return a temporary directory; made at the first call, removed by `close`."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="kstreams-test-"))
            self._remove = weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        return self._directory

    def environment(self) -> Any:
        """Return the LMDB environment of a task that runs as deployed.

        Raises:
            KStreamsError: lmdb is not installed.
        """
        with extras():
            from kstreams_repl.stores.engine.lmdb import LmdbEnvironment
        self._environment = LmdbEnvironment(self.state_dir() / "lmdb", map_bytes=_MAP_BYTES)
        return self._environment

    def close(self) -> None:
        """Remove the directory. Metrics can still be read."""
        if self._environment is not None:
            self._environment.close()
        if self._directory is not None:
            self._remove()
