"""A record queue whose source has a loop of its own (`runtime.fusing`): records are taken in columns.

It is a `RecordQueue` in everything else. What the loop cannot do goes the way of single records: a few records, a column that does not
read (the poison record in it is met in its turn), timestamps below zero, nodes that somebody looks into (`runtime.tapping`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Any

from kstreams_repl.runtime.fusing import UNREAD, Fused, Way
from kstreams_repl.runtime.record_queue import READ_AHEAD, DeserializeMany, RecordQueue, Row, Source, StreamClock, rows_from
from kstreams_repl.types import RecordBatch, TopicPartition

_NOTHING = RecordBatch([], [], [], [])
LEAST = 32
"""For fewer records a loop is not begun."""


class FusedQueue(RecordQueue):
    """`RecordQueue` with a loop.

    Args:
        watched: whether somebody looks into the nodes, who would see nothing of the loop.
    """

    __slots__ = ("_fused", "_watched", "_batch")

    def __init__(
        self,
        partition: TopicPartition,
        source: Source,
        record: Any,
        clock: StreamClock,
        *,
        fused: Fused,
        watched: Callable[[], bool],
    ) -> None:
        super().__init__(partition, source, record, clock)
        self._fused = fused
        self._watched = watched
        self._batch = _NOTHING

    def _open(self, batch: RecordBatch) -> Iterator[Row]:
        self._batch = batch
        return super()._open(batch)

    def _find_head(self, poison_offset: int | None = None) -> None:
        super()._find_head(poison_offset)
        if not self.has_head:
            self._batch = _NOTHING  # its values may be large, and the next batch may be long in coming

    def run(self, count: int, limit: int) -> int:
        batch = self._batch
        if self.corrupted or self._watched():
            return super().run(count, limit)
        start = bisect_left(batch.offsets, self.head_offset)
        stop = min(start + count, len(batch.offsets))
        enough = start + LEAST
        if stop < enough or batch.timestamps[enough - 1] >= limit:
            return super().run(count, limit)
        self.record.topic, self.record.partition = self.topic, self.partition.partition
        at = start
        while at < stop:
            taken = self._run_chunk(batch, at, min(at + READ_AHEAD, stop), limit, first=at == start)
            at += taken
            if taken < READ_AHEAD:
                break
        if at == start:
            return super().run(min(count, READ_AHEAD), limit)
        self.size -= at - start
        self.has_head = False
        self._rows = rows_from(batch, self.source, at)
        self._find_head()
        return at - start

    def _run_chunk(self, batch: RecordBatch, start: int, stop: int, limit: int, *, first: bool) -> int:
        """Run these records, as far as their timestamps allow; how many were run. The head runs whatever its timestamp."""
        timestamps = batch.timestamps[start:stop]
        latest = max(timestamps)
        if latest >= limit or min(timestamps) < 0:
            bad = next((at for at, timestamp in enumerate(timestamps) if timestamp >= limit or timestamp < 0), len(timestamps))
            stop = start + (max(bad, 1) if first else bad)
            if stop == start:
                return 0
            timestamps = timestamps[: stop - start]
            latest = max(timestamps)
        raw_keys, raw_values = batch.keys[start:stop], batch.values[start:stop]
        fused, source = self._fused, self.source
        keys = _column(fused.keys, raw_keys, source.deserialize_keys, (self.head_key,) if first else ())
        values = _column(fused.values, raw_values, source.deserialize_values, (self.head_value,) if first else ())
        if keys is None or values is None:
            return 0
        none = source.no_headers
        headers: Any
        if batch.headers is not None:
            headers = [
                found if found is not None else [] if none is None else none for found in batch.headers[start:stop]
            ]
        else:
            headers = ([] for _ in timestamps) if none is None else repeat(none)
        data = raw_keys if fused.data_of is None else fused.data_of(raw_keys)
        left = fused.run(keys, values, data, timestamps, batch.offsets[start:stop], headers, raw_keys, raw_values)
        if left:
            stop -= left
            latest = max(timestamps[: stop - start], default=-1)
        if latest > self.partition_time:
            self.partition_time = latest
        return stop - start


def _column(way: Way, raw: list[bytes | None], read: DeserializeMany | None, head: tuple[Any, ...]) -> Iterable[Any] | None:
    """What a loop gets of keys or values; None when the column cannot be read. The head has been read already."""
    if way is Way.TURN:
        return chain(head, repeat(UNREAD))
    if way is Way.SKIP or read is None:
        return raw
    try:
        return read(raw)
    except Exception:  # the record it comes from raises it again, in its turn
        return None
