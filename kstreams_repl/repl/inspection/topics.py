"""A topic as a table: key, value, partition, offset, timestamp, headers, and window bounds if its keys are windowed.

A topic of any size is read in pieces (`TopicScan`): each is decoded and passed on separately, so that only one piece is in memory.
Bounds of ``partition``, ``offset`` and ``timestamp`` become the offsets to read.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.serdes.header_ids import Part
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.pictures.columns import TableData, calendar_note, decode, milliseconds, recognised, unreadable_note
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.inspection.pushdown import UNBOUNDED, Bounds
from kstreams_repl.system.types import Headers, RecordBatch, TopicPartition, header_text

FEW = 10_000
PIECE = 100_000
"""Number of records that are decoded at once."""
FIRST_READ = 20_000
"""Number of records that are read first where the first ones can answer a query; so many are read without checking names before."""
SAMPLE = 1_000
"""Number of records from which the names of columns are known before a topic is read."""
FIRST_REPORT_SECONDS = 2.0
REPORT_SECONDS = 5.0
HEADERS_TYPE = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))

Batches = list[tuple[TopicPartition, RecordBatch]]


class TopicScan:
    """The committed records of a topic, as tables of one partition each, in offset order.

    Args:
        key_serde, value_serde: None = guessed from the first bytes.
        limit: maximal number of records, the last ones of each partition; None = all.
        end: by partition, the offset before which the topic ends; None: as it is now.
        columns: the columns to read; None = all. Other columns are not decoded.
        bounds: by column, bounds of the rows that are needed. A few other rows are read too, for the names and types of columns.
        first: read the first rows only, so many; None = all.
        report: receives a progress line at intervals when the read takes long.

    Attributes:
        rows: number of rows returned so far.
        bound, cut, notes: as in `TableData`; complete when all pieces were read.
        offsets: number of offsets to read.
        narrowed: whether offsets are left out because of `bounds` or `first`.
        is_part: whether offsets are left out because of `first`.

    Raises:
        UnknownTopicError: the topic does not exist.
    """

    def __init__(
        self,
        admin: Admin,
        topic: str,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        limit: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        end: Mapping[int, int] | None = None,
        columns: Collection[str] | None = None,
        bounds: Mapping[str, Bounds] | None = None,
        first: int | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.topic = topic
        self.rows = 0
        self._records = 0
        """Number of records in the offsets to read; `rows` include those that are read for the names of columns."""
        self.commits = ""
        self.json_columns: tuple[str, ...] = ()
        self._settings: ClientSettings = admin.settings
        self._there = ranges_of(admin, topic, end=end, since_ms=since_ms, until_ms=until_ms)
        self._limited = bounded(self._there, limit)
        self._needed = _within(admin, self._limited, bounds or {})
        self._taken = self._needed if first is None else _first_of(self._needed, first)
        self.offsets = _size(self._taken)
        self.is_part = self.offsets < _size(self._needed)
        self.narrowed = self.offsets < _size(self._limited)
        self._given = key_serde, value_serde
        self._serdes: tuple[Serde, Serde] | None = None
        self._wanted = columns
        self._report = report
        self._unreadable = [0, 0, 0]

    def pieces(self) -> Iterator[tuple[int, TableData]]:
        """Yield (partition, its next rows); at least one piece, which may be empty."""
        others: list[OffsetRange] = []
        if _size(self._needed) < _size(self._limited):
            others = [part for item in ends_of(self._limited, SAMPLE) for part in _outside(item, self._needed)]
        if others and self.offsets > FIRST_READ:  # apart from the others, so that these are read with small fetches
            yield from self._read(others)
            others = []
        yield from self._read([*others, *self._taken])
        if not self.rows:
            yield 0, self._decoded([])

    def sample(self) -> TableData:
        """Return a few rows of both ends of each partition."""
        return _columns(read_ranges(self._settings, ends_of(self._limited, SAMPLE)), *self._given, self._wanted)[0]

    def _read(self, ranges: Sequence[OffsetRange]) -> Iterator[tuple[int, TableData]]:
        whole, got, waiting = _size(ranges), 0, 0
        taken = {item.partition: item for item in self._taken}
        held: dict[int, Batches] = {item.partition.partition: [] for item in ranges}
        began = reported_at = time.monotonic()
        for partition, batch in read_ranges(self._settings, ranges):
            held[partition.partition].append((partition, batch))
            got, waiting = got + len(batch), waiting + len(batch)
            self._records += bisect_left(batch.offsets, taken[partition].end) - bisect_left(batch.offsets, taken[partition].start)
            if waiting >= PIECE:
                waiting = 0
                yield from self._give(held)
            now = time.monotonic()
            if now - reported_at > (REPORT_SECONDS if reported_at > began else FIRST_REPORT_SECONDS):
                reported_at = now
                self._report(f"reading {self.topic}: {got:,} of {counted(whole, 'offset')} …")
        yield from self._give(held)
        if reported_at > began:
            self._report(f"read {counted(got, 'record')} of {self.topic} ({time.monotonic() - began:.1f} s)")

    def _give(self, held: dict[int, Batches]) -> Iterator[tuple[int, TableData]]:
        if self._serdes is None:
            batches = [batch for _, batch in chain.from_iterable(held.values())]
            key, value = self._given
            self._serdes = serdes_of(batches, key, value)
        for partition, batches_of in held.items():
            if batches_of:
                held[partition] = []
                yield partition, self._decoded(batches_of)

    def _decoded(self, batches: Batches) -> TableData:
        data, unreadable = _columns(batches, *(self._serdes or self._given), self._wanted)
        self.rows += data.rows
        self._unreadable = [one + other for one, other in zip(self._unreadable, unreadable, strict=True)]
        self.json_columns = data.json_columns
        return data

    @property
    def notes(self) -> tuple[str, ...]:
        return _notes(self._unreadable, *self._given)

    @property
    def bound(self) -> str:
        there, limited = _size(self._there), _size(self._limited)
        if there == 0:
            return f"topic {self.topic}: empty"
        # Transaction markers and compacted records have offsets.
        records = "" if self._records == self.offsets else f", {counted(self._records, 'record')}"
        if self.is_part:
            return f"topic {self.topic}: {self.offsets:,} of {counted(there, 'offset')} read{records}, enough for the LIMIT"
        if self.narrowed:
            return f"topic {self.topic}: {self.offsets:,} of {counted(there, 'offset')} read{records}, all that meet the WHERE"
        partitions = counted(len(self._there), "partition")
        if limited == there:
            return f"topic {self.topic}: all {counted(there, 'offset')} of {partitions}{records}"
        return f"topic {self.topic}: the last {limited:,} of {counted(there, 'offset')} of {partitions}{records}"

    @property
    def cut(self) -> str:
        limited, there = _size(self._limited), _size(self._there)
        if self.is_part or limited == there:
            return ""
        what = "record" if self._records == limited else "offset"
        return f"topic {self.topic}: only the last {limited:,} of {counted(there, what)} were read; topic_limit=None reads all"


def _within(admin: Admin, ranges: Sequence[OffsetRange], bounds: Mapping[str, Bounds]) -> tuple[OffsetRange, ...]:
    """Return the offsets of the ranges that hold all records within the bounds."""
    partitions, offsets, time = (bounds.get(name, UNBOUNDED) for name in ("partition", "offset", "timestamp"))
    among = sorted(offsets.among) if offsets.among is not None else []
    low = max((bound for bound in (offsets.low, *among[:1]) if bound is not None), default=0)
    high = min((bound for bound in (offsets.high, *among[-1:]) if bound is not None), default=None)
    kept = [item.partition for item in ranges if partitions.admit(item.partition.partition)]
    since = admin.offsets_for_time({partition: time.low for partition in kept}) if time.low is not None and kept else {}
    within = []
    for item in ranges:
        nothing = item.partition not in kept or offsets.among == frozenset() or since.get(item.partition, 0) is None
        start = item.end if nothing else min(max(item.start, low, since.get(item.partition) or 0), item.end)
        end = item.end if high is None else max(start, min(item.end, high + 1))
        within.append(OffsetRange(item.partition, start, end))
    return tuple(within)


def ends_of(ranges: Sequence[OffsetRange], records: int) -> list[OffsetRange]:
    """Return the first and the last offsets of each range, `records` altogether."""
    each = max(records // (2 * max(len(ranges), 1)), 1)
    pieces = []
    for item in ranges:
        if item.end - item.start <= 2 * each:
            pieces.append(item)
        else:
            pieces += [OffsetRange(item.partition, item.start, item.start + each), OffsetRange(item.partition, item.end - each, item.end)]
    return pieces


def _outside(item: OffsetRange, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the parts of a range that are not in the range of its partition."""
    inner = next(other for other in ranges if other.partition == item.partition)
    return [
        OffsetRange(item.partition, item.start, min(item.end, inner.start)),
        OffsetRange(item.partition, max(item.start, inner.end, inner.start), item.end),
    ]


def bounded(ranges: Sequence[OffsetRange], limit: int | None) -> tuple[OffsetRange, ...]:
    """Return the last offsets of the ranges, evenly over the partitions; longer partitions get what shorter ones do not use."""
    return tuple(ranges) if limit is None else _shares(ranges, limit, lambda item, share: (item.end - share, item.end))


def _first_of(ranges: Sequence[OffsetRange], records: int) -> tuple[OffsetRange, ...]:
    """Return the first offsets of the ranges, distributed in the same way."""
    return _shares(ranges, records, lambda item, share: (item.start, item.start + share))


def _shares(
    ranges: Sequence[OffsetRange], records: int, part: Callable[[OffsetRange, int], tuple[int, int]]
) -> tuple[OffsetRange, ...]:
    left, taken = max(records, 0), {}
    by_length = sorted(ranges, key=lambda item: item.end - item.start)
    for index, item in enumerate(by_length):
        share = min(item.end - item.start, left // (len(by_length) - index))
        left -= share
        taken[item.partition] = OffsetRange(item.partition, *part(item, share))
    return tuple(taken[item.partition] for item in ranges)


def last_of(ranges: Sequence[OffsetRange], records: int | None) -> tuple[OffsetRange, ...]:
    """Return ranges at the end of each partition that contain the last records of the topic by time, if they are few; else as `bounded`."""
    if records is None or records > FEW:
        return bounded(ranges, records)
    return tuple(OffsetRange(item.partition, max(item.start, item.end - records), item.end) for item in ranges)


def records_table(
    batches: Iterable[tuple[TopicPartition, RecordBatch]], *, key_serde: Serde | None, value_serde: Serde | None, bound: str
) -> TableData:
    """Return columns of records that were read."""
    data, unreadable = _columns(batches, key_serde, value_serde, None)
    data.bound = bound
    data.notes = _notes(unreadable, key_serde, value_serde)
    return data


def _notes(unreadable: Sequence[int], key: Serde | None, value: Serde | None) -> tuple[str, ...]:
    keys, values, times = unreadable
    return unreadable_note("key", keys, key) + unreadable_note("value", values, value) + calendar_note(times)


def serdes_of(batches: Sequence[RecordBatch], key: Serde | None, value: Serde | None) -> tuple[Serde, Serde]:
    """Return the serdes of keys and values; those that are None are guessed from the records."""
    headers = [own for batch in batches for own in batch.headers or [None] * len(batch)]
    return (
        key or recognised(None, [cell for batch in batches for cell in batch.keys], headers, "key")[0],
        value or recognised(None, [cell for batch in batches for cell in batch.values], headers, "value")[0],
    )


def _columns(
    batches: Iterable[tuple[TopicPartition, RecordBatch]],
    key_serde: Serde | None,
    value_serde: Serde | None,
    wanted: Collection[str] | None,
) -> tuple[TableData, tuple[int, int, int]]:
    """Return the requested columns (None: all), always with `partition`, and how many keys, values and timestamps could not be read."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    partitions: list[int] = []
    offsets: list[int] = []
    timestamps: list[int] = []
    headers: list[Headers | None] = []
    for partition, batch in batches:
        keys += batch.keys
        values += batch.values
        partitions += [partition.partition] * len(batch)
        offsets += batch.offsets
        timestamps += batch.timestamps
        headers += batch.headers or [None] * len(batch)
    columns: dict[str, pa.Array] = {}
    json_columns: list[str] = []
    unreadable = {"key": 0, "value": 0}
    parts: tuple[tuple[Part, Serde | None, list[bytes | None]], ...] = (("key", key_serde, keys), ("value", value_serde, values))
    for name, serde, cells in parts:
        if wanted is None or name in wanted or (name == "key" and not {"window_start", "window_end"}.isdisjoint(wanted)):
            found = decode(*recognised(serde, cells, headers, name))
            columns |= {name: found.values, **found.more}
            unreadable[name] = found.unreadable
            json_columns += [name] if found.is_json else []
    columns["partition"] = pa.array(partitions, pa.int32())
    if wanted is None or "offset" in wanted:
        columns["offset"] = pa.array(offsets, pa.int64())
    if wanted is None or "timestamp" in wanted:
        columns["timestamp"] = milliseconds(timestamps)
    if wanted is None or "headers" in wanted:
        columns["headers"] = headers_column(headers)
    beyond = columns["timestamp"].null_count if "timestamp" in columns else 0
    return TableData(columns, tuple(json_columns)), (unreadable["key"], unreadable["value"], beyond)


def headers_column(headers: Iterable[Headers | None]) -> pa.Array:
    """Return headers as a column; their values as text."""
    return pa.array([[{"name": name, "value": header_text(value)} for name, value in own or ()] for own in headers], HEADERS_TYPE)


def _size(ranges: Iterable[OffsetRange]) -> int:
    return sum(item.end - item.start for item in ranges)
