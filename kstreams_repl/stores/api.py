"""The stores as a processor sees them. Method names are Kafka Streams' in snake_case.

Iterators are plain Python iterators; a store must not be written to while one of its iterators is open except where Kafka Streams
allows it (a snapshot of the range is taken when the iterator is created). Keys must not be None; a None value deletes.
Timestamps and window bounds are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from kstreams_repl.types import Outlet, ValueAndTimestamp, VersionedRecord, Windowed

NOT_PUT = -(1 << 63)
"""What a versioned put answers when the version was older than the history that is kept."""


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

    def prefix_scan(self, prefix: Any, serialize: Any = None) -> Iterator[tuple[Any, Any]]:
        """Rows whose serialized key begins with the serialized prefix; `serialize` is a serde (or its name), or a function to bytes; None:
        the store's key serde."""

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

    def fetch_range(self, from_key: Any = None, to_key: Any = None) -> Iterator[tuple[Windowed, Any]]: ...

    def backward_fetch_range(self, from_key: Any = None, to_key: Any = None) -> Iterator[tuple[Windowed, Any]]: ...

    def all(self) -> Iterator[tuple[Windowed, Any]]: ...


class VersionedKeyValueStore(Protocol):
    def put(self, key: Any, value: Any, timestamp: int) -> int | None:
        """valid_to of the put version: its successor's timestamp, None when it is the current one; NOT_PUT when it was too old."""

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None: ...

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None: ...


FindOutlet = Callable[[Any, Any], Outlet | None]
"""(key serde, value serde): where rows that these have written may go as they are (`NodeContext.outlet`)."""

FlushListener = Callable[[Any, Any, Any, int, Any], None]
"""(key, new value, old value or None, timestamp, headers): called for each cached entry as it is flushed, in last-write order, with the
task's record context already set to the entry's own."""


class CachedStore(Protocol):
    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """True when the store is cached, so that the operator must not forward by itself."""


# ---- stores that only operators use; `Context` is runtime.record_context.ContextSnapshot --------------------------------------------


class OuterJoinStore(Protocol):
    """Kind `OUTER_JOIN`: records of a left/outer stream-stream join that wait for a match. Values under one (time, side, key) pile up."""

    def put(self, timestamp: int, left_side: bool, key: Any, value: Any) -> None:
        """Append `value` to the values parked under (timestamp, side, key)."""

    def remove(self, timestamp: int, left_side: bool, key: Any) -> None:
        """Delete all values parked under (timestamp, side, key); nothing happens (and nothing is logged) when there is none."""

    def all(self) -> Iterator[tuple[int, bool, Any, Any]]:
        """(timestamp, left_side, key, value) by time, then right side before left, then key bytes; values of one key in put order.
        Lazy where the engine allows it: the reader stops early. `remove` may be called while it is open."""


class SuppressBuffer(Protocol):
    """Kind `SUPPRESS_BUFFER`: the last change per key, ordered by (buffer time, serialized key).

    A key that is already buffered keeps its slot, hence its buffer time, and its prior value; new value, old value and context
    are replaced.
    """

    min_time: int
    """Smallest buffer time held; 2**63 - 1 when empty."""

    def put(self, time: int, key: Any, new: Any, old: Any, context: Any) -> None:
        """Buffer a change; the prior value of a key that was not buffered is `old`."""

    def evict_first(self, emit: Callable[[Any, Any, Any, Any], None]) -> None:
        """Call `emit(key, new, old, context)` for the first entry, *then* remove it (so `prior_value` still sees it inside `emit`)."""

    def record_count(self) -> int: ...

    def byte_size(self) -> int:
        """As Kafka Streams estimates it: per entry 8 + key length + its values and context."""

    def prior_value(self, key: Any) -> tuple[Any] | None:
        """`(value,)` that was shown before the key was buffered (value may be None), or None when the key is not buffered."""


class JoinGraceBuffer(Protocol):
    """Kind `JOIN_GRACE_BUFFER`: stream records that wait for their table, ordered by (timestamp, serialized key, arrival)."""

    min_time: int
    """Smallest timestamp held; 2**63 - 1 when empty."""

    observed_time: int
    """Largest timestamp ever put; -1 before the first."""

    def put(self, timestamp: int, key: Any, value: Any, context: Any) -> None: ...

    def evict_until(self, time: int, emit: Callable[[Any, Any, Any], None]) -> None:
        """Call `emit(key, value, context)` for each entry with timestamp <= `time`, in order, then remove it."""
