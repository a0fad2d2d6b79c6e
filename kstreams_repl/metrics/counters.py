"""What the engine's loop writes while it works: plain numbers that only grow, read now and then by whoever makes sensors of them.

One call per round, slice or commit; none per record. The reader keeps what it saw last (`Reader.take`), so that the writer never has to
start anything over; only the extremes are taken away, and a value written in that very moment counts for the next look.
"""

from __future__ import annotations

from kstreams_repl.metrics.sensors import Tally

_NOTHING_HIGH = float("-inf")
_NOTHING_LOW = float("inf")


class Counter:
    """Events with a value each: a number of calls, their sum, the extremes since they were last taken."""

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
        """`count` events that took `value` together: the extremes are those of their mean."""
        mean = value / count
        self.count += count
        self.total += value
        if mean > self.high:
            self.high = mean
        if mean < self.low:
            self.low = mean


class Reader:
    """Remembers what was seen of a counter."""

    __slots__ = ("counter", "_count", "_total")

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self._count = 0
        self._total = 0.0

    def take(self) -> Tally | None:
        """What came since the last call; None when nothing did."""
        counter = self.counter
        count, total = counter.count, counter.total
        if count == self._count:
            return None
        low, high = counter.low, counter.high
        counter.low, counter.high = _NOTHING_LOW, _NOTHING_HIGH
        if low > high:  # the writer, another thread, has counted and not come to the extremes
            low = high = (total - self._total) / (count - self._count)
        tally = Tally(count - self._count, total - self._total, low, high)
        self._count, self._total = count, total
        return tally


class Steps:
    """A number that only grows, as tallies of its growth."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = 0

    def take(self, now: int) -> Tally | None:
        grown, self._seen = now - self._seen, now
        return Tally(grown, grown, 1, 1) if grown > 0 else None
