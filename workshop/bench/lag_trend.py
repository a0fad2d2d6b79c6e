"""Theodolite's criterion for a load that a system holds: while records arrive at a steady rate, its lag does not grow.

The lag is what a consumer group has not committed, summed over its input and repartition topics, once a second. The straight line
fitted to the samples after a warm-up has a slope, in records per second: the part of the load that is left behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from kstreams_repl.system.types import TopicPartition
from workshop.bench.memory import slope
from workshop.bench.rig.pace import Pace
from workshop.bench.rig.testbed import Testbed, give_up, produce
from workshop.bench.rig.workloads import Row

TOLERATED_SHARE = 0.01
"""The slope may be so much of the load: ShuffleBench's bound. Theodolite's own, 2,000 records/s, is a fifth of a load of 10,000."""
_REACHED_SHARE = 0.98
"""The producer has to send so much of the load; otherwise the criterion does not apply."""
_FIRST_RECORDS = 1000
_SAMPLE_SECONDS = 1.0
_READY_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class LagTrend:
    """The lag of a system under one load.

    Attributes:
        load: records per second.
        reached: records per second that were sent.
        samples: (seconds since the load began, records of lag), after the warm-up.

    Example:
        >>> trend = LagTrend(1000, 1000, tuple((second, 250 + 5 * second) for second in range(60)))
        >>> trend.slope, trend.held
        (5.0, True)
    """

    load: float
    reached: float
    samples: Sequence[tuple[float, int]]

    @property
    def slope(self) -> float:
        return round(slope(self.samples), 1)

    @property
    def threshold(self) -> float:
        """Return the slope, in records per second, below which the load is held."""
        return self.load * TOLERATED_SHARE

    @property
    def held(self) -> bool | None:
        """Return whether the lag did not grow; None if the producer did not reach the load, or there are too few samples."""
        if self.reached < self.load * _REACHED_SHARE or len(self.samples) < 2:
            return None
        return self.slope < self.threshold


def lag_of(ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> int:
    """Return the number of records that a group has not committed; of a partition without a commit, all.

    Example:
        >>> at = [TopicPartition("in", number) for number in range(2)]
        >>> lag_of({at[0]: 10, at[1]: 5}, {at[0]: 7})
        8
    """
    return sum(max(0, end - committed.get(at, 0)) for at, end in ends.items())


def observe_lag(
    testbed: Testbed,
    group: str,
    topics: Sequence[str],
    rows: Callable[[int], Iterator[Row]],
    load: float,
    *,
    warm_seconds: float,
    seconds: float,
    max_seconds: float,
    check: Callable[[], None],
) -> LagTrend:
    """Send records at a steady rate to a running application, and sample its lag.

    Args:
        group: the application.
        topics: what it reads, apart from its own repartition topics; the first one gets the records.
        rows: returns records without end, given the time of the first one (ms since 1970).
        warm_seconds: how long samples are not counted; it begins when the application has committed the first records.
        seconds: how long they are.
        max_seconds: for the first records.
        check: raises if the application has failed.

    Raises:
        KStreamsError: the application failed, or did not commit the first records in time.
    """
    produce(testbed.settings, topics[0], islice(rows(_now_ms()), _FIRST_RECORDS))
    deadline = time.monotonic() + max_seconds
    first = _partitions(testbed, topics[:1])
    while _lag(testbed, group, first):
        check()
        if time.monotonic() > deadline:
            raise give_up(f"{group}: a commit of the first {_FIRST_RECORDS:,} records", max_seconds)
        time.sleep(_READY_POLL_SECONDS)
    own = [name for name in testbed.admin.topics(internal=True) if name.startswith(f"{group}-") and name.endswith("-repartition")]
    read = _partitions(testbed, [*topics, *own])
    samples: list[tuple[float, int]] = []
    with Pace(testbed, topics[0], rows(_now_ms()), load) as pace:
        began = time.monotonic()
        while (at := time.monotonic() - began) < warm_seconds + seconds:
            check()
            pace.check()
            if at >= warm_seconds:
                samples.append((at, _lag(testbed, group, read)))
            time.sleep(_SAMPLE_SECONDS)
        reached = pace.sent / (time.monotonic() - began)
    return LagTrend(load, round(reached), samples)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _partitions(testbed: Testbed, topics: Sequence[str]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in topics for number in range(testbed.admin.partitions(topic))]


def _lag(testbed: Testbed, group: str, partitions: Sequence[TopicPartition]) -> int:
    found = testbed.admin.committed_offsets(group, partitions, stable=False)
    return lag_of(testbed.admin.end_offsets(partitions, isolation="read_uncommitted"), {at: one.offset for at, one in found.items()})
