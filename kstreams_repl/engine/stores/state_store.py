"""The store interfaces that a processor uses. Method names are Kafka Streams' in snake_case.

Iterators are plain Python iterators. Do not write to a store while one of its iterators is open, except where Kafka Streams
allows it (the iterator takes a snapshot of its range when it is created). Keys must not be None; a None value deletes the row.
Timestamps and window bounds are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from kstreams_repl.system.types import Outlet, RowLoop

NOT_PUT = -(1 << 63)
"""Returned by a versioned store's `put` when the version is older than the retained history."""


class StateStore(Protocol):
    """The methods that all stores have."""

    name: str
    persistent: bool

    def flush(self) -> None:
        """Write cached entries to the underlying store and pass them to the flush listener; does not commit."""

    def close(self) -> None: ...


FindOutlet = Callable[[object, object], Outlet | None]
"""(key serde, value serde) -> where rows serialized by these serdes can be sent as bytes (`NodeContext.outlet`)."""

FindRowLoop = Callable[[], RowLoop | None]
"""Returns how rows can be forwarded together (`NodeContext.row_loop`)."""

FlushListener = Callable[[object, object, object, int, object], None]
"""(key, new value, old value or None, timestamp, headers): called for each cached entry when it is flushed, in last-write order. The
task's record context is already that of the entry."""


# ---- stores used by operators only; `Context` is processor.record_context.ContextSnapshot ---------------------------------------------


class OuterJoinStore(Protocol):
    """Kind `OUTER_JOIN`: records of a left or outer stream-stream join that wait for a match. Values with the same (time, side, key)
    accumulate in a list."""

    def put(self, timestamp: int, left_side: bool, key: object, value: object) -> None:
        """Append `value` to the values buffered under (timestamp, side, key)."""

    def remove(self, timestamp: int, left_side: bool, key: object) -> None:
        """Delete all values buffered under (timestamp, side, key); if there is none, write and log nothing."""

    def all(self) -> Iterator[tuple[int, bool, Any, Any]]:
        """Iterate over (timestamp, left_side, key, value) by time, then right side before left, then key bytes; values of one key come
        in put order. Lazy where the engine allows it, because the caller stops early. `remove` may be called while it is open."""
