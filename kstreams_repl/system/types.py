"""Values that all layers share: record coordinates, windows, timestamped and versioned values.

All are immutable and free of I/O, except `Headers`: as in Kafka Streams the headers of a record are passed by reference, so a header that
one processor adds in place is visible to siblings that run after it.
"""

from __future__ import annotations

import functools
import inspect
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Headers = list[tuple[str, bytes | None]]
"""Headers of one record in order; the list belongs to the record being processed. Names may repeat."""


Outlet = Callable[[Sequence[bytes], Sequence[bytes | None], Sequence[int], Sequence[Headers] | None], None]
"""(keys, values, timestamps, headers or None if no record has any): receives serialized records as columns."""


RowLoop = Callable[[Sequence[Any], Sequence[Any], Sequence[int], Sequence[Headers], Sequence[Any]], bool]
"""(keys, new values, timestamps, headers, entries of the cache): forwards a table's rows, all under the context of their entries. False:
nothing was forwarded."""


JsonObject = dict[str, Any]
"""An object of JSON by its fields: reports, answers, files, syntax trees."""
JsonMapping = Mapping[str, Any]
"""The same, only read."""

# Functions of the user; keys and values are of the user's own types.
UserFunction = Callable[..., Any]
ValueMapper = Callable[..., Any]
"""(value) -> result, or (key, value) -> result."""
KeyValueMapper = Callable[[Any, Any], Any]
"""(key, value) -> result."""
Predicate = Callable[[Any, Any], object]
"""(key, value) -> truth value."""
Joiner = Callable[..., Any]
"""(value, other) -> value, or (key, value, other) -> value."""
Initializer = Callable[[], Any]
"""() -> first aggregate."""
Reducer = Callable[[Any, Any], Any]
"""(aggregate, value) -> aggregate."""
Aggregator = Callable[[Any, Any, Any], Any]
"""(key, value, aggregate) -> aggregate."""
Merger = Callable[[Any, Any, Any], Any]
"""(key, one aggregate, other) -> aggregate."""
TimestampExtractor = Callable[[Any, int], int]
"""(record, partition time) -> ms."""
StreamPartitioner = Callable[..., Any]
"""(topic, key, value, number of partitions) -> partition, partitions or None; with a parameter named `headers` also the record's, before
the number of partitions."""
ProcessorSupplier = Callable[[], Any]
"""() -> a processor or transformer of one task."""
Deserialize = Callable[[bytes], Any]


def is_async(function: object) -> bool:
    """Return whether a call of the function returns a coroutine or an asynchronous generator instead of its result."""
    while isinstance(function, functools.partial):
        function = function.func
    calls = (function, vars(type(function)).get("__call__"))
    return any(inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call) for call in calls)


SparkMaster = str | Mapping[str, str] | None
"""The address of a Spark master, settings of Spark with it (``spark.master``), or None: local."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TaskId(NamedTuple):
    """One task: a sub-topology and a partition. Printed as Kafka Streams does: ``0_3``."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Read a task id as Kafka Streams writes it.

        Args:
            text: sub-topology and partition: ``0_3``.

        Raises:
            ValueError: not of that form.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.types.TaskId.parse("0_1").partition
            1
        """
        sub, _, part = text.partition("_")
        return cls(int(sub), int(part))


class Windowed(NamedTuple):
    """A key with its window `[start, end)` (time windows) or `[start, end]` (session and sliding windows) in milliseconds."""

    key: Any
    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.key}@{self.start}/{self.end}]"


class ValueAndTimestamp(NamedTuple):
    """A stored value with the timestamp (ms) of the latest record that contributed to it."""

    value: Any
    timestamp: int


class ValueTimestampHeaders(NamedTuple):
    """What a store with headers keeps for a key or window: value, timestamp (ms), and the headers that were put with them (KIP-1271)."""

    value: Any
    timestamp: int
    headers: Headers = []


class AggregationWithHeaders(NamedTuple):
    """What a session store with headers keeps for a session: the aggregate, and the headers that were put with it (KIP-1271)."""

    aggregation: Any
    headers: Headers = []


_ENDPOINT = re.compile(r"(?:[a-z]+://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})/?")


def endpoint_of(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; an IPv6 address stands in square brackets.

    Raises:
        ValueError: it is something else, or the port is over 65535.

    Example:
        >>> endpoint_of("[::1]:8081")
        ('::1', 8081)
    """
    found = _ENDPOINT.fullmatch(text.strip())
    if found is None or int(found[2]) > 65_535:
        raise ValueError("expected host:port")
    return found[1].strip("[]"), int(found[2])


class UserLine(NamedTuple):
    """File (or cell), line number and source text of a line of the user's code."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.text else f"{self.file}:{self.line}"


class RecordPosition(NamedTuple):
    """The position of one record in Kafka; as text ``orders-0@17`` (topic, partition, offset)."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> RecordPosition:
        """Parse the text form.

        Raises:
            ValueError: it is not TOPIC-PARTITION@OFFSET.

        Example:
            >>> from kstreams_repl.types import RecordPosition
            >>> str(RecordPosition.parse("orders-0@17")), RecordPosition.parse("orders-0@17").offset
            ('orders-0@17', 17)
        """
        at, _, offset = text.strip().rpartition("@")
        topic, _, partition = at.rpartition("-")
        if not topic or not (partition.isascii() and partition.isdecimal() and offset.isascii() and offset.isdecimal()):
            raise ValueError(f"expected TOPIC-PARTITION@OFFSET, got {text.strip()!r}")
        return cls(topic, int(partition), int(offset))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class VersionedRecord(NamedTuple):
    """A value as of a time; `valid_to` is None for the current version."""

    value: Any
    timestamp: int
    valid_to: int | None = None


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Origin of the record being processed; topic None, partition and offset -1 in a punctuation."""

    topic: str | None
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class SinkMetadata(RecordMetadata):
    """What a topic is chosen by in addition to key and value: the origin of the source record, and the outgoing record's time and headers
    (Kafka Streams' `RecordContext`). The headers are a copy.
    """

    timestamp: int
    headers: Headers


@dataclass(slots=True)
class RecordBatch:
    """Consecutive records of one partition in columns: one list per attribute, all of one length.

    `headers` is None when no record of the batch has any; else a list with one `Headers` (or None) per record. Timestamps are ms; offsets
    ascend but need not be dense (compaction, transaction markers).
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: list[int]
    headers: list[Headers | None] | None = None
    topic: str | None = None
    size_bytes: int = field(default=0, compare=False)
    """Approximate size of its values; 0 where it is not needed."""

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, rows: slice) -> RecordBatch:
        """Return some of the records."""
        offsets = self.offsets[rows]
        headers = None if self.headers is None else self.headers[rows]
        size = self.size_bytes * len(offsets) // max(len(self), 1)
        return RecordBatch(self.keys[rows], self.values[rows], self.timestamps[rows], offsets, headers, self.topic, size)

    def before(self, offset: int) -> RecordBatch:
        """Return the records below an offset.

        Example:
            >>> RecordBatch([None] * 3, [b"a", b"b", b"c"], [1, 2, 3], [4, 6, 8]).before(7).values
            [b'a', b'b']
        """
        return self.part(slice(bisect_left(self.offsets, offset)))


def header_text(value: bytes | str | None) -> str | None:
    r"""Return a header's value as text: UTF-8, else each byte as ``\xFF``, which SQL reads as a BLOB. Text stays as it is.

    Example:
        >>> header_text(b"TypeError"), header_text(b"\xff\x00")
        ('TypeError', '\\xFF\\x00')
    """
    if value is None or isinstance(value, str):
        return value
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02X}" for byte in value)
