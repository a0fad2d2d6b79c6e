"""History in order in each partition, re-keyed and counted in hourly windows without grace; its oracle is a plain computation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kstreams_repl import StreamsBuilder, TimeWindows, serdes
from tests.faults.crew import BOTH, Crew

HOUR = 3_600_000
DAY = 24 * HOUR
OLD_MS = 1_370_000_000_000 // DAY * DAY
GROUPS = 7


def group_of(key: bytes, value: bytes) -> bytes:
    return b"g%d" % (int(value) % GROUPS)


def named(window: Any, count: int) -> tuple[bytes, int]:
    return b"%s@%d" % (window.key, window.start), count


def again(key: bytes, value: bytes) -> bytes:
    return b"h%d" % (int(value) % 5)


def in_order(count: int, seed: int, *, begin: int = 0, end: int = DAY) -> list[int]:
    chance = random.Random(seed)
    return sorted(OLD_MS + chance.randrange(begin, end) for _ in range(count))


def shape(name: str, partitions: int, records: int) -> list[list[int]]:
    """The timestamps of each partition, of about so many records."""
    each = records // partitions
    if name == "skewed":
        each = records // (partitions + 9)
        return [in_order(10 * each, 0), *(in_order(each, number) for number in range(1, partitions))]
    found = [in_order(each, number) for number in range(partitions)]
    if name == "one empty":
        found[1] = []
    if name == "a gap":
        found[1] = in_order(each // 2, 1) + in_order(each // 2, 1, begin=2 * DAY, end=3 * DAY)
        found[2] = in_order(each, 2, end=3 * DAY)
    return found


class History(Crew):
    """Args:
    times: the timestamps of each partition's records.
    twice: whether they pass two repartitions.
    """

    def __init__(self, bootstrap: str, directory: Path, times: Sequence[Sequence[int]], *, twice: bool = False, **config: Any) -> None:
        super().__init__(bootstrap, directory, keys=1, **config)
        self.times = times
        self.twice, self.edited = twice, False
        self.topic, self.out = f"{self.name}-history", f"{self.name}-hours"
        endless = {"retention.ms": "-1"}
        self.admin.create_topic(self.topic, len(times), configs=endless)
        self.admin.create_topic(self.out, 1, configs=endless)
        for partition, stamps in enumerate(times):
            for number, stamp in enumerate(stamps):
                self.put(partition, number, stamp)
        assert self._producer.flush(60) == 0

    def put(self, partition: int, number: int, stamp: int) -> None:
        while True:
            try:
                self._producer.produce(self.topic, b"%d" % number, b"k", partition, None, None, stamp)
                return
            except BufferError:
                self._producer.poll(0.1)

    def topology(self) -> Any:
        builder = StreamsBuilder()
        stream = builder.stream(self.topic, **BOTH).select_key(group_of)
        if self.twice:
            stream = stream.repartition(name="first", **BOTH).select_key(again)
        grouped = stream.group_by_key(**BOTH)
        windows = TimeWindows.of_size(HOUR)
        counts = grouped.windowed_by(windows).count(store="hours", retention=10 * DAY)
        if self.edited:
            counts.to_stream().foreach(lambda window, count: None)
        counts.to_stream().map(named).to(self.out, key_serde=serdes.bytes, value_serde=serdes.long)
        return builder.build()

    def all_processed(self, seconds: float = 120.0) -> None:
        """Wait until the windows have taken every record: each node's count is committed with the offsets."""
        self.taken(sum(map(len, self.times)), seconds)

    def taken(self, records: int, seconds: float = 120.0) -> None:
        """Wait until the windows have taken so many records."""

        def enough() -> bool:
            nodes = [report.get("nodes", {}) for report in self.reports()]
            return sum(each["hours-repartition-source"][0] for each in nodes if "hours-repartition-source" in each) >= records

        self.settle(enough, f"{records:,} records behind the repartition", seconds)

    def counts(self) -> dict[bytes, int]:
        """What came out at last."""
        return {key: int.from_bytes(value or b"", "big") for rows in self.read(self.out).values() for key, value in rows}

    def expected(self) -> dict[bytes, int]:
        """The plain computation over the source."""
        group = again if self.twice else group_of
        return dict(
            Counter(
                b"%s@%d" % (group(b"k", b"%d" % number), stamp // HOUR * HOUR)
                for stamps in self.times
                for number, stamp in enumerate(stamps)
            )
        )

    def lost(self) -> int:
        """How many records the windows lack."""
        have = self.counts()
        return sum(count - have.get(window, 0) for window, count in self.expected().items())

    def dropped(self) -> int:
        """How many records the running instances say they dropped as late."""
        return sum(
            task["dropped"].get("expired window", 0) for report in self.reports() for task in report.get("tasks", {}).values()
        )
