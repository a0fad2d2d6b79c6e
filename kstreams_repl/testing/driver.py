"""`TopologyTestDriver`: run a topology in-process, one record at a time, without a broker and without Spark.

It drives the *real* task: one task, one partition, one stream time for the whole topology, a commit after every record; records written
to a topic that the topology reads come back in. What it says nothing about: partitioning, time across tasks, restore. Source: Kafka
Streams' TopologyTestDriver.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, NamedTuple

from kstreams_repl import serdes
from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import (
    IllegalStateTransitionError,
    InvalidRecordError,
    InvalidStateStoreError,
    KStreamsError,
    UnknownTopicError,
    did_you_mean,
)
from kstreams_repl.runtime.collector import Send, Site
from kstreams_repl.runtime.compile import Tap
from kstreams_repl.runtime.global_task import GlobalTask
from kstreams_repl.runtime.task import StreamTask, TaskSpec
from kstreams_repl.stores.engine.memory import MemoryEnvironment
from kstreams_repl.topology.names import validate_name
from kstreams_repl.topology.nodes import SinkNode, SourceNode
from kstreams_repl.topology.subtopologies import Subtopology
from kstreams_repl.types import Headers, RecordBatch, TaskId, TopicPartition


class ProducedRecord(NamedTuple):
    """What the topology wrote, as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class TestRecord(NamedTuple):
    """One record on a topic, decoded. Headers as (name, bytes) pairs."""

    key: Any
    value: Any
    timestamp: int | None = None
    headers: Headers = []


TestRecord.__test__ = False  # type: ignore[attr-defined]


class _Collector:
    """Keeps what the task sends, in order; every topic has one partition."""

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


_DRIVER_SETTINGS = {"application.id": "test", "repl.changelog.suppression": False, "repl.outer.join.emit.interval.ms": 0}


class TopologyTestDriver:
    """Drive a topology record by record.

    Args:
        topology: what to run; a builder is built with `config`.
        config: settings as for a deployment; `application.id` defaults to "test".
        start_ms: where the mocked wall clock starts (ms, or a datetime, naive ones are UTC); default: now.
        tap: gives an observer for each node's output, to look at the values between nodes.

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
        self, topology: Any, config: Mapping[str, Any] | None = None, *, start_ms: int | datetime | None = None, tap: Tap | None = None
    ) -> None:
        settings = dict(config) if config is not None else {}
        self.config = StreamsConfig(_DRIVER_SETTINGS | settings)
        topology = topology.build(self.config) if callable(getattr(topology, "build", None)) else topology
        self._now = int(time.time() * 1000) if start_ms is None else _time(start_ms, "start_ms")
        self._closed = False
        self._collector = _Collector()
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
            self._global = GlobalTask(
                application, global_subs, config=self.config, environment=MemoryEnvironment(), wall_clock=self._clock
            )
        self._task: StreamTask | None = None
        active = [sub for sub in subtopologies if not sub.global_]
        self._inputs: dict[str, TopicPartition] = {}
        self._patterns: list[tuple[Any, TopicPartition]] = []
        if active:
            self._task = self._make_task(topology, active)
        self.sink_topics = {
            self._real(node.topic) for sub in active for node in sub.nodes if isinstance(node, SinkNode) and node.topic
        }
        if self._task is not None:
            self._task.initialize()
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
            environment=MemoryEnvironment(),
            collector=self._collector,
            wall_clock=self._clock,
            global_stores={} if self._global is None else self._global.stores,
            exact_cache=True,
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
        """A handle to pipe records into `topic`; serdes (or their names) default to bytes.

        Args:
            start_timestamp: of the first record that has none; default: the mocked wall clock (with `auto_advance`: as it is now).
            auto_advance: how much later each further one is (ms or timedelta).
        """
        advance = _span(auto_advance, "auto_advance")
        start = None if start_timestamp is None else _time(start_timestamp, "start_timestamp")
        if start is None and advance:
            start = self._now
        return TestInputTopic(self, topic, serdes.resolve(key_serde), serdes.resolve(value_serde), start, advance)

    def create_output_topic(self, topic: str, key_serde: Any = None, value_serde: Any = None) -> TestOutputTopic:
        """A handle to read what was written to `topic`, oldest first, each record once."""
        return TestOutputTopic(self, topic, serdes.resolve(key_serde), serdes.resolve(value_serde))

    def produced_topic_names(self) -> set[str]:
        """Every topic written to so far, changelogs and repartition topics included."""
        return set(self._outputs)

    def advance_wall_clock_time(self, by: int | timedelta) -> None:
        """Move the mocked clock on by `by` (ms or timedelta), run due wall-clock punctuations once, commit."""
        self._check_open()
        self._now += _span(by, "the advance of the wall clock")
        if self._task is not None:
            self._task.punctuate_wall_clock()
            self._commit()
        self._complete()

    # ---- state -----------------------------------------------------------------------------------------------------------------

    def state_store(self, name: str) -> Any:
        """A store of the topology, readable and writable, as the processors see it."""
        stores = self.all_state_stores()
        if name in stores:
            return stores[name]
        raise InvalidStateStoreError(
            f"the topology has no store {name!r}",
            hint=did_you_mean(name, stores) or f"its stores: {', '.join(sorted(stores)) or 'none'}",
            store=name,
        )

    def all_state_stores(self) -> dict[str, Any]:
        """All stores by name, global ones included."""
        found = dict(self._task.stores) if self._task is not None else {}
        if self._global is not None:
            found |= self._global.stores
        return found

    @property
    def dropped(self) -> int:
        """`dropped-records-total` over all nodes."""
        total = sum(self._task.dropped.values()) if self._task is not None else 0
        return total + (sum(self._global.services.dropped.values()) if self._global is not None else 0)

    def close(self) -> None:
        """Close processors and stores; idempotent. What was written can still be read."""
        self._closed = True
        try:
            if self._task is not None:
                self._task.close()
        finally:
            if self._global is not None:
                self._global.close()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- inside ----------------------------------------------------------------------------------------------------------------

    def pipe_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None = None
    ) -> None:
        """Pipe one record as it would lie on the broker, and run until nothing is left to do."""
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

    def _written(self, topic: str) -> bool:
        """Whether the topology wrote to `topic`, or has a sink for it."""
        return topic in self._outputs or topic in self.sink_topics

    def output(self, topic: str) -> deque[ProducedRecord]:
        """Records written to `topic` and not read yet."""
        return self._outputs.get(topic) or deque()

    def _partition(self, topic: str) -> TopicPartition | None:
        at = self._inputs.get(topic)
        if at is None:
            for pattern, place in self._patterns:
                if pattern.fullmatch(topic):
                    return place
        return at

    def _enqueue(
        self, at: TopicPartition, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
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
        while task.process(1):
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
        """The mocked wall clock (ms)."""
        return self._now


class TestInputTopic:
    """Pipes records into one topic of the driver."""

    __test__ = False

    def __init__(
        self, driver: TopologyTestDriver, topic: str, key_serde: Any, value_serde: Any, start: int | None, advance: int
    ) -> None:
        self._driver = driver
        self.topic = topic
        self._key, self._value = key_serde.serialize, value_serde.serialize
        self._next = start
        self._advance = advance

    def pipe_input(
        self,
        key: Any = None,
        value: Any = None,
        timestamp: int | datetime | None = None,
        headers: Headers | Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Pipe one record and run until nothing is left to do.

        Args:
            timestamp: ms, or a datetime (naive ones are UTC); default: the start timestamp (advanced by `auto_advance` each time), else
                the mocked wall clock.
            headers: (name, bytes) pairs, or a dict.
        """
        if timestamp is None:
            if self._next is None:
                timestamp = self._driver.now()
            else:
                timestamp = self._next
                self._next += self._advance
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        self._driver.pipe_bytes(self.topic, self._key(key), self._value(value), _time(timestamp, "timestamp"), pairs)

    def advance_time(self, by: int | timedelta) -> None:
        """Records without a timestamp of their own are so much later from now on (ms or timedelta)."""
        span = _span(by, "the advance")
        self._next = (self._driver.now() if self._next is None else self._next) + span

    def pipe_records(self, records: Iterable[TestRecord | tuple[Any, ...]]) -> None:
        """Pipe `(key, value)`, `(key, value, timestamp)` or `TestRecord` items in order."""
        for record in records:
            self.pipe_input(*record)


class TestOutputTopic:
    """Reads what the topology wrote to one topic, oldest first."""

    __test__ = False

    def __init__(self, driver: TopologyTestDriver, topic: str, key_serde: Any, value_serde: Any) -> None:
        self._driver = driver
        self.topic = topic
        self._key, self._value = key_serde.deserialize, value_serde.deserialize

    def is_empty(self) -> bool:
        return not self._driver.output(self.topic)

    def queue_size(self) -> int:
        return len(self._driver.output(self.topic))

    def read_record(self) -> TestRecord:
        """The oldest unread record; an error when there is none."""
        waiting = self._driver.output(self.topic)
        if not waiting:
            known = self._driver._written(self.topic)
            raise KStreamsError(
                f"nothing unread on topic {self.topic!r}" + ("" if known else ", to which the topology has written nothing"),
                hint=(None if known else did_you_mean(self.topic, self._driver.sink_topics)) or "ask is_empty() first",
                topic=self.topic,
            )
        record = waiting.popleft()
        return TestRecord(self._key(record.key), self._value(record.value), record.timestamp, record.headers)

    def read_key_value(self) -> tuple[Any, Any]:
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> Any:
        return self.read_record().value

    def read_records(self) -> list[TestRecord]:
        """All unread records."""
        return [self.read_record() for _ in range(self.queue_size())]

    def read_key_values(self) -> list[tuple[Any, Any]]:
        return [(record.key, record.value) for record in self.read_records()]

    def read_values(self) -> list[Any]:
        """The values of all unread records."""
        return [record.value for record in self.read_records()]

    def read_key_values_to_map(self) -> dict[Any, Any]:
        """The last value of each key."""
        return dict(self.read_key_values())


def _span(span: int | timedelta, what: str) -> int:
    millis = round(span.total_seconds() * 1000) if isinstance(span, timedelta) else span
    if isinstance(millis, bool) or not isinstance(millis, int) or millis < 0:
        raise KStreamsError(f"{what} cannot be {span!r}", hint="give milliseconds (int, 0 or more) or a timedelta")
    return millis


def _time(at: int | datetime, what: str) -> int:
    if isinstance(at, datetime):
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if isinstance(at, bool) or not isinstance(at, int):
        hint = "give whole milliseconds since 1970 (int) or a datetime (a naive one is UTC)"
        raise InvalidRecordError(f"{what} cannot be {at!r}", hint=hint)
    return at
