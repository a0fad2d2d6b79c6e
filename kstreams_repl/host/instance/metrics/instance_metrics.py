"""From counters to metrics: an instance's counters feed Kafka Streams' sensors, a few times a second and never on the record
path.

Actors: the *loop*, whose thread calls `fold` with each report (counters into sensors, gauges read; stores may only be read
there); the *metrics thread* (`background_threads`), which writes the snapshot; the driver, which reads it. The lock protects the
sensors only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kstreams_repl.engine.metrics.catalogue import THREAD, THREAD_ID, UPDATER
from kstreams_repl.engine.metrics.counters import Counter, Reader, Steps
from kstreams_repl.engine.metrics.metrics_registry import Registry
from kstreams_repl.engine.metrics.metrics_snapshot import Snapshot
from kstreams_repl.engine.metrics.sensors import Sensor, Window, record, scaled
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.epochs.lifecycle import InstanceState
from kstreams_repl.host.instance.instance import Instance, wall_clock
from kstreams_repl.host.instance.metrics.task_metrics import TaskMetrics
from kstreams_repl.host.instance.state.changelog_reader import RestoreProgress
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.telemetry import sender_of

if TYPE_CHECKING:
    from kstreams_repl.host.instance.metrics.call_metrics import CallMetrics

_MS = 1000.0
_READ_STORES_SECONDS = 1.0


def thread_id(application_id: str, slot: int) -> str:
    """Return the name of an instance in the form of Kafka Streams' threads.

    Example:
        >>> thread_id("counts", 0)
        'counts-StreamThread-1'
    """
    return f"{application_id}-StreamThread-{slot + 1}"


class InstanceMetrics:
    """The metrics of one slot while one process holds it: from the first restore to the close of its instance."""

    def __init__(self, plan: ApplicationPlan, slot: int) -> None:
        config = plan.config
        window = Window(config["metrics.num.samples"], config["metrics.sample.window.ms"])
        self.level: str = config["metrics.recording.level"]
        self._registry = Registry(self.level, window)
        self._lock = threading.Lock()
        self.sender = sender_of(config, plan.application_id)
        self._tags = {THREAD_ID: thread_id(plan.application_id, slot)}
        self._instance: Instance | None = None
        self._tasks: dict[str, TaskMetrics] = {}
        self._calls: CallMetrics | None = None
        self._feeds: list[Callable[[int], None]] = []
        self._ratios: dict[str, float] = {}
        self._spent = (time.monotonic(), {"process": 0.0, "punctuate": 0.0, "poll": 0.0, "commit": 0.0})
        self._next_stores = 0.0
        self._restoring: dict[str, tuple[int, int]] = {}
        self._batches = Steps()
        self._restored = Steps()
        self._restore_sensors = tuple(
            self._registry.add(self._sensor().rate(name), UPDATER, self._tags) for name in ("restore-records", "restore-call")
        )
        self._registry.gauge(
            "active-restoring-tasks", UPDATER, self._tags, lambda: sum(left > 0 for _, left in self._restoring.values())
        )

    # ---- restore

    def restoring(self, progress: RestoreProgress) -> None:
        """Take a restore's progress; its tasks need not exist yet."""
        now = wall_clock()
        with self._lock:
            self._restoring = {name: (done, left) for name, (done, left) in progress.tasks.items()}
            for name, (done, left) in self._restoring.items():
                self._task(name).restoring(done, left, now)
            record(self._restore_sensors[0], self._restored.take(progress.records), now)
            record(self._restore_sensors[1], self._batches.take(progress.batches), now)

    # ---- work

    def attach(self, instance: Instance) -> None:
        """Register the metrics of a running instance; attaching it again does nothing."""
        if self._instance is instance:
            return
        with self._lock:
            self._instance = instance
            self._feeds.clear()
            counters = instance.counters
            self._feed(counters.poll, _MS, self._sensor().rate_and_total("poll").avg_and_max("poll-latency"))
            self._feed(counters.poll_records, 1, self._sensor().avg_and_max("poll-records"))
            self._feed(counters.commit, _MS, self._sensor().rate_and_total("commit").avg_and_max("commit-latency"))
            self._step(lambda: counters.created, self._sensor().rate_and_total("task-created"))
            self._step(lambda: counters.closed, self._sensor().rate_and_total("task-closed"))
            self._processed = self._sensor().rate_and_total("process").avg_and_max("process-latency")
            self._slices = self._sensor().avg_and_max("process-records")
            self._punctuated = self._sensor().rate_and_total("punctuate").avg_and_max("punctuate-latency")
            for sensor in (self._processed, self._slices, self._punctuated):
                self._registry.add(sensor, THREAD, self._tags)
            for name in ("process", "punctuate", "poll", "commit"):
                self._registry.gauge(f"{name}-ratio", THREAD, self._tags, lambda name=name: self._ratios.get(name, 0.0))  # type: ignore[misc]
            gauges: Mapping[str, Callable[[], float | str]] = {
                "blocked-time-ns-total": lambda: int((counters.poll.total + instance.clients.waited) * 1e9),
                "thread-start-time": lambda: counters.started_ms,
                "repl-commit-id": lambda: instance.committer.commit_id,
                "repl-warm": lambda: int(instance.warm),
            }
            for name, read in gauges.items():
                self._registry.gauge(name, THREAD, self._tags, read)
            self._registry.gauge(
                "standby-updating-tasks", UPDATER, self._tags, lambda: 0 if instance.standbys is None else instance.standbys.open
            )
            for task in instance.tasks:
                self._task(str(task.id)).attach(task)

    def fold(self, *, final: bool = False) -> None:
        """Take the counts since the last call. Only on the loop's thread: it reads the stores, once a second or at the end."""
        instance = self._instance
        if instance is None or instance.life.state is InstanceState.CLOSED:
            return
        now, moment = wall_clock(), time.monotonic()
        stores = (final or moment >= self._next_stores) and not instance.stores_busy
        if stores:
            self._next_stores = moment + _READ_STORES_SECONDS
        lags = instance.input.lags()
        with self._lock:
            for feed in self._feeds:
                feed(now)
            for task in instance.tasks:
                view = self._task(str(task.id))
                view.attach(task)
                folded = view.fold(now, lags.get(task.id), stores=stores)
                custom = task.task.metrics
                custom.read_all = self.snapshot
                custom.fold(self._registry, self._tags, now)
                record(self._processed, folded.processed, now)
                record(self._slices, folded.slices, now)
                record(self._punctuated, folded.punctuated, now)
            if instance.calls is not None:
                if self._calls is None:
                    from kstreams_repl.host.instance.metrics.call_metrics import CallMetrics  # brings asyncio

                    self._calls = CallMetrics(self._registry, self._tags)
                self._calls.fold(instance, now)
            if instance.standbys is not None:
                for name, count in list(instance.standbys.updated.items()):
                    self._task(name).updated(count, now)
            self._share(instance.tasks, moment)

    def _share(self, tasks: list[ActiveTask], moment: float) -> None:
        """Compute how the time since the last call was spent."""
        instance = self._instance
        assert instance is not None
        then, before = self._spent
        spent = {
            "process": sum(task.counters.process.total for task in tasks),
            "punctuate": sum(task.counters.punctuate.total for task in tasks),
            "poll": instance.counters.poll.total,
            "commit": instance.counters.commit.total,
        }
        if moment > then:
            self._ratios = {name: max(0.0, min(1.0, (spent[name] - before[name]) / (moment - then))) for name in spent}
        self._spent = (moment, spent)
        processing = spent["process"] - before["process"]
        for view in self._tasks.values():
            view.share(processing)

    # ---- reading

    def snapshot(self) -> Snapshot:
        """Return the current values of all metrics."""
        with self._lock:
            return self._registry.snapshot(wall_clock())

    def send(self) -> None:
        """Send the current values to the collector, if there is one."""
        tracer = None if self._instance is None else self._instance.tracer
        if self.sender is not None:
            self.sender.send(self.snapshot(), {} if tracer is None else tracer.exemplars)

    # ---- internals

    def _task(self, name: str) -> TaskMetrics:
        found = self._tasks.get(name)
        if found is None:
            found = self._tasks[name] = TaskMetrics(self._registry, self._tags, name)
        return found

    def _sensor(self) -> Sensor:
        return self._registry.sensor()

    def _feed(self, counter: Counter, scale: float, sensor: Sensor) -> None:
        self._registry.add(sensor, THREAD, self._tags)
        reader = Reader(counter)
        self._feeds.append(lambda now: record(sensor, scaled(reader.take(), scale), now))

    def _step(self, read: Callable[[], int], sensor: Sensor) -> None:
        self._registry.add(sensor, THREAD, self._tags)
        steps = Steps()
        self._feeds.append(lambda now: record(sensor, steps.take(read()), now))
