"""The records of the Processor API: immutable, with `with_*` copies. A record that is forwarded unchanged shares its headers with all
receivers; a copy or a new record has its own headers, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import index
from typing import Any

from kstreams_repl.system.errors import InvalidRecordError
from kstreams_repl.system.types import Headers


@dataclass(frozen=True, slots=True)
class Record:
    """One record inside a topology.

    Attributes:
        key, value: deserialized; either may be None.
        timestamp: epoch milliseconds, a whole number >= 0.
        headers: shared with every node that gets this same object; a new record, and each `with_*` copy, has its own list. None means no
            headers; a dict is converted to a list of its items.
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers = field(default_factory=list)

    def __post_init__(self) -> None:
        _make_own(self)

    def with_key(self, key: object) -> Record:
        """Return a copy with this key.

        Example:
            >>> import kstreams_repl as ks
            >>> record = ks.Record("a", "to", 1000)
            >>> record.with_key("b").key
            'b'
        """
        return _record(key, self.value, self.timestamp, list(self.headers))

    def with_value(self, value: object) -> Record:
        """Return a copy with this value.

        Example:
            >>> import kstreams_repl as ks
            >>> record = ks.Record("a", "to", 1000)
            >>> record.with_value("be").value
            'be'
        """
        return _record(self.key, value, self.timestamp, list(self.headers))

    def with_timestamp(self, timestamp: int) -> Record:
        """Return a copy with this timestamp (ms).

        Example:
            >>> import kstreams_repl as ks
            >>> record = ks.Record("a", "to", 1000)
            >>> record.with_timestamp(2000).timestamp
            2000
        """
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record:
        """Return a copy with these headers.

        Example:
            >>> import kstreams_repl as ks
            >>> record = ks.Record("a", "to", 1000)
            >>> record.with_headers([("trace", b"1")]).headers
            [('trace', b'1')]
        """
        return Record(self.key, self.value, self.timestamp, headers)


@dataclass(frozen=True, slots=True)
class FixedKeyRecord:
    """A record whose key cannot change, so that `process_values` requires no repartitioning."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = field(default_factory=list)

    def __post_init__(self) -> None:
        _make_own(self)

    def with_value(self, value: object) -> FixedKeyRecord:
        """Return a copy with this value.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.FixedKeyRecord("a", "to", 1000).with_value("be").value
            'be'
        """
        return _fixed_key_record(self.key, value, self.timestamp, list(self.headers))

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord:
        """Return a copy with this timestamp (ms since 1970).

        Raises:
            InvalidRecordError: the timestamp is negative or not an int.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.FixedKeyRecord("a", "to", 1000).with_timestamp(2000).timestamp
            2000
        """
        return FixedKeyRecord(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> FixedKeyRecord:
        """Return a copy with these headers.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.FixedKeyRecord("a", "to", 1000).with_headers([("trace", b"1")]).headers
            [('trace', b'1')]
        """
        return FixedKeyRecord(self.key, self.value, self.timestamp, headers)


def _make_own(record: Record | FixedKeyRecord) -> None:
    timestamp = record.timestamp
    headers: Any = record.headers
    if timestamp.__class__ is not int:
        try:
            if isinstance(timestamp, bool):
                raise TypeError("a truth value is not a time")
            object.__setattr__(record, "timestamp", index(timestamp))
        except TypeError:
            raise InvalidRecordError(
                f"a record's timestamp must be an int of milliseconds, got {timestamp!r}",
                hint="pass epoch milliseconds as an int: int(time.time() * 1000)",
            ) from None
    if not 0 <= record.timestamp < 1 << 63:
        raise _negative(timestamp)
    pairs = headers.items() if isinstance(headers, dict) else headers
    object.__setattr__(record, "headers", list(pairs) if pairs else [])


def sharing(kind: type[Any]) -> Callable[[Any, Any, int, Headers], Any]:
    """Return a function that makes records of a kind (`Record`, `FixedKeyRecord`) that share the given list of headers."""
    new, set_key, set_value = object.__new__, kind.key.__set__, kind.value.__set__
    set_timestamp, set_headers = kind.timestamp.__set__, kind.headers.__set__

    def make(key: object, value: object, timestamp: int, headers: Headers) -> object:
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
    return InvalidRecordError(f"a record's timestamp must be >= 0 and below 2^63, got {timestamp}", hint="pass epoch milliseconds")


_record: Callable[[Any, Any, int, Headers], Record] = sharing(Record)
_fixed_key_record: Callable[[Any, Any, int, Headers], FixedKeyRecord] = sharing(FixedKeyRecord)
"""For what was checked when another record was made: a third faster than the classes' own constructors."""
