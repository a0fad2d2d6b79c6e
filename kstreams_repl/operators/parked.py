"""Records of left and outer stream-stream joins that wait for a match, and their emission when their window has closed.

Both sides of a join share one `JoinTime` and one store; each has its own `ParkedRecords`. As in Kafka Streams the store is
looked at only when something may be due by `JoinTime.earliest`, which after a look is the time of the last record looked at:
with windows that differ much between the sides a result can leave one record later than it could. Source: `KStreamKStreamJoin`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstreams_repl.operators.base import Process
from kstreams_repl.operators.joiners import Joiner
from kstreams_repl.stores.api import OuterJoinStore
from kstreams_repl.types import Headers

_NOTHING = 2**63 - 1
_UNKNOWN = -(2**63)


class JoinTime:
    """What both sides of one join in one task share: stream time, the earliest parked record, and when to look for closed ones.

    Args:
        interval_ms: wall clock between two looks at the store.
    """

    __slots__ = ("stream_time", "earliest", "next_look", "interval_ms")

    def __init__(self, interval_ms: int) -> None:
        self.stream_time = -1
        self.earliest = _NOTHING
        self.next_look = 0
        self.interval_ms = interval_ms


class ParkedRecords:
    """One side's access to the parked records.

    Args:
        store: shared by both sides.
        time: shared by both sides.
        join: (key, left, right) -> value.
        forward: gets the results, under the headers of the record at work.
        wall_clock: ms.
        look_ms: nothing is looked for while earliest + look_ms >= stream time.
        left_open_ms, right_open_ms: a parked record of that side is open while its timestamp + this >= stream time.
    """

    __slots__ = ("_store", "_time", "_join", "_forward", "_wall_clock", "_look", "_left_open", "_right_open", "matched")

    def __init__(
        self,
        store: OuterJoinStore,
        time: JoinTime,
        join: Joiner,
        forward: Process,
        wall_clock: Callable[[], int],
        *,
        look_ms: int,
        left_open_ms: int,
        right_open_ms: int,
    ) -> None:
        self._store = store
        self._time = time
        self._join = join
        self._forward = forward
        self._wall_clock = wall_clock
        self._look = look_ms
        self._left_open = left_open_ms
        self._right_open = right_open_ms
        self.matched: Callable[[int, bool, Any], None] = store.remove
        """(timestamp, left_side, key): a parked record has found a match."""

    def resume(self) -> None:
        """After a restart: the store may hold records from before, so the next look is not skipped."""
        if next(self._store.all(), None) is not None:
            self._time.earliest = _UNKNOWN

    def park(self, timestamp: int, left_side: bool, key: Any, value: Any) -> None:
        if timestamp < self._time.earliest:
            self._time.earliest = timestamp
        self._store.put(timestamp, left_side, key, value)

    def emit_closed(self, headers: Headers) -> None:
        """Forward the parked records whose window closed before stream time, with None for the other side."""
        time = self._time
        stream_time = time.stream_time
        if time.earliest + self._look >= stream_time:
            return
        now = self._wall_clock()
        if now < time.next_look:
            return
        time.next_look = now + time.interval_ms
        time.earliest = _NOTHING
        join, forward, remove = self._join, self._forward, self._store.remove
        left_open, right_open = stream_time - self._left_open, stream_time - self._right_open
        open_left = open_right = False
        last: tuple[int, bool, Any] | None = None
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
            # Several values may wait under one key; it is deleted after the last of them.
            entry = (timestamp, left_side, key)
            if last is not None and last != entry:
                remove(*last)
            last = entry
        if last is not None:
            remove(*last)
