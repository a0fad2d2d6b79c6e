"""The record a processor sees: immutable, with `with_*` copies. A record that is forwarded as it is shares its headers with all who get
it; a copy has headers of its own, as in Kafka Streams.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kstreams_repl.errors import InvalidRecordError
from kstreams_repl.types import Headers


@dataclass(frozen=True, slots=True)
class Record:
    """One record inside a topology.

    Attributes:
        key, value: deserialized; either may be None.
        timestamp: ms since the epoch, never negative.
        headers: shared with every node that gets this very record; each `with_*` copy has its own list.
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.timestamp < 0:
            raise _negative(self.timestamp)

    def with_key(self, key: Any) -> Record:
        return Record(key, self.value, self.timestamp, list(self.headers))

    def with_value(self, value: Any) -> Record:
        return Record(self.key, value, self.timestamp, list(self.headers))

    def with_timestamp(self, timestamp: int) -> Record:
        return Record(self.key, self.value, timestamp, list(self.headers))

    def with_headers(self, headers: Headers) -> Record:
        return Record(self.key, self.value, self.timestamp, list(headers))


@dataclass(frozen=True, slots=True)
class FixedKeyRecord:
    """A record whose key cannot change, so that no repartition is needed after a `process_values`."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.timestamp < 0:
            raise _negative(self.timestamp)

    def with_value(self, value: Any) -> FixedKeyRecord:
        return FixedKeyRecord(self.key, value, self.timestamp, list(self.headers))

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord:
        return FixedKeyRecord(self.key, self.value, timestamp, list(self.headers))

    def with_headers(self, headers: Headers) -> FixedKeyRecord:
        return FixedKeyRecord(self.key, self.value, self.timestamp, list(headers))


def _negative(timestamp: int) -> InvalidRecordError:
    return InvalidRecordError(f"a record's timestamp cannot be negative: {timestamp}", hint="give milliseconds since 1970")
