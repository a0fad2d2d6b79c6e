"""Values that every layer shares: coordinates in Kafka, windows, timestamped and versioned values.

Everything here is immutable and free of I/O. `Headers` is the one mutable thing: as in Kafka Streams the headers of a record travel
by reference, so a header that one processor adds in place is seen by siblings that run after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Headers = list[tuple[str, bytes | None]]
"""Headers of one record in order; a list that is owned by the record being processed. Names may repeat."""


Outlet = Callable[[Sequence[bytes], Sequence[bytes | None], Sequence[int], Sequence[Headers] | None], None]
"""(keys, values, timestamps, headers or None when no record has any): takes serialized records in columns."""


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
        sub, _, part = text.partition("_")
        return cls(int(sub), int(part))


class Windowed(NamedTuple):
    """A key inside a window `[start, end)` (time windows) or `[start, end]` (session and sliding windows); milliseconds."""

    key: Any
    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.key}@{self.start}/{self.end}]"


class ValueAndTimestamp(NamedTuple):
    """A stored value with the timestamp (ms) of the latest record that made it."""

    value: Any
    timestamp: int


class VersionedRecord(NamedTuple):
    """A value as of a time; `valid_to` is None for the version that is still current."""

    value: Any
    timestamp: int
    valid_to: int | None = None


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where the record being processed came from; topic None, partition and offset -1 in a punctuation."""

    topic: str | None
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class SinkMetadata(RecordMetadata):
    """What a topic is chosen by beside key and value: where the source record came from, and the outgoing record's time and headers
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
    """What its values take, about; 0 where nobody asks."""

    def __len__(self) -> int:
        return len(self.offsets)
