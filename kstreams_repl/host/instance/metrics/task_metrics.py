"""The metrics of one task: its sensors and gauges, and those of its nodes and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from kstreams_repl.engine.metrics.catalogue import NODE, NODE_ID, STATE, STATE_ID, TASK, TASK_ID, TOPIC, TOPIC_NAME
from kstreams_repl.engine.metrics.counters import Counter, Reader, Steps
from kstreams_repl.engine.metrics.metrics_registry import Registry
from kstreams_repl.engine.metrics.sensors import Sensor, Tally, record, scaled
from kstreams_repl.engine.runtime.task import TOTALS
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.instance.tasks.task_instrumentation import TaskMeter
from kstreams_repl.system.types import TopicPartition

_MS, _NS = 1000.0, 1e9
_SCOPES = {
    StoreKind.WINDOW: "-window",
    StoreKind.TIMESTAMPED_WINDOW: "-window",
    StoreKind.TIME_ORDERED_WINDOW: "-window",
    StoreKind.SESSION: "-session",
    StoreKind.LRU: "-lru",
    StoreKind.SUPPRESS_BUFFER: "-suppression",
}
_KEYED = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE)


@dataclass(frozen=True, slots=True)
class Folded:
    """A task's activity since the last fold: seconds per record (a tally of records), records per slice, seconds per punctuation.
    """

    processed: Tally | None
    slices: Tally | None
    punctuated: Tally | None


class TaskMetrics:
    """Created when the task is first seen, during its restore; `attach` is called when it runs."""

    def __init__(self, registry: Registry, tags: dict[str, str], name: str) -> None:
        self._registry = registry
        self._tags = {**tags, TASK_ID: name}
        self._task: ActiveTask | None = None
        self._feeds: list[Callable[[int], None]] = []
        self._store_feeds: list[Callable[[int], None]] = []
        self._remaining = 0
        self._share = 0.0
        self._seconds = 0.0
        self._lag = -1
        self._size = 0
        self._restored = Steps()
        self._restore = self._add(registry.sensor().rate_and_total("restore"))
        self._updates = Steps()
        self._update = self._add(registry.sensor().rate_and_total("update"))
        registry.gauge("restore-remaining-records-total", TASK, self._tags, lambda: self._remaining)

    def restoring(self, done: int, remaining: int, now: int) -> None:
        """Take the restore's totals of this task."""
        self._remaining = remaining
        record(self._restore, self._restored.take(done), now)

    def updated(self, count: int, now: int) -> None:
        """Take the total of changelog records written into the standby task of the task."""
        record(self._update, self._updates.take(count), now)

    def attach(self, task: ActiveTask) -> None:
        """Register a running task. After a new take-over its counts begin at zero; sensors continue."""
        if self._task is task:
            return
        self._task = task
        self._feeds.clear()
        self._store_feeds.clear()
        self._remaining = 0
        self._seconds = 0.0
        counters, stream = task.counters, task.task
        self._readers = (Reader(counters.process), Reader(counters.slices), Reader(counters.punctuate))
        self._process = self._add(self._sensor().rate_and_total("process").avg_and_max("process-latency"))
        self._punctuate = self._add(self._sensor().rate_and_total("punctuate").avg_and_max("punctuate-latency"))
        for name, read in TOTALS.items():
            self._step(partial(read, stream), self._add(self._sensor().rate_and_total(name)))
        self._feed(counters.commit_age, [self._add(self._sensor().avg_min_max("repl-commit-e2e-latency"))])
        gauge = self._registry.gauge
        gauge("active-process-ratio", TASK, self._tags, lambda: self._share)
        gauge("active-buffer-count", TASK, self._tags, lambda: stream.buffered)
        gauge("cache-size-bytes-total", TASK, self._tags, lambda: stream.cache.size)
        gauge("repl-lag", TASK, self._tags, lambda: self._lag)
        gauge("repl-state-size-bytes", TASK, self._tags, lambda: self._size)
        self._watch_nodes(task)
        for builder in stream.spec.subtopology.stores:
            self._watch_store(task, builder)

    def fold(self, now: int, lag: int | None, *, stores: bool) -> Folded:
        """Take the counts. With `stores`, call it only on the thread that owns the task's stores."""
        processed, slices, punctuated = (reader.take() for reader in self._readers)
        folded = Folded(scaled(processed, _MS), slices, scaled(punctuated, _MS))
        record(self._process, scaled(processed, _NS), now)  # of tasks in ns, of threads in ms, as in Kafka Streams
        record(self._punctuate, scaled(punctuated, _NS), now)
        for feed in self._feeds:
            feed(now)
        if lag is not None:
            self._lag = lag
        if stores:
            assert self._task is not None
            size = getattr(self._task.environment, "size_on_disk", None)
            self._size = 0 if size is None else size()
            for feed in self._store_feeds:
                feed(now)
        return folded

    def share(self, processing: float) -> None:
        """Compute this task's share of the instance's processing time since the last call."""
        if self._task is not None:
            spent = self._task.counters.process.total
            self._share = (spent - self._seconds) / processing if processing > 0 else 0.0
            self._seconds = spent

    # ---- nodes and topics

    def _watch_nodes(self, task: ActiveTask) -> None:
        counters, spec = task.counters, task.task.spec
        meter = task.task.meter
        detailed = meter if isinstance(meter, TaskMeter) else None
        for name, ages in counters.source_ages.items():
            self._feed(ages, [self._add(self._sensor().avg_min_max("record-e2e-latency"), NODE, **{NODE_ID: name})])
        terminals = [
            self._add(self._sensor().avg_min_max("record-e2e-latency"), NODE, **{NODE_ID: name})
            for name in counters.terminals
            if name not in counters.source_ages
        ]
        if detailed is None:
            self._feed(counters.terminal_age, terminals)
        else:
            for name, sensor in zip([n for n in counters.terminals if n not in counters.source_ages], terminals, strict=True):
                self._feed(detailed.ages[name], [sensor])
            self._watch_in_detail(detailed)
        read: dict[tuple[str, str], list[TopicPartition]] = {}
        for partition, node in spec.partitions.items():  # a custom partition grouper may assign several partitions of a topic
            read.setdefault((node, partition.topic), []).append(partition)
        for (node, topic), partitions in read.items():
            tags = {**self._tags, NODE_ID: node, TOPIC_NAME: topic}

            def consumed(partitions: list[TopicPartition] = partitions) -> int:
                return sum(counters.consumed[partition] for partition in partitions)

            self._registry.gauge("records-consumed-total", TOPIC, tags, consumed)

    def _watch_in_detail(self, meter: TaskMeter) -> None:
        for name, cell in meter.entered.items():
            self._step(lambda cell=cell: cell[0], self._add(self._sensor().rate_and_total("process"), NODE, **{NODE_ID: name}))  # type: ignore[misc]
        for (name, kind), cell in meter.emitted.items():
            self._step(lambda cell=cell: cell[0], self._add(self._sensor().rate_and_total(kind), NODE, **{NODE_ID: name}))  # type: ignore[misc]
        self._feed(meter.lateness, [self._add(self._sensor().avg_and_max("record-lateness"))])
        for (store, call), counter in meter.calls.items():
            sensor = self._sensor().rate(call).avg_and_max(f"{call}-latency")
            self._feed(counter, [self._add(sensor, STATE, **self._state_tag(store))])
        for store, ages in meter.stored_ages.items():
            sensor = self._sensor().avg_min_max("record-e2e-latency")
            self._feed(ages, [self._add(sensor, STATE, **self._state_tag(store))])
        self._feeds.append(lambda now: self._topics(meter))

    def _topics(self, meter: TaskMeter) -> None:
        """Register new topics: topics chosen per record appear while the task runs."""
        gauge = self._registry.gauge
        for (node, topic), (_, size) in meter.consumed.items():
            tags = {**self._tags, NODE_ID: node, TOPIC_NAME: topic}
            gauge("bytes-consumed-total", TOPIC, tags, lambda size=size: size[0])  # type: ignore[misc]
        for (node, topic), (count, size) in meter.produced.items():
            tags = {**self._tags, NODE_ID: node, TOPIC_NAME: topic}
            gauge("records-produced-total", TOPIC, tags, lambda count=count: count[0])  # type: ignore[misc]
            gauge("bytes-produced-total", TOPIC, tags, lambda size=size: size[0])  # type: ignore[misc]

    # ---- stores

    def _watch_store(self, task: ActiveTask, builder: StoreBuilder) -> None:
        store = task.task.stores[builder.name]
        tags = {**self._tags, **self._state_tag(builder.name)}
        read = getattr(store, "approximate_num_entries", None) or getattr(store, "record_count", None)
        if read is not None:
            rows = [0]
            self._registry.gauge("estimate-num-keys", STATE, tags, lambda: rows[0])
            if not builder.persistent and builder.kind in _KEYED:
                self._registry.gauge("num-keys", STATE, tags, lambda: rows[0])

            def count_rows(now: int) -> None:
                rows[0] = read()

            self._store_feeds.append(count_rows)
        if builder.kind is StoreKind.SUPPRESS_BUFFER:
            count, size = self._sensor().avg_and_max("suppression-buffer-count"), self._sensor().avg_and_max("suppression-buffer-size")
            for sensor, measure in ((count, store.record_count), (size, store.byte_size)):
                self._registry.add(sensor, STATE, tags)
                self._store_feeds.append(lambda now, s=sensor, m=measure: s.record(Tally.of([m()]), now))  # type: ignore[misc]

    def _state_tag(self, store: str) -> dict[str, str]:
        task = self._task
        assert task is not None
        builder = next(builder for builder in task.task.spec.subtopology.stores if builder.name == store)
        engine = "lmdb" if builder.persistent else "in-memory"
        return {f"{engine}{_SCOPES.get(builder.kind, '')}-{STATE_ID}": store}

    # ---- internals

    def _sensor(self) -> Sensor:
        return self._registry.sensor()

    def _add(self, sensor: Sensor, group: str = TASK, **more: str) -> Sensor:
        return self._registry.add(sensor, group, {**self._tags, **more})

    def _feed(self, counter: Counter, sensors: Iterable[Sensor]) -> None:
        reader, targets = Reader(counter), tuple(sensors)

        def feed(now: int) -> None:
            tally = reader.take()
            for sensor in targets:
                record(sensor, tally, now)

        self._feeds.append(feed)

    def _step(self, read: Callable[[], int], sensor: Sensor) -> None:
        steps = Steps()
        self._feeds.append(lambda now: record(sensor, steps.take(read()), now))


