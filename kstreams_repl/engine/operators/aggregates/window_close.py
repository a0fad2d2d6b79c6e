"""Emit windows once, when they close (KIP-825), without losing any.

Kafka Streams writes the closing record first and then looks for closed windows; the write advances the store's time, and windows that
thereby exceed the retention are never emitted. Here the closed windows are read and forwarded *before* the record that closes them is
written. A closing record never belongs to a window that it closes, so nothing else changes. There is no wall-clock throttle: the store
is read only when a window may have closed. The last emitted close time is processor metadata, committed with the offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstreams_repl.engine.operators.operator import NodeContext, Process
from kstreams_repl.system.types import Headers

if TYPE_CHECKING:
    from kstreams_repl.engine.stores.kinds.session import SessionStore
    from kstreams_repl.engine.stores.kinds.window_reads import WindowReads

NEVER = -1


class StreamTime:
    """An operator's own stream time: the largest timestamp that it has received, committed with the offsets.

    Args:
        name: a name that survives an edit of the topology: that of the operator's store.
    """

    __slots__ = ("now",)

    def __init__(self, node: NodeContext, name: str) -> None:
        self.now = NEVER
        node.remember(name, lambda: self.now, self._resume)

    def _resume(self, now: int) -> None:
        self.now = now

    def advance(self, now: int) -> bool:
        """Advance to a later time; return False if it is none."""
        later = now > self.now
        if later:
            self.now = now
        return later


class WindowCloser:
    """Forwards the windows of one time-ordered window store that have closed since the last call.

    Args:
        node: the node that emits; `node.metadata` keeps the time of the last emit over a restart.
        name: key of that metadata: the store's name, as in Kafka Streams.
        store: window store to read from.
        forward: receives `(Windowed, (value, None, True), aggregate's timestamp, headers of the closing record)`.
        reach_ms: a window that starts at t closes when `close >= t + reach_ms`.
        step_ms: windows start at multiples of this (1: anywhere).
    """

    __slots__ = ("next_close", "_last", "_metadata", "_name", "_store", "_forward", "_reach", "_step")

    def __init__(self, node: NodeContext, name: str, store: WindowReads, forward: Process, *, reach_ms: int, step_ms: int) -> None:
        self._metadata = node.metadata
        self._name = name
        self._store = store
        self._forward = forward
        self._reach = reach_ms
        self._step = step_ms
        self._last = NEVER
        self.next_close = reach_ms
        """The smallest close time at which a window may have to be emitted."""
        node.on_init(self._resume)

    def _resume(self) -> None:
        self._remember(self._metadata.get(self._name, NEVER))

    def _remember(self, close: int) -> None:
        self._last = close
        reach, step = self._reach, self._step
        self.next_close = reach if close < reach else ((close - reach) // step + 1) * step + reach

    def emit(self, close: int, headers: Headers) -> None:
        """Forward every window that closes in (last close, close], by time, then key."""
        first = 0 if self._last < self._reach else self._last - self._reach + 1
        self._remember(close)
        self._metadata[self._name] = close
        forward, rows = self._forward, self._store.fetch_all(first, close - self._reach)
        for key, (value, timestamp) in rows:
            forward(key, (value, None, True), timestamp, headers)


class SessionCloser:
    """`WindowCloser` for sessions: `[start, end]` closes when `close > end`; results have timestamp = end."""

    __slots__ = ("_last", "_metadata", "_name", "_find", "_forward")

    def __init__(self, node: NodeContext, name: str, store: SessionStore, forward: Process) -> None:
        self._metadata = node.metadata
        self._name = name
        self._find = store.find_closed
        self._forward = forward
        self._last = NEVER
        node.on_init(self._resume)

    def _resume(self) -> None:
        self._last = self._metadata.get(self._name, NEVER)

    def emit(self, close: int, headers: Headers) -> None:
        """Forward every session with last close <= end < close, by time, then key."""
        first, last = max(self._last, 0), close - 1
        if close <= self._last or last < first:
            return
        forward, rows = self._forward, self._find(first, last)
        self._last = self._metadata[self._name] = close
        for key, value in rows:
            forward(key, (value, None, True), key[2], headers)
