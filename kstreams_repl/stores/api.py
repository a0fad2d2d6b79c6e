"""The stores as a processor sees them. Method names are Kafka Streams' in snake_case.

Iterators are plain Python iterators; a store must not be written to while one of its iterators is open except where Kafka Streams
allows it (a snapshot of the range is taken when the iterator is created). Keys must not be None; a None value deletes.
Timestamps and window bounds are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from kstreams_repl.types import ValueAndTimestamp, VersionedRecord, Windowed


class StateStore(Protocol):
    """What every store has."""

    name: str
    persistent: bool

    def flush(self) -> None:
        """Write cached entries down and forward them to the flush listener; it does not commit."""

    def close(self) -> None: ...


@runtime_checkable
class ReadOnlyKeyValueStore(Protocol):
    def get(self, key: Any) -> Any: ...

    def range(self, from_key: Any = None, to_key: Any = None) -> Iterator[tuple[Any, Any]]:
        """Rows with from_key <= key <= to_key in unsigned byte order of the serialized key; None is open."""

    def reverse_range(self, from_key: Any = None, to_key: Any = None) -> Iterator[tuple[Any, Any]]: ...

    def all(self) -> Iterator[tuple[Any, Any]]: ...

    def reverse_all(self) -> Iterator[tuple[Any, Any]]: ...

    def prefix_scan(self, prefix: Any, serialize: Callable[[Any], bytes]) -> Iterator[tuple[Any, Any]]: ...

    def approximate_num_entries(self) -> int: ...


@runtime_checkable
class KeyValueStore(ReadOnlyKeyValueStore, Protocol):
    def put(self, key: Any, value: Any) -> None: ...

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """The old value, or None after the put."""

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None: ...

    def delete(self, key: Any) -> Any:
        """The old value."""


class TimestampedKeyValueStore(KeyValueStore, Protocol):
    """A key-value store whose values are `ValueAndTimestamp`; a plain `(value, timestamp)` tuple is accepted by `put`."""

    def get(self, key: Any) -> ValueAndTimestamp | None: ...


class WindowStore(Protocol):
    def put(self, key: Any, value: Any, window_start: int) -> None: ...

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """With `time_to`: iterator of (window start, value), ascending. Without: the value of the window starting at `time_from`."""

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> Iterator[tuple[int, Any]]: ...

    def fetch_range(self, from_key: Any, to_key: Any, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]: ...

    def backward_fetch_range(self, from_key: Any, to_key: Any, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]: ...

    def fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]: ...

    def backward_fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]: ...

    def all(self) -> Iterator[tuple[Windowed, Any]]: ...

    def backward_all(self) -> Iterator[tuple[Windowed, Any]]: ...


class SessionStore(Protocol):
    def put(self, session_key: Windowed, aggregate: Any) -> None: ...

    def remove(self, session_key: Windowed) -> None: ...

    def fetch_session(self, key: Any, start: int, end: int) -> Any: ...

    def find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed, Any]]: ...

    def backward_find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed, Any]]: ...

    def find_sessions_range(self, from_key: Any, to_key: Any, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed, Any]]: ...

    def find_closed(self, earliest_end: int, latest_end: int) -> Iterator[tuple[Windowed, Any]]:
        """All keys' sessions with earliest_end <= end <= latest_end, by time (emit on window close)."""

    def fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]: ...

    def backward_fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]: ...

    def all(self) -> Iterator[tuple[Windowed, Any]]: ...


class VersionedKeyValueStore(Protocol):
    def put(self, key: Any, value: Any, timestamp: int) -> int | None:
        """valid_to of the put version: its successor's timestamp, None when current; -1 (PUT_RETURN_CODE_NOT_PUT) when too old."""

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None: ...

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None: ...


FlushListener = Callable[[Any, Any, Any, int, Any], None]
"""(key, new value, old value or None, timestamp, headers): called for each cached entry as it is flushed, in last-write order, with the
task's record context already set to the entry's own."""


class CachedStore(Protocol):
    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """True when the store is cached, so that the operator must not forward by itself."""
