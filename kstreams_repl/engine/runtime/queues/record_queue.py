"""The records of one partition that wait for their task.

The queue keeps the *head* deserialized and time-stamped, because the task chooses between partitions by head timestamp; a poison record
is detected when it becomes the head. Invariants: records leave in offset order; the timestamp extractor gets the partition time of the
records already processed; a queue that holds only poison records still advances the offset (the last of them becomes a head that is not
processed). Columns are deserialized ahead, a batch at a time, if the serde supports it. `run` is the hot loop of the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Any, Protocol

from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.runtime.compiler.crash_trace import Trace, traced_rows
from kstreams_repl.system.errors import is_interrupt
from kstreams_repl.system.types import Headers, RecordBatch, RecordPosition, TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.engine.runtime.record_spans import RecordSpans

UNKNOWN = -1
UNREAD: object = object()
"""A key or value that is deserialized when its record's turn comes."""

DeserializeMany = Callable[[Sequence[bytes | None]], list[Any]]
"""Deserializes a column at once (`Serde.deserialize_many`)."""


class Source(Protocol):
    """The compiled source node, as its queue uses it."""

    name: str
    internal: bool
    """Whether its topics are the application's own."""
    enter: Callable[[object, object, int, Headers], None]
    deserialize_key: Callable[[bytes | None], Any]
    deserialize_value: Callable[[bytes | None], Any]
    deserialize_keys: DeserializeMany | None
    deserialize_values: DeserializeMany | None
    no_headers: Headers | None
    """The immutable list shared by records without headers; None: each record gets its own list."""
    trace: Trace | None
    """Called for each record before it is decoded; None costs nothing."""
    frame: Callable[[RecordBatch], RecordBatch] | None
    """Prepares a batch with headers for the serdes (`header_ids.framing`); None: not needed."""
    extract: Callable[[RecordQueue, object, object, int, int, Headers], int] | None
    """(queue, key, value, timestamp, offset, headers) -> timestamp in ms"""
    times: Callable[[list[int]], list[int]] | None
    """What `extract` makes of timestamps, negative ones excepted, where it asks nothing else; None: it asks for the record."""

    def on_poison(
        self, error: BaseException, queue: RecordQueue, key: bytes | None, value: bytes | None, ts: int, offset: int, headers: Headers
    ) -> None:
        """Raise to stop at this record, return to skip it."""

    def on_negative_timestamp(self, queue: RecordQueue, ts: int, offset: int) -> None:
        """Raise to stop at this record, return to skip it."""


class RecordSkipped(Exception):
    """The cause given for a record that the user skips (``repl.skip.records``); no handler is called for it."""


class StreamClock:
    """The stream time of one task: the largest timestamp taken from its queues."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = UNKNOWN


READ_AHEAD = 128
Row = tuple[bytes | None, bytes | None, Any, Any, int, int, Any]
"""(raw key, raw value, key or `UNREAD`, value or `UNREAD`, timestamp, offset, headers or None)."""


def _rows(batch: RecordBatch, source: Source) -> Iterator[Row]:
    count = len(batch.offsets)
    if count > 2:
        return rows_from(batch, source, 0)
    unread, headers = (UNREAD,) * count, batch.headers or (None,) * count  # the test driver's, one by one
    return zip(batch.keys, batch.values, unread, unread, batch.timestamps, batch.offsets, headers, strict=True)


def rows_from(batch: RecordBatch, source: Source, start: int) -> Iterator[Row]:
    """Return the batch's rows from index `start` on."""
    return chain.from_iterable(_chunks(batch, source, start))


def _chunks(batch: RecordBatch, source: Source, first: int) -> Iterator[Iterable[Row]]:
    """Deserialize columns in chunks so small that the objects are still in the processor's cache when they are processed; the first record
    alone, because often only a head is needed."""
    count = len(batch.offsets)
    for start, stop in pairwise([first, *range(first + 1, count, READ_AHEAD), count]):
        chunk = slice(start, stop)
        raw_keys, raw_values, offsets = batch.keys[chunk], batch.values[chunk], batch.offsets[chunk]
        keys, values = _read_ahead(raw_keys, source.deserialize_keys), _read_ahead(raw_values, source.deserialize_values)
        headers = repeat(None, len(offsets)) if batch.headers is None else batch.headers[chunk]
        yield zip(raw_keys, raw_values, keys, values, batch.timestamps[chunk], offsets, headers, strict=True)


def _read_ahead(column: Sequence[bytes | None], deserialize_many: DeserializeMany | None) -> Iterable[object]:
    """Return the column's objects; `UNREAD` if its serde works one by one, or the column contains a poison record."""
    if deserialize_many is None:
        return repeat(UNREAD, len(column))
    try:
        return deserialize_many(column)
    except BaseException as error:  # the record that causes it raises it again when its turn comes
        if is_interrupt(error):
            raise
        return repeat(UNREAD, len(column))


class RecordQueue:
    """The deserialized head and the remaining raw records of one partition.

    Args:
        partition: the source partition; `topic` of a batch overrides the name (pattern sources in the test driver).
        source: the compiled source node.
        record: the task's record context, set before each record is processed.
        clock: the task's stream time, advanced as records are processed.
        skipped: offsets of records that the user skips; they are treated like poison records.

    Attributes:
        spans: traces some of the records; None: none.
    """

    __slots__ = (
        "partition", "source", "record", "clock", "partition_time", "has_head", "corrupted", "head_key", "head_value", "head_ts",
        "head_offset", "head_headers", "head_raw_key", "head_raw_value", "_rows", "_pending", "size", "next_offset", "topic",
        "buffered_bytes", "_open_bytes", "_skipped", "entered", "spans", "_sampled",
    )  # fmt: skip

    def __init__(
        self,
        partition: TopicPartition,
        source: Source,
        record: RecordContext,
        clock: StreamClock,
        skipped: frozenset[int] = frozenset(),
    ) -> None:
        self.partition = partition
        self._skipped = skipped
        self.spans: RecordSpans | None = None
        self._sampled: set[int] = set()
        self.source = source
        self.record = record
        self.clock = clock
        self.partition_time = UNKNOWN
        self.has_head = False
        self.corrupted = False
        self.head_ts = UNKNOWN
        self.head_offset = -1
        self.head_key: object = None
        self.head_value: object = None
        self.head_headers: Headers = []
        self.head_raw_key: bytes | None = None
        self.head_raw_value: bytes | None = None
        self._rows: Iterator[Row] = iter(())
        self._pending: deque[RecordBatch] = deque()
        self.topic = partition.topic
        self.size = 0
        self.buffered_bytes = 0
        """Size of the buffered batches in bytes; a batch is released as a whole, with its last record."""
        self._open_bytes = 0
        self.next_offset: int | None = None
        self.entered = 0
        """How many records were passed to the source's node."""

    def add(self, batch: RecordBatch) -> None:
        """Append records; they must follow the previous ones in offset order."""
        if not batch.offsets:
            return
        if batch.headers is not None and self.source.frame is not None:
            batch = self.source.frame(batch)
        alone = self._skipped if self.spans is None else self._skipped | self._choose(batch, self.spans)
        self._pending.extend(_apart(batch, alone) if alone else (batch,))
        self.size += len(batch.offsets)
        self.buffered_bytes += batch.size_bytes
        self.next_offset = batch.offsets[-1] + 1
        if not self.has_head:
            self._find_head()

    def _choose(self, batch: RecordBatch, spans: RecordSpans) -> set[int]:
        """Return the offsets of the batch's records to trace, and take note of them."""
        first = self.head_offset if self.has_head else batch.offsets[0]
        chosen = {batch.offsets[index] for index in spans.choose(batch, internal=self.source.internal)} - self._skipped
        self._sampled = {offset for offset in self._sampled if offset >= first} | chosen
        return chosen

    @property
    def resume_offset(self) -> int | None:
        """The offset to commit: that of the head, or the one after the last record seen; None before any record. A poison head counts as
        processed: its handler has been called, and its dead letter must not be sent again after the commit.
        """
        return self.head_offset + self.corrupted if self.has_head else self.next_offset

    def clear(self) -> None:
        self._rows, self.has_head, self.corrupted, self.size = iter(()), False, False, 0
        self._sampled.clear()
        self._pending.clear()
        self.buffered_bytes = self._open_bytes = 0
        self.head_ts = self.partition_time = UNKNOWN

    def run(self, count: int, limit: int) -> int:
        """Process at most `count` records while their timestamp is below `limit`; the first one regardless of `limit`.

        Returns:
            How many records were processed (a poison head that only advances the offset counts as one).
        """
        if self.corrupted:
            self.corrupted = self.has_head = False
            self.size -= 1
            self._find_head()
            return 1
        if self._sampled and self.head_offset in self._sampled:
            return self._run_traced(count, limit)
        source, record, clock = self.source, self.record, self.clock
        enter, de_key, de_value, unread = source.enter, source.deserialize_key, source.deserialize_value, UNREAD
        if source.extract is not None or source.trace is not None:
            return self._run_one_by_one(count, limit)
        record.topic, record.partition = self.topic, self.partition.partition
        raw_key, raw_value = self.head_raw_key, self.head_raw_value
        key, value, ts, offset, headers = self.head_key, self.head_value, self.head_ts, self.head_offset, self.head_headers
        no_headers = source.no_headers
        stream_time = clock.now
        partition_time = self.partition_time
        done = 0
        while True:
            for next_raw_key, next_raw_value, next_key, next_value, next_ts, next_offset, next_headers in self._rows:
                record.offset = offset
                record.timestamp = ts
                record.headers = headers
                record.raw_key = raw_key
                record.raw_value = raw_value
                if ts > partition_time:
                    partition_time = ts
                    if ts > stream_time:
                        stream_time = clock.now = ts
                done += 1
                enter(key, value, ts, headers)
                raw_key, raw_value, ts, offset = next_raw_key, next_raw_value, next_ts, next_offset
                headers = next_headers if next_headers is not None else [] if no_headers is None else no_headers
                try:
                    key = de_key(raw_key) if next_key is unread else next_key
                    value = de_value(raw_value) if next_value is unread else next_value
                except BaseException as error:
                    self._leave(done, partition_time)
                    self._skip_poison(error, raw_key, raw_value, ts, offset, headers)
                    return done
                if ts >= limit or done >= count or ts < 0:
                    self._leave(done, partition_time)
                    if ts < 0:
                        self._drop_negative(ts, offset)
                        self._find_head()
                        return done
                    self._set_head(key, value, ts, offset, headers, raw_key, raw_value)
                    return done
            # the rows are exhausted: the current record is the last of its batch
            record.offset = offset
            record.timestamp = ts
            record.headers = headers
            record.raw_key = raw_key
            record.raw_value = raw_value
            if ts > partition_time:
                partition_time = ts
                if ts > stream_time:
                    stream_time = clock.now = ts
            done += 1
            enter(key, value, ts, headers)
            self._leave(done, partition_time)
            self._find_head()
            return done

    def _run_traced(self, count: int, limit: int) -> int:
        """Process the head, the only record of its batch, in a span."""
        record, spans = self.record, self.spans
        assert spans is not None
        self._sampled.discard(self.head_offset)
        record.topic, record.partition, record.offset = self.topic, self.partition.partition, self.head_offset
        record.timestamp, record.headers = self.head_ts, self.head_headers
        self.head_headers = spans.begin(record)
        try:
            done = self.run(count, limit)
        except BaseException as error:
            spans.end(error)
            raise
        spans.end(None)
        return done

    def _run_one_by_one(self, count: int, limit: int) -> int:
        """Decode each record after the previous one was processed, so that no other record is decoded while one is processed."""
        record, clock, enter = self.record, self.clock, self.source.enter
        done = 0
        while self.has_head and not self.corrupted and done < count and (done == 0 or self.head_ts < limit):
            record.topic, record.partition, record.offset = self.topic, self.partition.partition, self.head_offset
            record.timestamp, record.headers = self.head_ts, self.head_headers
            record.raw_key, record.raw_value = self.head_raw_key, self.head_raw_value
            self.partition_time = max(self.partition_time, self.head_ts)
            clock.now = max(clock.now, self.head_ts)
            done += 1
            enter(self.head_key, self.head_value, self.head_ts, self.head_headers)
            self.size -= 1
            self.has_head = False
            self._find_head()
        return done

    def _open(self, batch: RecordBatch) -> Iterator[Row]:
        """Return the rows of the next batch."""
        return _rows(batch, self.source)

    def _leave(self, done: int, partition_time: int) -> None:
        self.size -= done
        self.partition_time = partition_time
        self.has_head = False

    def _set_head(
        self, key: object, value: object, ts: int, offset: int, headers: Headers, raw_key: bytes | None, raw_value: bytes | None
    ) -> None:
        self.head_key, self.head_value, self.head_ts, self.head_offset, self.head_headers = key, value, ts, offset, headers
        self.head_raw_key, self.head_raw_value = raw_key, raw_value
        self.has_head = True

    def _skip_poison(
        self, error: BaseException, key: bytes | None, value: bytes | None, ts: int, offset: int, headers: Headers
    ) -> None:
        self._ask(error, key, value, ts, offset, headers)
        self._find_head(poison_offset=offset)

    def _ask(self, error: BaseException, key: bytes | None, value: bytes | None, ts: int, offset: int, headers: Headers) -> None:
        following, self.next_offset = self.next_offset, offset  # the queue's position if the handler returns FAIL
        self.source.on_poison(error, self, key, value, ts, offset, headers)
        self.next_offset = following
        self.size -= 1

    def _drop_negative(self, ts: int, offset: int) -> None:
        following, self.next_offset = self.next_offset, offset
        self.source.on_negative_timestamp(self, ts, offset)
        self.next_offset = following
        self.size -= 1

    def _find_head(self, poison_offset: int | None = None) -> None:
        """Decode until a good record is found; if there is none, the last poison record becomes a head that only advances the offset."""
        source, extract, no_headers = self.source, self.source.extract, self.source.no_headers
        while True:
            for raw_key, raw_value, key, value, ts, offset, row_headers in self._rows:
                headers: Headers = row_headers if row_headers is not None else [] if no_headers is None else no_headers
                try:
                    if key is UNREAD:
                        key = source.deserialize_key(raw_key)
                    if value is UNREAD:
                        value = source.deserialize_value(raw_value)
                except BaseException as error:
                    self._ask(error, raw_key, raw_value, ts, offset, headers)
                    poison_offset = offset
                    continue
                if extract is not None:
                    ts = extract(self, key, value, ts, offset, headers)
                if ts < 0:
                    self._drop_negative(ts, offset)
                    continue
                self._set_head(key, value, ts, offset, headers, raw_key, raw_value)
                return
            self.buffered_bytes -= self._open_bytes
            self._open_bytes = 0
            if not self._pending:
                break
            batch = self._pending.popleft()
            self._open_bytes = batch.size_bytes
            if self._skipped and batch.offsets[0] in self._skipped:  # the only record of its batch
                poison_offset, kept = batch.offsets[0], (batch.headers or [None])[0] or []
                why = RecordSkipped(f"{RecordPosition(*self.partition, poison_offset)} was skipped by skip()")
                self._ask(why, batch.keys[0], batch.values[0], batch.timestamps[0], poison_offset, kept)
                continue
            self._rows = self._open(batch)
            self.topic = batch.topic or self.partition.topic
            if source.trace is not None:
                self._rows = traced_rows(source.trace, source.name, self.topic, self.partition.partition, self._rows)
        self.head_ts = UNKNOWN
        if poison_offset is not None:
            self.size += 1
            self.head_offset = poison_offset
            self.has_head = self.corrupted = True


def _apart(batch: RecordBatch, offsets: Set[int]) -> Iterator[RecordBatch]:
    """Split the batch so that each record of these offsets is in a batch of its own."""
    count = len(batch)
    alone = [index for index, offset in enumerate(batch.offsets) if offset in offsets]
    cuts = sorted({0, count, *alone, *(index + 1 for index in alone)})
    for start, stop in pairwise(cuts):
        yield batch.part(slice(start, stop))
