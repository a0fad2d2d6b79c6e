"""The store interfaces that a processor uses. Method names are Kafka Streams' in snake_case.

Iterators are plain Python iterators. Do not write to a store while one of its iterators is open, except where Kafka Streams
allows it (the iterator takes a snapshot of its range when it is created). Keys must not be None; a None value deletes the row.
Timestamps and window bounds are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from kstreams_repl.types import Outlet, RowLoop, ValueAndTimestamp, VersionedRecord, Windowed

NOT_PUT = -(1 << 63)
"""Returned by `VersionedKeyValueStore.put` when the version is older than the retained history."""


class StateStore(Protocol):
    """The methods that all stores have."""

    name: str
    persistent: bool

    def flush(self) -> None:
        """Write cached entries to the underlying store and pass them to the flush listener; does not commit."""

    def close(self) -> None: ...


@runtime_checkable
class ReadOnlyKeyValueStore(Protocol):
    def get(self, key: Any) -> Any: ...

    def range(self, from_key: Any = None, to_key: Any = None) -> Iterator[tuple[Any, Any]]:
        """Iterate over rows with from_key <= key <= to_key in unsigned byte order of the serialized key; None leaves that end open."""

    def reverse_range(self, from_key: Any = None, to_key: Any = None) -> Iterator[tuple[Any, Any]]: ...

    def all(self) -> Iterator[tuple[Any, Any]]: ...

    def reverse_all(self) -> Iterator[tuple[Any, Any]]: ...

    def prefix_scan(self, prefix: Any, serialize: Any = None) -> Iterator[tuple[Any, Any]]:
        """Iterate over rows whose serialized key begins with the serialized prefix.

        Args:
            serialize: a serde (or its name) or a function that returns bytes; None uses the store's key serde.
        """

    def approximate_num_entries(self) -> int: ...


@runtime_checkable
class KeyValueStore(ReadOnlyKeyValueStore, Protocol):
    def put(self, key: Any, value: Any) -> None: ...

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Put `value` if the key has none; return the old value, or None if the value was put."""

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None: ...

    def delete(self, key: Any) -> Any:
        """Delete the key and return its old value."""


class TimestampedKeyValueStore(KeyValueStore, Protocol):
    """A key-value store whose values are `ValueAndTimestamp`; `put` also accepts a plain `(value, timestamp)` tuple."""

    def get(self, key: Any) -> ValueAndTimestamp | None: ...


class WindowStore(Protocol):
    def put(self, key: Any, value: Any, window_start: int) -> None: ...

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Return an iterator of (window start, value), ascending, if `time_to` is given; otherwise the value of the window that starts
        at `time_from`."""

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
        """Iterate over the sessions of all keys with earliest_end <= end <= latest_end, by time (for emit on window close)."""

    def fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]: ...

    def backward_fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]: ...

    def fetch_range(self, from_key: Any = None, to_key: Any = None) -> Iterator[tuple[Windowed, Any]]: ...

    def backward_fetch_range(self, from_key: Any = None, to_key: Any = None) -> Iterator[tuple[Windowed, Any]]: ...

    def all(self) -> Iterator[tuple[Windowed, Any]]: ...


class VersionedKeyValueStore(Protocol):
    def put(self, key: Any, value: Any, timestamp: int) -> int | None:
        """Put a version and return its valid_to: the timestamp of the next version, None if it is the current one, or `NOT_PUT` if it
        is older than the retained history."""

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None: ...

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None: ...


FindOutlet = Callable[[Any, Any], Outlet | None]
"""(key serde, value serde) -> where rows serialized by these serdes can be sent as bytes (`NodeContext.outlet`)."""

FindRowLoop = Callable[[], RowLoop | None]
"""Returns how rows can be forwarded together (`NodeContext.row_loop`)."""

FlushListener = Callable[[Any, Any, Any, int, Any], None]
"""(key, new value, old value or None, timestamp, headers): called for each cached entry when it is flushed, in last-write order. The
task's record context is already that of the entry."""


class CachedStore(Protocol):
    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """Set the listener; return True if the store is cached, so that the operator must not forward by itself."""


# ---- stores used by operators only; `Context` is runtime.record_context.ContextSnapshot ---------------------------------------------


class OuterJoinStore(Protocol):
    """Kind `OUTER_JOIN`: records of a left or outer stream-stream join that wait for a match. Values with the same (time, side, key)
    accumulate in a list."""

    def put(self, timestamp: int, left_side: bool, key: Any, value: Any) -> None:
        """Append `value` to the values buffered under (timestamp, side, key)."""

    def remove(self, timestamp: int, left_side: bool, key: Any) -> None:
        """Delete all values buffered under (timestamp, side, key); if there is none, write and log nothing."""

    def all(self) -> Iterator[tuple[int, bool, Any, Any]]:
        """Iterate over (timestamp, left_side, key, value) by time, then right side before left, then key bytes; values of one key come
        in put order. Lazy where the engine allows it, because the caller stops early. `remove` may be called while it is open."""


class SuppressBuffer(Protocol):
    """Kind `SUPPRESS_BUFFER`: the last change per key, ordered by (buffer time, serialized key).

    A key that is already buffered keeps its position, buffer time and prior value; new value, old value and context are replaced.
    """

    min_time: int
    """Smallest buffer time in the buffer; 2**63 - 1 when empty."""

    def put(self, time: int, key: Any, new: Any, old: Any, context: Any) -> None:
        """Buffer a change. `old` becomes the prior value of a key that was not buffered."""

    def evict_first(self, emit: Callable[[Any, Any, Any, Any], None]) -> None:
        """Call `emit(key, new, old, context)` for the first entry, *then* remove it, so that `prior_value` still finds it inside `emit`."""

    def record_count(self) -> int: ...

    def byte_size(self) -> int:
        """Return Kafka Streams' size estimate in bytes: per entry 8 + key length + its values and context."""

    def prior_value(self, key: Any) -> tuple[Any] | None:
        """Return `(value,)`, the last value emitted before the key was buffered (value may be None), or None if the key is not
        buffered."""


class JoinGraceBuffer(Protocol):
    """Kind `JOIN_GRACE_BUFFER`: stream records that wait for the table, ordered by (timestamp, serialized key, arrival)."""

    min_time: int
    """Smallest timestamp in the buffer; 2**63 - 1 when empty."""

    observed_time: int
    """Largest timestamp ever put; -1 before the first put."""

    def put(self, timestamp: int, key: Any, value: Any, context: Any) -> None: ...

    def evict_until(self, time: int, emit: Callable[[Any, Any, Any], None]) -> None:
        """Call `emit(key, value, context)` for each entry with timestamp <= `time`, in order, then remove the entry."""
