"""The record a processor sees: immutable, with `with_*` copies. A record that is forwarded as it is shares its headers with all who get
it; a copy, or one that is made anew, has headers of its own, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import index
from typing import Any

from kstreams_repl.errors import InvalidRecordError
from kstreams_repl.types import Headers


@dataclass(frozen=True, slots=True)
class Record:
    """One record inside a topology.

    Attributes:
        key, value: deserialized; either may be None.
        timestamp: ms since the epoch, a whole number, never negative.
        headers: shared with every node that gets this very record; a new record, as each `with_*` copy, has its own list. None: no headers;
            a dict: its items.
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers = field(default_factory=list)

    def __post_init__(self) -> None:
        _make_own(self)

    def with_key(self, key: Any) -> Record:
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record:
        return Record(self.key, self.value, self.timestamp, headers)


@dataclass(frozen=True, slots=True)
class FixedKeyRecord:
    """A record whose key cannot change, so that no repartition is needed after a `process_values`."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = field(default_factory=list)

    def __post_init__(self) -> None:
        _make_own(self)

    def with_value(self, value: Any) -> FixedKeyRecord:
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord:
        return FixedKeyRecord(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> FixedKeyRecord:
        return FixedKeyRecord(self.key, self.value, self.timestamp, headers)


def _make_own(record: Record | FixedKeyRecord) -> None:
    timestamp = record.timestamp
    headers: Any = record.headers
    if timestamp.__class__ is not int:
        try:
            object.__setattr__(record, "timestamp", index(timestamp))
        except TypeError:
            raise InvalidRecordError(
                f"a record's timestamp is whole milliseconds, not {timestamp!r}",
                hint="give milliseconds since 1970 as an int: int(time.time() * 1000)",
            ) from None
    if record.timestamp < 0:
        raise _negative(timestamp)
    pairs = headers.items() if isinstance(headers, dict) else headers
    object.__setattr__(record, "headers", list(pairs) if pairs else [])


def sharing(kind: type[Any]) -> Callable[[Any, Any, int, Headers], Any]:
    """Makes records of a kind (`Record`, `FixedKeyRecord`) around the list of headers itself: what a node is handed."""
    new, set_key, set_value = object.__new__, kind.key.__set__, kind.value.__set__
    set_timestamp, set_headers = kind.timestamp.__set__, kind.headers.__set__

    def make(key: Any, value: Any, timestamp: int, headers: Headers) -> Any:
        if timestamp < 0:
            raise _negative(timestamp)
        record = new(kind)
        set_key(record, key)
        set_value(record, value)
        set_timestamp(record, timestamp)
        set_headers(record, headers)
        return record

    return make


def _negative(timestamp: int) -> InvalidRecordError:
    return InvalidRecordError(f"a record's timestamp cannot be negative: {timestamp}", hint="give milliseconds since 1970")
