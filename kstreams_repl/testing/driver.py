"""`TopologyTestDriver`: run a topology in-process, one record at a time, without a broker and without Spark.

It runs the *real* task: one task, one partition, one stream time for the whole topology, a commit after every record; records
written to a topic that the topology reads are processed again. It does not cover partitioning, time across tasks, or restore.
Source: Kafka Streams' TopologyTestDriver.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, get_args

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import IllegalStateTransitionError, InvalidStateStoreError, UnknownTopicError, did_you_mean
from kstreams_repl.metrics.snapshot import Metric
from kstreams_repl.processor.current_call import CallContext
from kstreams_repl.runtime.columnar_queue import LOOP_THRESHOLD
from kstreams_repl.runtime.compile import Tap
from kstreams_repl.runtime.global_task import GlobalTask
from kstreams_repl.runtime.node_counts import NodeCount, added
from kstreams_repl.runtime.task import StreamTask, TaskSpec
from kstreams_repl.stores.engine.memory import MemoryEnvironment
from kstreams_repl.testing.driver_retries import RetriesReader
from kstreams_repl.testing.driver_topics import ProducedRecord as ProducedRecord
from kstreams_repl.testing.driver_topics import TestInputTopic as TestInputTopic
from kstreams_repl.testing.driver_topics import TestOutputTopic as TestOutputTopic
from kstreams_repl.testing.driver_topics import TestRecord as TestRecord
from kstreams_repl.testing.driver_topics import serdes_of_topic, span_ms, time_ms
from kstreams_repl.testing.host import DriverCollector, DriverHost
from kstreams_repl.topology.names import validate_name
from kstreams_repl.topology.nodes import SinkNode, SourceNode
from kstreams_repl.topology.subtopologies import Subtopology
from kstreams_repl.types import Headers, RecordBatch, TaskId, TopicPartition

Mode = Literal["exact", "deployed"]

_DRIVER_SETTINGS: dict[Mode, dict[str, Any]] = {
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

    Raises:
        ValueError: `mode` is neither "exact" nor "deployed".
        KStreamsError: "deployed" is requested and lmdb is not installed.

    Example:
        >>> from kstreams_repl import StreamsBuilder, TopologyTestDriver, serdes
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
        config: Mapping[str, Any] | None = None,
        *,
        start_ms: int | datetime | None = None,
        mode: Mode = "exact",
        tap: Tap | None = None,
        call_latency: Callable[[CallContext], int] | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode must be 'exact' or 'deployed', got {mode!r}")
        settings = dict(config) if config is not None else {}
        self.config = StreamsConfig(_DRIVER_SETTINGS[mode] | settings)
        self._mode = mode
        topology = topology.build(self.config) if callable(getattr(topology, "build", None)) else topology
        self._now = int(time.time() * 1000) if start_ms is None else time_ms(start_ms, "start_ms")
        self._closed = False
        self._collector = DriverCollector()
        self._outputs: dict[str, deque[ProducedRecord]] = {}
        self._offsets: dict[str, int] = {}
        self._commits = 0
        self._tap = tap
        application = validate_name(self.config["application.id"], "application.id")
        self._internal = frozenset(topology.internal_topics)
        self._application = application
        subtopologies = topology.subtopologies()
        global_subs = [sub for sub in subtopologies if sub.global_]
        self._global = None
        if global_subs:
            environment = MemoryEnvironment()
            self._global = GlobalTask(application, global_subs, config=self.config, environment=environment, wall_clock=self._clock)
        self._task: StreamTask | None = None
        self._host = DriverHost(self.config, self._clock, call_latency)
        active = [sub for sub in subtopologies if not sub.global_]
        self._inputs: dict[str, TopicPartition] = {}
        self._patterns: list[tuple[Any, TopicPartition]] = []
        if active:
            self._task = self._make_task(topology, active)
        self.sink_topics = {
            self._real(node.topic) for sub in active for node in sub.nodes if isinstance(node, SinkNode) and node.topic
        }
        if self._task is not None:
            self._host.give(self._task).initialize()
            self._capture()

    def _make_task(self, topology: Any, active: list[Subtopology]) -> StreamTask:
        order = {name: index for index, name in enumerate(topology.nodes)}
        nodes = sorted((node for sub in active for node in sub.nodes), key=lambda node: order[node.name])
        stores = {builder.name: builder for sub in active for builder in sub.stores}
        partitions: dict[TopicPartition, str] = {}
        for node in nodes:
            if isinstance(node, SourceNode):
                for topic in node.topics:
                    self._inputs[self._real(topic)] = at = TopicPartition(self._real(topic), 0)
                    partitions[at] = node.name
                if node.pattern is not None:
                    at = TopicPartition(node.pattern.pattern, 0)
                    self._patterns.append((node.pattern, at))
                    partitions[at] = node.name
        merged = Subtopology(id=0, nodes=tuple(nodes), stores=tuple(stores.values()), global_=False)
        spec = TaskSpec(self._application, merged, TaskId(0, 0), partitions, self.config, self._internal)
        return StreamTask(
            spec,
            environment=self._host.environment() if self._mode == "deployed" else MemoryEnvironment(),
            collector=self._collector,
            wall_clock=self._clock,
            global_stores={} if self._global is None else self._global.stores,
            exact_cache=self._mode == "exact",
            loop_threshold=LOOP_THRESHOLD if self._mode == "exact" else 1,
            tap=self._tap,
        )

    def _real(self, topic: str) -> str:
        return f"{self._application}-{topic}" if topic in self._internal else topic

    def _clock(self) -> int:
        return self._now

    # ---- topics ----------------------------------------------------------------------------------------------------------------

    def create_input_topic(
        self,
        topic: str,
        key_serde: Any = None,
        value_serde: Any = None,
        *,
        start_timestamp: int | datetime | None = None,
        auto_advance: int | timedelta = 0,
    ) -> TestInputTopic:
        """Return an input topic that pipes records into `topic`; serdes (or their names) default to bytes.

        Args:
            topic: name of the topic.
            key_serde, value_serde: a serde or its name; None = bytes.
            start_timestamp: of the first record without its own; None: the mocked wall clock (with `auto_advance`: its current
                time).
            auto_advance: how much later each further record is (ms or timedelta).

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string", start_timestamp=1000, auto_advance=10)
            >>> words_in.pipe_input("a", "to")
            >>> driver.state_store("counts").get("a").timestamp
            1000
        """
        advance = span_ms(auto_advance, "auto_advance")
        start = None if start_timestamp is None else time_ms(start_timestamp, "start_timestamp")
        if start is None and advance:
            start = self._now
        return TestInputTopic(self, topic, *serdes_of_topic(self.config, topic, key_serde, value_serde), start, advance)

    def create_output_topic(self, topic: str, key_serde: Any = None, value_serde: Any = None) -> TestOutputTopic:
        """Return an output topic that reads what was written to `topic`, oldest first, each record once.

        Args:
            topic: name of the topic.
            key_serde, value_serde: a serde or its name; None = bytes.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string")
            >>> words_in.pipe_input("a", "to")
            >>> driver.create_output_topic("counted", "string", "long").read_key_value()
            ('a', 1)
        """
        return TestOutputTopic(self, topic, *serdes_of_topic(self.config, topic, key_serde, value_serde))

    def produced_topic_names(self) -> set[str]:
        """Return every topic written to so far, including changelogs and repartition topics.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string")
            >>> words_in.pipe_input("a", "to")
            >>> sorted(driver.produced_topic_names())
            ['counted', 'test-counts-changelog']
        """
        return set(self._outputs)

    def advance_wall_clock_time(self, by: int | timedelta) -> None:
        """Advance the mocked wall clock by `by` (ms or timedelta): calls of asynchronous nodes end in order of time, due
        wall-clock punctuations run once, and a commit follows.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.advance_wall_clock_time(5000)
            >>> driver.now()
            5000
        """
        self._check_open()
        self._host.fold()
        end = self._now + span_ms(by, "the advance of the wall clock")
        for now in self._host.times_of_calls(end):
            self._now = now
            self._complete()
        self._now = end
        if self._task is not None:
            self._task.punctuate_wall_clock()
            self._commit()
        self._complete()

    # ---- state -----------------------------------------------------------------------------------------------------------------

    def state_store(self, name: str) -> Any:
        """Return a store of the topology, readable and writable, as processors see it.

        Args:
            name: name of the store.

        Raises:
            InvalidStateStoreError: the topology has no such store.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string")
            >>> words_in.pipe_input("a", "to")
            >>> driver.state_store("counts").get("a").value
            1
        """
        stores = self.all_state_stores()
        if name in stores:
            return stores[name]
        raise InvalidStateStoreError(
            f"the topology has no store {name!r}",
            hint=did_you_mean(name, stores) or f"its stores: {', '.join(sorted(stores)) or 'none'}",
            store=name,
        )

    def all_state_stores(self) -> dict[str, Any]:
        """Return all stores by name, including global ones.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string")
            >>> list(driver.all_state_stores())
            ['counts']
        """
        return {**({} if self._task is None else self._task.stores), **({} if self._global is None else self._global.stores)}

    @property
    def dropped(self) -> int:
        """Return `dropped-records-total` over all nodes.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string")
            >>> words_in.pipe_input(None, "to")
            >>> driver.dropped
            1
        """
        total = sum(self._task.dropped.values()) if self._task is not None else 0
        return total + (sum(self._global.services.dropped.values()) if self._global is not None else 0)

    @property
    def node_counts(self) -> dict[str, NodeCount]:
        """Return by node the numbers of records received, forwarded and dropped.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string")
            >>> words_in.pipe_input("a", "to")
            >>> driver.node_counts["words"].taken
            1
        """
        tasks = [*([] if self._task is None else [self._task.counts]), *([] if self._global is None else [self._global.services.counts])]
        return added(counts.read() for counts in tasks)

    def metrics(self) -> list[Metric]:
        """Return dropped records and the processors' own metrics, as `context.metrics().metrics()`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string")
            >>> words_in.pipe_input(None, "no key")
            >>> [metric.value for metric in driver.metrics() if metric.name == "dropped-records-total"]
            [1]
        """
        return self._host.metrics()

    def close(self) -> None:
        """Close processors and stores; idempotent. The output can still be read.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.close()
        """
        self._closed = True
        try:
            if self._task is not None:
                self._task.close()
        finally:
            self._host.close()
            if self._global is not None:
                self._global.close()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- inside ----------------------------------------------------------------------------------------------------------------

    def pipe_bytes(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None = None) -> None:
        """Pipe one record as it would be on the broker, and run until all records are processed.

        Args:
            topic: name of the topic.
            key, value: serialized; None = no key, or a tombstone.
            timestamp: milliseconds since 1970.
            headers: (name, bytes) pairs; None = none.

        Raises:
            UnknownTopicError: the topology does not read the topic.
            IllegalStateTransitionError: the driver is closed.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string")
            >>> driver.pipe_bytes("words", b"a", b"to", 1000)
            >>> driver.state_store("counts").get("a").value
            1
        """
        self._check_open()
        at, known = self._partition(topic), False
        if at is not None:
            self._enqueue(at, topic, key, value, timestamp, headers or [])
            self._complete()
            known = True
        if self._global is not None and topic in self._global.topics:
            self._apply_global(topic, key, value, timestamp, headers or [])
            known = True
        if not known:
            topics = [*self._inputs, *(self._global.topics if self._global else ())]
            raise UnknownTopicError(
                f"the topology does not read topic {topic!r}",
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
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words_in = driver.create_input_topic("words", "string", "string")
            >>> words_in.pipe_input("a", "to")
            >>> driver.output("counted")[0].key
            b'a'
        """
        return self._outputs.get(topic) or deque()

    def _partition(self, topic: str) -> TopicPartition | None:
        return self._inputs.get(topic) or next((place for pattern, place in self._patterns if pattern.fullmatch(topic)), None)

    def _enqueue(self, at: TopicPartition, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        assert self._task is not None
        offset = self._offsets.get(at.topic, 0)
        self._offsets[at.topic] = offset + 1
        self._task.add_records(at, RecordBatch([key], [value], [timestamp], [offset], [headers], topic))

    def _complete(self) -> None:
        self._capture()
        task = self._task
        if task is None:
            return
        for at in task.group.queues:
            task.set_lag(at, 0)
        while self._host.run_calls() | bool(task.process(1)):
            task.punctuate_stream_time()
            self._commit()
            self._capture()

    def _commit(self) -> None:
        assert self._task is not None
        self._task.prepare_commit()
        self._commits += 1
        self._task.post_commit(self._commits, {})

    def _capture(self) -> None:
        sent = self._collector.sent
        if not sent:
            return
        self._collector.sent[:], sent = [], list(sent)
        for topic, key, value, timestamp, headers in sent:
            self._outputs.setdefault(topic, deque()).append(ProducedRecord(key, value, timestamp, headers))
            at = self._partition(topic)
            if at is not None:
                self._enqueue(at, topic, key, value, timestamp, list(headers))
            if self._global is not None and topic in self._global.topics:
                self._apply_global(topic, key, value, timestamp, list(headers))

    def _apply_global(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        assert self._global is not None
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        self._global.update(topic, 0, RecordBatch([key], [value], [timestamp], [offset], [headers]))
        self._global.commit({}, offset)

    def now(self) -> int:
        """Return the time of the mocked wall clock (ms).

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.now()
            0
        """
        return self._now
