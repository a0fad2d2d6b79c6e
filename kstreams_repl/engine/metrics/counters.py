"""Counters that the engine's loop updates: plain numbers that only grow, read at intervals and converted to sensors.

They are updated once per round, slice or commit, not per record. The reader remembers the values it has seen (`Reader.take`), so the writer
never resets anything. Only the extremes are reset; a value written at that moment counts for the next read.
"""

from __future__ import annotations

from kstreams_repl.engine.metrics.sensors import Tally

_NOTHING_HIGH = float("-inf")
_NOTHING_LOW = float("inf")


class Counter:
    """Events with a value each: their number, their sum, and the extremes since the last read."""

    __slots__ = ("count", "total", "low", "high")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.low = _NOTHING_LOW
        self.high = _NOTHING_HIGH

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        if value > self.high:
            self.high = value
        if value < self.low:
            self.low = value

    def add_many(self, count: int, value: float) -> None:
        """Add `count` events with the sum `value`; the extremes are updated with their mean."""
        mean = value / count
        self.count += count
        self.total += value
        if mean > self.high:
            self.high = mean
        if mean < self.low:
            self.low = mean


class Reader:
    """Remembers which values of a counter have been read."""

    __slots__ = ("counter", "_count", "_total")

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self._count = 0
        self._total = 0.0

    def take(self) -> Tally | None:
        """Return what was counted since the last call; None if nothing was."""
        counter = self.counter
        count, total = counter.count, counter.total
        if count == self._count:
            return None
        low, high = counter.low, counter.high
        counter.low, counter.high = _NOTHING_LOW, _NOTHING_HIGH
        if low > high:  # the writer, another thread, has counted but not yet updated the extremes
            low = high = (total - self._total) / (count - self._count)
        tally = Tally(count - self._count, total - self._total, low, high)
        self._count, self._total = count, total
        return tally


class Steps:
    """The growth of a number, as tallies."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = 0

    def take(self, now: int) -> Tally | None:
        grown, self._seen = now - self._seen, now
        return Tally(grown, grown, 1, 1) if grown > 0 else None
