"""Windowed statistics as Kafka's clients keep them: `Avg`, `Min`, `Max`, `Sum` over the last samples, `Rate`, and cumulative totals.

A statistic holds ``metrics.num.samples`` samples of ``metrics.sample.window.ms`` each and one that overlaps the window's edge; a sample
without an event for the length of all windows is dropped. Unlike in Kafka, one call records a whole *tally* (number of events, sum,
minimum, maximum), because the engine counts in batches. Times are arguments, in ms. Source: Kafka's `SampledStat`, `Rate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Window:
    """The period of windowed statistics: ``metrics.num.samples`` times ``metrics.sample.window.ms``."""

    samples: int = 2
    length_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class Tally:
    """Events of one kind since the last read: number, sum, minimum and maximum."""

    count: int
    total: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Tally:
        return cls(len(values), sum(values), min(values), max(values))


class Statistic(Protocol):
    """Records tallies and returns a value."""

    def record(self, tally: Tally, now: int) -> None: ...

    def measure(self, now: int) -> float: ...


class _Sample:
    __slots__ = ("start", "last", "count", "value")

    def __init__(self, initial: float, now: int) -> None:
        self.value = initial
        self.reset(initial, now)

    def reset(self, initial: float, now: int) -> None:
        self.start = self.last = now
        self.count = 0
        self.value = initial


class Sampled(ABC):
    """The rotating samples of a windowed statistic."""

    initial: ClassVar[float] = 0.0

    def __init__(self, window: Window) -> None:
        self.window = window
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, tally: Tally, now: int) -> None:
        sample = self._at(now)
        if now - sample.start >= self.window.length_ms:
            sample = self._advance(now)
        sample.value = self._merge(sample.value, tally)
        sample.count += tally.count
        sample.last = now

    def measure(self, now: int) -> float:
        self.purge(now)
        return self._combine(self._samples)

    def purge(self, now: int) -> None:
        """Drop samples without an event inside the window."""
        expired = self.window.samples * self.window.length_ms
        for sample in self._samples:
            if now - sample.last >= expired:
                sample.reset(self.initial, now)

    def oldest_start(self, now: int) -> int:
        self._at(now)
        return min(sample.start for sample in self._samples)

    def _at(self, now: int) -> _Sample:
        if not self._samples:
            self._samples.append(_Sample(self.initial, now))
        return self._samples[self._current]

    def _advance(self, now: int) -> _Sample:
        self._current = (self._current + 1) % (self.window.samples + 1)
        if self._current >= len(self._samples):
            self._samples.append(_Sample(self.initial, now))
        else:
            self._samples[self._current].reset(self.initial, now)
        return self._samples[self._current]

    @abstractmethod
    def _merge(self, value: float, tally: Tally) -> float: ...

    @abstractmethod
    def _combine(self, samples: Sequence[_Sample]) -> float: ...


class Sum(Sampled):
    """The sum of the values in the window."""

    def _merge(self, value: float, tally: Tally) -> float:
        return value + tally.total

    def _combine(self, samples: Sequence[_Sample]) -> float:
        return sum(sample.value for sample in samples)


class Count(Sum):
    """The number of events in the window."""

    def _merge(self, value: float, tally: Tally) -> float:
        return value + tally.count


class Avg(Sum):
    """The mean of the values in the window; NaN without any."""

    def _combine(self, samples: Sequence[_Sample]) -> float:
        count = sum(sample.count for sample in samples)
        return super()._combine(samples) / count if count else NAN


class Max(Sampled):
    """The largest value in the window; NaN without any."""

    initial = float("-inf")

    def _merge(self, value: float, tally: Tally) -> float:
        return max(value, tally.high)

    def _combine(self, samples: Sequence[_Sample]) -> float:
        return max(sample.value for sample in samples) if any(sample.count for sample in samples) else NAN


class Min(Sampled):
    """The smallest value in the window; NaN without any."""

    initial = float("inf")

    def _merge(self, value: float, tally: Tally) -> float:
        return min(value, tally.low)

    def _combine(self, samples: Sequence[_Sample]) -> float:
        return min(sample.value for sample in samples) if any(sample.count for sample in samples) else NAN


class Rate:
    """A windowed sum or count per second.

    It divides by at least the length of all windows but one, so that the rate of the first seconds is not overestimated.
    """

    def __init__(self, statistic: Sampled) -> None:
        self._statistic = statistic

    def record(self, tally: Tally, now: int) -> None:
        self._statistic.record(tally, now)

    def measure(self, now: int) -> float:
        total = self._statistic.measure(now)
        window = self._statistic.window
        elapsed = now - self._statistic.oldest_start(now)
        missing = window.samples - 1 - elapsed // window.length_ms
        if missing > 0:
            elapsed += missing * window.length_ms
        return total * 1000 / max(elapsed, 1)


class Total:
    """A sum since the start; with ``events=True`` the number of events."""

    def __init__(self, *, events: bool = False) -> None:
        self._events = events
        self._value: float = 0

    def record(self, tally: Tally, now: int) -> None:
        self._value += tally.count if self._events else tally.total

    def measure(self, now: int) -> float:
        return self._value


class Sensor:
    """Several named statistics that record the same tallies.

    Example:
        >>> sensor = Sensor(Window(samples=2, length_ms=1000)).rate_and_total("commit").avg_and_max("commit-latency")
        >>> sensor.record(Tally.of([3.0, 5.0]), now=0)
        >>> {name: statistic.measure(500) for name, statistic in sensor.statistics.items()}
        {'commit-rate': 1.3333333333333333, 'commit-total': 2, 'commit-latency-avg': 4.0, 'commit-latency-max': 5.0}
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self.statistics: dict[str, Statistic] = {}

    def rate_and_total(self, name: str, *, values: bool = False) -> Sensor:
        """Add ``<name>-rate`` and ``<name>-total`` of events, or of their values."""
        window = self._window
        self.statistics[f"{name}-rate"] = Rate(Sum(window) if values else Count(window))
        self.statistics[f"{name}-total"] = Total(events=not values)
        return self

    def rate(self, name: str) -> Sensor:
        """Add ``<name>-rate`` of events."""
        self.statistics[f"{name}-rate"] = Rate(Count(self._window))
        return self

    def avg_and_max(self, name: str) -> Sensor:
        self.statistics[f"{name}-avg"] = Avg(self._window)
        self.statistics[f"{name}-max"] = Max(self._window)
        return self

    def avg_min_max(self, name: str) -> Sensor:
        self.statistics[f"{name}-min"] = Min(self._window)
        return self.avg_and_max(name)

    def record(self, tally: Tally, now: int) -> None:
        if tally.count:
            for statistic in self.statistics.values():
                statistic.record(tally, now)


def record(sensor: Sensor, tally: Tally | None, now: int) -> None:
    """Record a tally, if there is one."""
    if tally is not None:
        sensor.record(tally, now)


def scaled(tally: Tally | None, scale: float) -> Tally | None:
    """Return the same events with values in another unit."""
    return None if tally is None else Tally(tally.count, tally.total * scale, tally.low * scale, tally.high * scale)


Read = Callable[[], float | int | str]
"""A function that reads a gauge."""
