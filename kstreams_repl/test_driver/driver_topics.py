"""The topics of a test driver: a `TestInputTopic` pipes records in, and a `TestOutputTopic` reads the output."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes import Serde, resolve
from kstreams_repl.engine.serdes.header_ids import framed, on_the_wire, without_stale_ids
from kstreams_repl.engine.serdes.schemas.schema_registry import settings_from
from kstreams_repl.system.durations import Millis, as_millis
from kstreams_repl.system.errors import CallError, IllegalStateError, InvalidRecordError, did_you_mean
from kstreams_repl.system.types import Headers


class ProducedRecord(NamedTuple):
    """A record that the topology wrote, as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    partition: int = 0


class Driver(Protocol):
    """What a topic needs of its driver, as in `TopologyTestDriver`."""

    sink_topics: set[str]

    def now(self) -> int: ...
    def pipe_bytes(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers | None = None,
        *,
        partition: int | None = None,
    ) -> None: ...
    def output(self, topic: str) -> deque[ProducedRecord]: ...
    def produced_topic_names(self) -> set[str]: ...


class TestRecord(NamedTuple):
    """One deserialized record of a topic. Headers are (name, bytes) pairs."""

    key: Any
    value: Any
    timestamp: int | None = None
    headers: Headers = []


TestRecord.__test__ = False  # type: ignore[attr-defined]


class TestInputTopic:
    """Pipes records into one topic of the driver."""

    __test__ = False

    def __init__(
        self, driver: Driver, topic: str, key_serde: Serde, value_serde: Serde, start: int | None, advance: int
    ) -> None:
        self._driver = driver
        self.topic = topic
        self._serdes = key_serde, value_serde
        self._next = start
        self._advance = advance

    def pipe_input(
        self,
        key: object = None,
        value: object = None,
        timestamp: int | datetime | None = None,
        headers: Headers | Mapping[str, bytes | None] | None = None,
        *,
        partition: int | None = None,
    ) -> None:
        """Pipe one record and run until all records are processed.

        Args:
            key, value: serialized with the serdes of the topic.
            timestamp: ms, or a datetime (naive ones are UTC); None: the start timestamp (advanced by `auto_advance` each time),
                else the mocked wall clock.
            headers: (name, bytes) pairs, or a dict.
            partition: None: that of the key, as a producer chooses it; without a key the next one.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> words.pipe_input("a", "to", timestamp=1000)
        """
        if timestamp is None:
            if self._next is None:
                timestamp = self._driver.now()
            else:
                timestamp = self._next
                self._next += self._advance
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        time = time_ms(timestamp, "timestamp")
        key_serde, value_serde = self._serdes
        pairs = without_stale_ids(key_serde, value_serde, pairs)
        data = on_the_wire(key_serde, value_serde, key_serde.serialize(key), value_serde.serialize(value), pairs)
        self._driver.pipe_bytes(self.topic, data[0], data[1], time, data[2], partition=partition)

    def advance_time(self, by: Millis) -> None:
        """Advance the time of later records without their own timestamp (ms, timedelta or "30 s").

        Args:
            by: how much later (ms, timedelta or "30 s"), 0 or more.

        Raises:
            KStreamsError: `by` is negative, or neither.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> words = driver.create_input_topic("in", "string", "string", start_timestamp=1000)
            >>> words.advance_time(500)
            >>> words.pipe_input("a", "to")
            >>> driver.create_output_topic("out", "string", "string").read_record().timestamp
            1500
        """
        span = as_millis(by, "by", error=CallError)
        self._next = (self._driver.now() if self._next is None else self._next) + span

    def pipe_records(self, records: Iterable[TestRecord | tuple[object, ...]]) -> None:
        """Pipe `(key, value)`, `(key, value, timestamp)` or `TestRecord` items in order.

        Args:
            records: pairs, triples or `TestRecord` items.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> words.pipe_records([("a", "to", 1000), ("b", "be", 2000)])
        """
        for record in records:
            self.pipe_input(*record)

    def pipe_value_list(
        self, values: Iterable[object], start: int | datetime | None = None, advance: Millis | None = None
    ) -> None:
        """Pipe values without keys, in order.

        Args:
            start: time of the first record (ms or datetime), with `advance` between records; without both the topic's own times
                apply.
            advance: ms, timedelta or "30 s".

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> words.pipe_value_list(["to", "be"])
        """
        self.pipe_key_value_list(((None, value) for value in values), start, advance)

    def pipe_key_value_list(
        self, pairs: Iterable[tuple[object, object]], start: int | datetime | None = None, advance: Millis | None = None
    ) -> None:
        """Pipe `(key, value)` pairs in order; times as for `pipe_value_list`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> words.pipe_key_value_list([("a", "to"), ("b", "be")])
        """
        if start is None and advance is None:
            self.pipe_records(pairs)
            return
        time = self._driver.now() if start is None else time_ms(start, "start")
        by = 0 if advance is None else as_millis(advance, "advance", error=CallError)
        for number, (key, value) in enumerate(pairs):
            self.pipe_input(key, value, time + number * by)


class TestOutputTopic:
    """Reads what the topology wrote to one topic, oldest first."""

    __test__ = False

    def __init__(self, driver: Driver, topic: str, key_serde: Serde, value_serde: Serde, partition: int | None = None) -> None:
        self._driver = driver
        self.topic = topic
        self._serdes = key_serde, value_serde
        self._partition = partition

    def _waiting(self) -> Sequence[ProducedRecord]:
        waiting = self._driver.output(self.topic)
        return waiting if self._partition is None else [record for record in waiting if record.partition == self._partition]

    def is_empty(self) -> bool:
        """Return whether all records have been read.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> loud = driver.create_output_topic("out", "string", "string")
            >>> words.pipe_key_value_list([("a", "to"), ("b", "be")])
            >>> loud.is_empty()
            False
        """
        return not self._waiting()

    def queue_size(self) -> int:
        """Return the number of unread records.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> loud = driver.create_output_topic("out", "string", "string")
            >>> words.pipe_key_value_list([("a", "to"), ("b", "be")])
            >>> loud.queue_size()
            2
        """
        return len(self._waiting())

    def read_record(self) -> TestRecord:
        """Return the oldest unread record; raise if there is none.

        Raises:
            IllegalStateError: there is no unread record.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> loud = driver.create_output_topic("out", "string", "string")
            >>> words.pipe_key_value_list([("a", "to"), ("b", "be")])
            >>> loud.read_record().value
            'TO'
        """
        waiting = self._waiting()
        if not waiting:
            exists = self.topic in self._driver.sink_topics | self._driver.produced_topic_names()
            raise IllegalStateError(
                f"no unread record on topic {self.topic!r}" + ("" if exists else ": the topology has written nothing to it"),
                hint=(None if exists else did_you_mean(self.topic, self._driver.sink_topics)) or "check is_empty() first",
                topic=self.topic,
            )
        record = waiting[0]
        self._driver.output(self.topic).remove(record)  # the first one that is equal
        key_serde, value_serde = self._serdes
        key = framed(record.key, record.headers, "key") if key_serde.reads_header_ids else record.key
        value = framed(record.value, record.headers, "value") if value_serde.reads_header_ids else record.value
        return TestRecord(key_serde.deserialize(key), value_serde.deserialize(value), record.timestamp, record.headers)

    def read_key_value(self) -> tuple[Any, Any]:
        """Return the next record's key and value.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> words.pipe_key_value_list([("a", "to")])
            >>> driver.create_output_topic("out", "string", "string").read_key_value()
            ('a', 'TO')
        """
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> Any:
        """Return the next record's value.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> loud = driver.create_output_topic("out", "string", "string")
            >>> words.pipe_key_value_list([("a", "to"), ("b", "be")])
            >>> loud.read_value()
            'TO'
        """
        return self.read_record().value

    def read_records(self) -> list[TestRecord]:
        """Return all unread records.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> loud = driver.create_output_topic("out", "string", "string")
            >>> words.pipe_key_value_list([("a", "to"), ("b", "be")])
            >>> [record.key for record in loud.read_records()]
            ['a', 'b']
        """
        return [self.read_record() for _ in range(self.queue_size())]

    def read_key_values(self) -> list[tuple[Any, Any]]:
        """Return the keys and values of all unread records.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> loud = driver.create_output_topic("out", "string", "string")
            >>> words.pipe_key_value_list([("a", "to"), ("b", "be")])
            >>> loud.read_key_values()
            [('a', 'TO'), ('b', 'BE')]
        """
        return [(record.key, record.value) for record in self.read_records()]

    def read_values(self) -> list[Any]:
        """Return the values of all unread records.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> loud = driver.create_output_topic("out", "string", "string")
            >>> words.pipe_key_value_list([("a", "to"), ("b", "be")])
            >>> loud.read_values()
            ['TO', 'BE']
        """
        return [record.value for record in self.read_records()]

    def read_key_values_to_map(self) -> dict[Any, Any]:
        """Return the last value of each key.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in", key_serde="string", value_serde="string").map_values(str.upper).to("out", value_serde="string")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> words = driver.create_input_topic("in", "string", "string")
            >>> loud = driver.create_output_topic("out", "string", "string")
            >>> words.pipe_key_value_list([("a", "to"), ("b", "be")])
            >>> loud.read_key_values_to_map()
            {'a': 'TO', 'b': 'BE'}
        """
        return dict(self.read_key_values())


def time_ms(time: int | datetime, what: str) -> int:
    """Return a point in time in milliseconds since 1970."""
    if isinstance(time, datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if isinstance(time, bool) or not isinstance(time, int):
        hint = "give whole milliseconds since 1970 (int) or a datetime (a naive one is UTC)"
        raise InvalidRecordError(f"{what} must be a time, got {time!r}", hint=hint)
    return time


def serdes_of_topic(config: StreamsConfig, topic: str, key: object, value: object) -> tuple[Serde, Serde]:
    """Return the serdes for a user's arguments, with the Schema Registry of the topology's settings."""
    registry = settings_from(config.client)
    return resolve(key).for_topic(topic, "key", registry), resolve(value).for_topic(topic, "value", registry)
