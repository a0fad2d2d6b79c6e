"""`TopologyTestDriver`: run a topology in-process, one record at a time, without a broker and without Spark.

It runs the *real* task: one task, one partition, one stream time for the whole topology, a commit after every record; records
written to a topic that the topology reads are processed again. With `partitions=` it runs the tasks of a deployment, each with a stream
time of its own (KIP-1238). It does not cover restore. Source: Kafka Streams' TopologyTestDriver.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, get_args

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.metrics.metrics_snapshot import Metric
from kstreams_repl.engine.processor.current_call import CallContext
from kstreams_repl.engine.runtime.compiler.compile import Tap
from kstreams_repl.engine.runtime.global_task import GlobalTask
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount, added
from kstreams_repl.engine.runtime.queues.columnar_queue import LOOP_THRESHOLD
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.system.durations import Millis, as_millis
from kstreams_repl.system.errors import (
    CallError,
    IllegalStateTransitionError,
    InvalidStateStoreError,
    UnknownTopicError,
    did_you_mean,
)
from kstreams_repl.system.types import Headers, RecordBatch
from kstreams_repl.test_driver.driver_retries import RetriesReader
from kstreams_repl.test_driver.driver_tasks import DriverTask, DriverTasks, DriverTopics, Partitions
from kstreams_repl.test_driver.driver_topics import ProducedRecord as ProducedRecord
from kstreams_repl.test_driver.driver_topics import TestInputTopic as TestInputTopic
from kstreams_repl.test_driver.driver_topics import TestOutputTopic as TestOutputTopic
from kstreams_repl.test_driver.driver_topics import TestRecord as TestRecord
from kstreams_repl.test_driver.driver_topics import serdes_of_topic, time_ms
from kstreams_repl.test_driver.host import DriverCollector, DriverHost
from kstreams_repl.test_driver.saved_state import SavedState, fill_stores, restore_times

Mode = Literal["exact", "deployed"]

_DRIVER_SETTINGS: dict[Mode, dict[str, object]] = {
    "exact": {"application.id": "test", "repl.changelog.suppression": False, "repl.outer.join.emit.interval.ms": 0},
    "deployed": {"application.id": "test", "repl.outer.join.emit.interval.ms": 0},
}


class TopologyTestDriver(RetriesReader):
    """Runs a topology record by record.

    Args:
        topology: the topology to run; a builder is built with `config`.
        config: settings as for a deployment; `application.id` defaults to "test".
        start_ms: start of the mocked wall clock (ms, or a datetime; naive ones are UTC); None: now.
        mode: "exact" is Kafka Streams' own driver: every update in the changelogs, reads count as use of a cache entry, stores in
            memory. "deployed" runs the engine as it runs on Spark: loops over columns, stores in LMDB (in a temporary directory),
            one changelog record per key and commit. Results are the same; changelogs have fewer records.
        tap: returns an observer for each node's output, to inspect the values between nodes.
        call_latency: (CallContext) -> ms that a call of an asynchronous node takes (besides its own `asyncio.sleep`); None: 0.
        partitions: numbers of partitions by topic (1 for others), or one for all: one task for each sub-topology and partition, records
            go to the partition of their key, also through repartition topics. None: one task for the whole topology.

        state: what the task knew before the first record (`Debugger.save_test` writes it); None: nothing. Only without `partitions`.

    Raises:
        ValueError: `mode` is neither "exact" nor "deployed", a number of partitions is less than 1, or `state` is given with `partitions`.
        TopologyError: topics that must be co-partitioned have different numbers of partitions.
        KStreamsError: "deployed" is requested and lmdb is not installed.

    Example:
        >>> from kstreams_repl import StreamsBuilder, serdes
        >>> from kstreams_repl.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> stream = builder.stream("words", key_serde=serdes.string, value_serde=serdes.string)
        >>> stream.map_values(str.upper).to("shouts", key_serde=serdes.string, value_serde=serdes.string)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("words", serdes.string, serdes.string).pipe_input("a", "hello", timestamp=1)
        ...     driver.create_output_topic("shouts", serdes.string, serdes.string).read_key_value()
        ('a', 'HELLO')
    """

    def __init__(
        self,
        topology: Any,
        config: Mapping[str, object] | None = None,
        *,
        start_ms: int | datetime | None = None,
        mode: Mode = "exact",
        tap: Tap | None = None,
        call_latency: Callable[[CallContext], int] | None = None,
        partitions: Partitions | None = None,
        state: SavedState | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode must be 'exact' or 'deployed', got {mode!r}")
        if state is not None and partitions is not None:
            raise ValueError("state is that of one task, so it cannot be given together with partitions")
        self._state = state
        settings = dict(config) if config is not None else {}
        self.config = StreamsConfig(_DRIVER_SETTINGS[mode] | settings)
        self._mode = mode
        topology = topology.build(self.config) if callable(getattr(topology, "build", None)) else topology
        self._now = int(time.time() * 1000) if start_ms is None else time_ms(start_ms, "start_ms")
        self._closed = False
        self._outputs: dict[str, deque[ProducedRecord]] = {}
        self._offsets = {(topic, 0): offset for topic, offset in ({} if state is None else state.offsets).items()}
        self._commits = 0
        self._tap = tap
        application = validate_name(self.config["application.id"], "application.id")
        global_subs = [sub for sub in topology.subtopologies() if sub.global_]
        self._global = None
        if global_subs:
            environment = MemoryEnvironment()
            self._global = GlobalTask(application, global_subs, config=self.config, environment=environment, wall_clock=self._clock)
        self._call_latency = call_latency
        self._topics = DriverTopics(topology, application, self.config, partitions)
        self._collector = DriverCollector(self._topics)
        self._tasks = DriverTasks(self._topics, self._make_task)
        self._task = self._tasks.all[0].task if self._tasks.all else None
        self._host = self._tasks.all[0].host if self._tasks.all else DriverHost(self.config, self._clock, call_latency)
        self.sink_topics = self._topics.sinks
        for task, host in self._tasks.all:
            host.give(task)
            if state is not None:
                restore_times(state, task)
            task.initialize()
            if state is not None:
                task.pass_punctuations()
        self._capture()

    def _make_task(self, spec: TaskSpec) -> DriverTask:
        host = DriverHost(self.config, self._clock, self._call_latency)
        environment = host.environment() if self._mode == "deployed" else MemoryEnvironment()
        if self._state is not None:
            fill_stores(self._state, environment, spec)
        task = StreamTask(
            spec,
            environment=environment,
            collector=self._collector,
            wall_clock=self._clock,
            global_stores={} if self._global is None else self._global.stores,
            exact_cache=self._mode == "exact",
            loop_threshold=LOOP_THRESHOLD if self._mode == "exact" else 1,
            tap=self._tap,
        )
        return DriverTask(task, host)

    def _clock(self) -> int:
        return self._now

    # ---- topics ----------------------------------------------------------------------------------------------------------------

    def create_input_topic(
        self,
        topic: str,
        key_serde: object = None,
        value_serde: object = None,
        *,
        start_timestamp: int | datetime | None = None,
        auto_advance: Millis = 0,
    ) -> TestInputTopic:
        """Return an input topic that pipes records into `topic`; serdes (or their names) default to bytes.

        Args:
            topic: name of the topic.
            key_serde, value_serde: a serde or its name; None = bytes.
            start_timestamp: of the first record without its own; None: the mocked wall clock (with `auto_advance`: its current
                time).
            auto_advance: how much later each further record is (ms, timedelta or "30 s").

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string", start_timestamp=1000, auto_advance=10)
            >>> words_in.pipe_input("a", "to")
            >>> driver.state_store("counts").get("a").timestamp
            1000
        """
        advance = as_millis(auto_advance, "auto_advance", error=CallError)
        start = None if start_timestamp is None else time_ms(start_timestamp, "start_timestamp")
        if start is None and advance:
            start = self._now
        return TestInputTopic(self, topic, *serdes_of_topic(self.config, topic, key_serde, value_serde), start, advance)

    def create_output_topic(
        self, topic: str, key_serde: object = None, value_serde: object = None, *, partition: int | None = None
    ) -> TestOutputTopic:
        """Return an output topic that reads what was written to `topic`, oldest first, each record once.

        Args:
            topic: name of the topic.
            key_serde, value_serde: a serde or its name; None = bytes.
            partition: only this one; None: all.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.create_input_topic("words", "string", "string").pipe_input("a", "to")
            >>> driver.create_output_topic("counted", "string", "long").read_key_value()
            ('a', 1)
        """
        return TestOutputTopic(self, topic, *serdes_of_topic(self.config, topic, key_serde, value_serde), partition)

    def produced_topic_names(self) -> set[str]:
        """Return every topic written to so far, including changelogs and repartition topics.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.create_input_topic("words", "string", "string").pipe_input("a", "to")
            >>> sorted(driver.produced_topic_names())
            ['counted', 'test-counts-changelog']
        """
        return set(self._outputs)

    def advance_wall_clock_time(self, by: Millis) -> None:
        """Advance the mocked wall clock by `by` (ms, timedelta or "30 s"): calls of asynchronous nodes end in order of time, due
        wall-clock punctuations run once, and a commit follows.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.advance_wall_clock_time(5000)
            >>> driver.now()
            5000
        """
        self._check_open()
        tasks = self._tasks.all
        for _, host in tasks:
            host.fold()
        end = self._now + as_millis(by, "by", error=CallError)
        while due := [time for _, host in tasks if (time := host.time_of_calls(end)) is not None]:
            self._now = min(due)
            self._complete()
        self._now = end
        for task, _ in tasks:
            task.punctuate_wall_clock()
            self._commit(task)
        self._complete()

    # ---- state -----------------------------------------------------------------------------------------------------------------

    def state_store(self, name: str, *, partition: int = 0) -> Any:
        """Return a store of the topology, readable and writable, as processors see it.

        Args:
            name: name of the store.
            partition: that of its task; a global store is the same in all.

        Raises:
            InvalidStateStoreError: the topology has no such store.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.create_input_topic("words", "string", "string").pipe_input("a", "to")
            >>> driver.state_store("counts").get("a").value
            1
        """
        stores = self.all_state_stores(partition=partition)
        if name in stores:
            return stores[name]
        raise InvalidStateStoreError(
            f"the topology has no store {name!r}" + (f" in partition {partition}" if partition else ""),
            hint=did_you_mean(name, stores) or f"its stores: {', '.join(sorted(stores)) or 'none'}",
            store=name,
        )

    def all_state_stores(self, *, partition: int = 0) -> dict[str, Any]:
        """Return all stores by name, including global ones.

        Args:
            partition: that of the tasks.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> list(driver.all_state_stores())
            ['counts']
        """
        stores = {name: store for task, _ in self._tasks.with_partition(partition) for name, store in task.stores.items()}
        return stores | dict({} if self._global is None else self._global.stores)

    @property
    def dropped(self) -> int:
        """Return `dropped-records-total` over all nodes.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.create_input_topic("words", "string", "string").pipe_input(None, "to")
            >>> driver.dropped
            1
        """
        total = sum(sum(task.dropped.values()) for task, _ in self._tasks.all)
        return total + (sum(self._global.dropped.values()) if self._global is not None else 0)

    @property
    def node_counts(self) -> dict[str, NodeCount]:
        """Return by node the numbers of records received, forwarded and dropped.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.create_input_topic("words", "string", "string").pipe_input("a", "to")
            >>> driver.node_counts["words"].taken
            1
        """
        tasks = [*(task.counts for task, _ in self._tasks.all), *([] if self._global is None else [self._global.counts])]
        return added(counts.read() for counts in tasks)

    def metrics(self) -> list[Metric]:
        """Return dropped records and the processors' own metrics, as `context.metrics().metrics()`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.create_input_topic("words", "string", "string").pipe_input(None, "no key")
            >>> [metric.value for metric in driver.metrics() if metric.name == "dropped-records-total"]
            [1]
        """
        return [metric for _, host in self._tasks.all for metric in host.metrics()] if self._tasks.all else self._host.metrics()

    def close(self) -> None:
        """Close processors and stores; idempotent. The output can still be read.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.close()
        """
        self._closed = True
        with ExitStack() as closing:
            closing.callback(self._host.close)
            if self._global is not None:
                closing.callback(self._global.close)
            for task, host in self._tasks.all:
                closing.callback(host.close)
                closing.callback(task.close)

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- inside ----------------------------------------------------------------------------------------------------------------

    def pipe_bytes(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers | None = None,
        *,
        partition: int | None = None,
    ) -> None:
        """Pipe one record as it would be on the broker, and run until all records are processed.

        Args:
            topic: name of the topic.
            key, value: serialized; None = no key, or a tombstone.
            timestamp: milliseconds since 1970.
            headers: (name, bytes) pairs; None = none.
            partition: None: that of the key.

        Raises:
            UnknownTopicError: the topology does not read the topic, or the topic has no such partition.
            IllegalStateTransitionError: the driver is closed.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.pipe_bytes("words", b"a", b"to", 1000)
            >>> driver.state_store("counts").get("a").value
            1
        """
        self._check_open()
        number = self._topics.partition_of(topic, key) if partition is None else partition
        is_read = self._enqueue(topic, number, key, value, timestamp, headers or [])
        if is_read:
            self._complete()
        if self._global is not None and topic in self._global.topics:
            self._apply_global(topic, key, value, timestamp, headers or [])
            is_read = True
        if not is_read:
            topics = [*self._tasks.inputs, *(self._global.topics if self._global else ())]
            raise UnknownTopicError(
                f"the topology does not read topic {topic!r}" + (f", partition {partition}" if partition else ""),
                hint=did_you_mean(topic, topics) or f"it reads: {', '.join(topics)}",
                topic=topic,
            )

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateTransitionError("the driver is closed", hint="make a new one: TopologyTestDriver(topology, config)")

    def output(self, topic: str) -> deque[ProducedRecord]:
        """Return the records written to `topic` and not read yet.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.create_input_topic("words", "string", "string").pipe_input("a", "to")
            >>> driver.output("counted")[0].key
            b'a'
        """
        return self._outputs.get(topic) or deque()

    def _enqueue(self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> bool:
        """Give a record to the task that reads it; return whether there is one."""
        route = self._tasks.route(topic, partition)
        if route is not None:
            task, source = route
            offset = self._next_offset(*source)
            task.add_records(source, RecordBatch([key], [value], [timestamp], [offset], [headers], topic))
        return route is not None

    def _next_offset(self, topic: str, partition: int) -> int:
        offset = self._offsets.get((topic, partition), 0)
        self._offsets[topic, partition] = offset + 1
        return offset

    def _complete(self) -> None:
        self._capture()
        for task, _ in self._tasks.all:
            for partition in task.queues:
                task.set_lag(partition, 0)
        while any([self._step(task, host) for task, host in self._tasks.all]):
            pass

    def _step(self, task: StreamTask, host: DriverHost) -> bool:
        """Process one record of a task; return whether there was something to do."""
        if not (host.run_calls() | bool(task.process(1))):
            return False
        task.punctuate_stream_time()
        self._commit(task)
        self._capture()
        return True

    def _commit(self, task: StreamTask) -> None:
        task.prepare_commit()
        self._commits += 1
        task.post_commit(self._commits, {})

    def _capture(self) -> None:
        sent = self._collector.sent
        if not sent:
            return
        self._collector.sent[:], sent = [], list(sent)
        for topic, key, value, timestamp, headers, partition in sent:
            self._outputs.setdefault(topic, deque()).append(ProducedRecord(key, value, timestamp, headers, partition))
            self._enqueue(topic, partition, key, value, timestamp, list(headers))
            if self._global is not None and topic in self._global.topics:
                self._apply_global(topic, key, value, timestamp, list(headers))

    def _apply_global(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        assert self._global is not None
        offset = self._next_offset(topic, 0)
        self._global.update(topic, 0, RecordBatch([key], [value], [timestamp], [offset], [headers]))
        self._global.commit({}, offset)

    def now(self) -> int:
        """Return the time of the mocked wall clock (ms).

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.now()
            0
        """
        return self._now
