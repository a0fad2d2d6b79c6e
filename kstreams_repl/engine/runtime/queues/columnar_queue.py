"""A record queue whose source has a generated loop (`engine.runtime.compiler.loop_codegen`): records are processed in columns.

In all other respects it is a `RecordQueue`. Where the loop cannot be used, records are processed one by one: a few records, a column
that cannot be read (its poison record raises when its turn comes), negative timestamps, tapped nodes
(`engine.runtime.compiler.tap_points`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat

from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.runtime.compiler.loop_codegen import Fused, Way
from kstreams_repl.engine.runtime.queues.record_queue import (
    READ_AHEAD,
    UNREAD,
    DeserializeMany,
    RecordQueue,
    Row,
    Source,
    StreamClock,
    rows_from,
)
from kstreams_repl.system.errors import is_interrupt
from kstreams_repl.system.types import RecordBatch, TopicPartition

_NOTHING = RecordBatch([], [], [], [])
LOOP_THRESHOLD = 32
"""Minimum number of records for which the loop is used; for fewer it costs more than it saves."""


class FusedQueue(RecordQueue):
    """`RecordQueue` with a generated loop.

    Args:
        watched: returns whether any node is tapped; the loop is then not used, because taps do not see its records.
        threshold: minimum number of records for which the loop is used.
    """

    __slots__ = ("_fused", "_watched", "_batch", "_threshold", "_times")

    def __init__(
        self,
        partition: TopicPartition,
        source: Source,
        record: RecordContext,
        clock: StreamClock,
        skipped: frozenset[int] = frozenset(),
        *,
        fused: Fused,
        watched: Callable[[], bool],
        threshold: int = LOOP_THRESHOLD,
    ) -> None:
        super().__init__(partition, source, record, clock, skipped)
        self._fused = fused
        self._watched = watched
        self._threshold = threshold
        self._batch = _NOTHING
        assert source.times is not None
        self._times = source.times

    def _open(self, batch: RecordBatch) -> Iterator[Row]:
        self._batch = batch
        return super()._open(batch)

    def _find_head(self, poison_offset: int | None = None) -> None:
        super()._find_head(poison_offset)
        if not self.has_head:
            self._batch = _NOTHING  # releases its values, which may be large; the next batch may come much later

    def run(self, count: int, limit: int) -> int:
        batch = self._batch
        if self.corrupted or self._watched():
            return super().run(count, limit)
        start = bisect_left(batch.offsets, self.head_offset)
        stop = min(start + count, len(batch.offsets))
        enough = start + self._threshold
        if stop < enough or self._times(batch.timestamps[enough - 1 : enough])[0] >= limit:
            return super().run(count, limit)
        self.record.topic, self.record.partition = self.topic, self.partition.partition
        position, chunk = start, self._fused.chunk
        while position < stop:
            taken = self._run_chunk(batch, position, min(position + chunk, stop), limit, first=position == start)
            position += taken
            if taken < chunk:
                break
        if position == start:
            return super().run(min(count, READ_AHEAD), limit)
        self.size -= position - start
        self.has_head = False
        self._rows = rows_from(batch, self.source, position)
        self._find_head()
        return position - start

    def _run_chunk(self, batch: RecordBatch, start: int, stop: int, limit: int, *, first: bool) -> int:
        """Run these records as far as `limit` allows, the head always, and return how many were run."""
        timestamps = self._times(batch.timestamps[start:stop])
        if first:
            timestamps[0] = self.head_ts  # it has already been extracted
        latest = max(timestamps)
        if latest >= limit or min(timestamps) < 0:
            bad = next((index for index, timestamp in enumerate(timestamps) if timestamp >= limit or timestamp < 0), len(timestamps))
            stop = start + (max(bad, 1) if first else bad)
            if stop == start:
                return 0
            timestamps = timestamps[: stop - start]
            latest = max(timestamps)
        raw_keys, raw_values = batch.keys[start:stop], batch.values[start:stop]
        fused, source = self._fused, self.source
        keys = _column(fused.keys, raw_keys, source.deserialize_keys, (self.head_key,) if first else ())
        values = _column(fused.values, raw_values, fused.read_values or source.deserialize_values, (self.head_value,) if first else ())
        if values is None and fused.whole is not None:  # from now on: another value may be of that kind, too
            fused = self._fused = fused.whole
            values = _column(fused.values, raw_values, source.deserialize_values, ())
        if keys is None or values is None:
            return 0
        none = source.no_headers
        headers: object
        if batch.headers is not None:
            headers = [
                own if own is not None else [] if none is None else none for own in batch.headers[start:stop]
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


def _column(way: Way, raw: list[bytes | None], read: DeserializeMany | None, head: tuple[object, ...]) -> Iterable[object] | None:
    """Return the keys or values for a loop; None if the column cannot be read. The head has already been read."""
    if way is Way.TURN:
        return chain(head, repeat(UNREAD))
    if way is Way.SKIP or read is None:
        return raw
    try:
        return read(raw)
    except BaseException as error:  # the record that causes it raises it again when its turn comes
        if is_interrupt(error):
            raise
        return None
