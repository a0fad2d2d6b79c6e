"""Buffers records of left and outer stream-stream joins that wait for a match, and emits them when their window has closed.

Both sides of a join share one `JoinTime` and one store; each has its own `ParkedRecords`. As in Kafka Streams, the store is read only
when a record may be due according to `JoinTime.earliest`, which after a read is the timestamp of the last record read: if the windows of
the two sides differ much, a result can be emitted one record later than possible. Source: `KStreamKStreamJoin`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.engine.stores.state_store import OuterJoinStore
from kstreams_repl.system.types import Headers, Joiner

_NOTHING = 2**63 - 1
_UNKNOWN = -(2**63)


class JoinTime:
    """The state that both sides of one join in one task share: stream time, the earliest buffered record, and the time of the next read.

    Args:
        interval_ms: minimum wall-clock time between two reads of the store.
    """

    __slots__ = ("stream_time", "earliest", "next_check", "interval_ms")

    def __init__(self, interval_ms: int) -> None:
        self.stream_time = -1
        self.earliest = _NOTHING
        self.next_check = 0
        self.interval_ms = interval_ms

    def remembered(self, name: str) -> tuple[Callable[[], int], Callable[[int], None]]:
        """Return the functions for `NodeContext.remember` that read and restore one attribute."""
        return lambda: getattr(self, name), lambda number: setattr(self, name, number)


class ParkedRecords:
    """One side's access to the buffered records.

    Args:
        store: shared by both sides.
        time: shared by both sides.
        join: (key, left, right) -> value.
        forward: receives the results, with the headers of the current record.
        wall_clock: returns ms.
        check_after_ms: the store is not read while earliest + check_after_ms >= stream time.
        left_open_ms, right_open_ms: a buffered record of that side is open while its timestamp + this >= stream time.
    """

    __slots__ = ("_store", "_time", "_join", "_forward", "_wall_clock", "_check_after", "_left_open", "_right_open", "matched")

    def __init__(
        self,
        store: OuterJoinStore,
        time: JoinTime,
        join: Joiner,
        forward: Process,
        wall_clock: Callable[[], int],
        *,
        check_after_ms: int,
        left_open_ms: int,
        right_open_ms: int,
    ) -> None:
        self._store = store
        self._time = time
        self._join = join
        self._forward = forward
        self._wall_clock = wall_clock
        self._check_after = check_after_ms
        self._left_open = left_open_ms
        self._right_open = right_open_ms
        self.matched: Callable[[int, bool, Any], None] = store.remove
        """(timestamp, left_side, key): removes a buffered record that has found a match."""

    def resume(self) -> None:
        """Read the store at the next record if it has records but no earliest time was restored: none was committed with the offsets,
        or it is older than the store, because Kafka Streams ran the application meanwhile and copied the metadata unchanged.
        """
        if self._time.earliest == _NOTHING and next(self._store.all(), None) is not None:
            self._time.earliest = _UNKNOWN

    def park(self, timestamp: int, left_side: bool, key: object, value: object) -> None:
        if timestamp < self._time.earliest:
            self._time.earliest = timestamp
        self._store.put(timestamp, left_side, key, value)

    def emit_all(self) -> None:
        """Advance stream time until every buffered record's window has closed, and forward them."""
        time = self._time
        closes = [timestamp + (self._left_open if left_side else self._right_open) for timestamp, left_side, _, _ in self._store.all()]
        if closes:
            time.stream_time = max(time.stream_time, max(closes) + 1)
            time.earliest, time.next_check = _UNKNOWN, 0
            self.emit_closed([])

    def emit_closed(self, headers: Headers) -> None:
        """Forward the buffered records whose window closed before stream time, with None for the other side."""
        time = self._time
        stream_time = time.stream_time
        if time.earliest + self._check_after >= stream_time:
            return
        now = self._wall_clock()
        if now < time.next_check:
            return
        time.next_check = now + time.interval_ms
        time.earliest = _NOTHING
        join, forward, remove = self._join, self._forward, self._store.remove
        left_open, right_open = stream_time - self._left_open, stream_time - self._right_open
        open_left = open_right = False
        last: tuple[int, bool, object] | None = None
        for timestamp, left_side, key, value in self._store.all():
            time.earliest = timestamp
            if open_left and open_right:
                break
            if timestamp >= (left_open if left_side else right_open):
                if left_side:
                    open_left = True
                else:
                    open_right = True
                continue
            forward(key, join(key, value, None) if left_side else join(key, None, value), timestamp, headers)
            # A key may have several values; it is deleted after the last of them.
            entry = (timestamp, left_side, key)
            if last is not None and last != entry:
                remove(*last)
            last = entry
        if last is not None:
            remove(*last)
