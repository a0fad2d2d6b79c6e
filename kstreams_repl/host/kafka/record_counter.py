"""`RecordCounter`: the one count of the records in offset ranges, for topics, lags and notes.

Not every offset holds a record that a `read_committed` reader sees: transactions end with markers, aborted records stay in the log,
compaction removes records. Only a read tells. What was counted is kept for a while, so a topic that grows is not read again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import FEW_OFFSETS, OffsetRange, read_ranges
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import TopicPartition

_KEEP_SECONDS = 60.0
"""Compaction and retention remove records that were counted."""
_MOST_KEPT = 10_000
_SILENT_SECONDS = 5.0


@dataclass(slots=True)
class _Counted:
    """The records of a range up to `end`, counted since `since` (monotonic seconds)."""

    end: int
    records: int
    since: float


class RecordCounter:
    """Counts records of one cluster. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[tuple[TopicPartition, int], _Counted] = {}

    def count(
        self, settings: ClientSettings, ranges: Iterable[OffsetRange], *, most: int = FEW_OFFSETS
    ) -> dict[TopicPartition, int | None]:
        """Return the number of readable records in each range; None: unknown, at most one for each offset.

        Args:
            ranges: one for each partition; their ends are `read_committed` ends.
            most: number of offsets to read, smaller ranges first. A later call goes on with the others.
        """
        with self._lock:
            now = time.monotonic()
            for key in [key for key, entry in self._counted.items() if now - entry.since > _KEEP_SECONDS][:_MOST_KEPT]:
                del self._counted[key]
            by_start = {(item.partition, item.start): item for item in ranges}
            for key, item in by_start.items():
                if key not in self._counted or self._counted[key].end > item.end:  # the topic was deleted and created again
                    self._counted[key] = _Counted(item.start, 0, now)
            self._read(settings, by_start, most)
            records = {
                item.partition: self._counted[key].records if self._counted[key].end >= item.end else None for key, item in by_start.items()
            }
            while len(self._counted) > _MOST_KEPT:
                del self._counted[next(iter(self._counted))]
            return records

    def behind(
        self, settings: ClientSettings, ranges: Iterable[OffsetRange], *, most: int = FEW_OFFSETS
    ) -> dict[TopicPartition, int]:
        """Return how many records are behind: the readable ones, or if these are unknown the offsets. Arguments as of `count`."""
        listed = list(ranges)
        counted = self.count(settings, listed, most=most)
        return {
            item.partition: max(0, item.end - item.start) if (records := counted[item.partition]) is None else records for item in listed
        }

    def _read(self, settings: ClientSettings, wanted: dict[tuple[TopicPartition, int], OffsetRange], most: int) -> None:
        """Count on from where the last read ended, as far as the limit allows."""
        left: list[OffsetRange] = []
        for key, item in sorted(wanted.items(), key=lambda each: each[1].end - self._counted[each[0]].end):
            start = self._counted[key].end
            size = item.end - start
            if 0 < size <= most:
                left.append(OffsetRange(item.partition, start, item.end))
                most -= size
        read = dict.fromkeys((item.partition for item in left), 0)
        try:
            for at, batch in read_ranges(settings, left, silent_seconds=_SILENT_SECONDS):
                read[at] += len(batch)
        except KStreamsError:  # no right to read one of them, or no answer: the number stays unknown
            return
        starts = {at: start for at, start in wanted}
        for item in left:
            known = self._counted[item.partition, starts[item.partition]]
            known.end, known.records = item.end, known.records + read[item.partition]


def at_most(records: int | None, offsets: int) -> str:
    """Return a number of records as text: exact, or the number of offsets that may hold one.

    Example:
        >>> at_most(69, 91), at_most(None, 98_110)
        ('69', 'at most 98,110')
    """
    return f"at most {offsets:,}" if records is None else f"{records:,}"
