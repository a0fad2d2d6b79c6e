"""Bounded reads of a topic as decoded records, in order of their timestamps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import TypeVar

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.serdes.header_ids import Part
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.host.kafka.record_counter import RecordCounter, at_most
from kstreams_repl.pictures.columns import recognised
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.inspection.topics import FEW, last_of
from kstreams_repl.repl.session.topics.internal_names import internal_names
from kstreams_repl.repl.session.topics.produce import milliseconds
from kstreams_repl.repl.session.topics.records import ReadRecord, Records
from kstreams_repl.system.errors import CallError
from kstreams_repl.system.types import Headers, TopicPartition

T = TypeVar("T")

_MOST_COUNTED = 200_000
"""Offsets that `Session.topics` reads, about a fifth of a second."""
_Row = tuple[int, int, int, bytes | None, bytes | None, Headers | None]
"""Timestamp, partition, offset, key, value, headers."""


def read_records(
    admin: Admin, counter: RecordCounter, topic: str, n: int | None, *, start: object, key_serde: Serde | None, value_serde: Serde | None
) -> Records:
    """Read records, as `Session.read`. Serdes that are None are inferred from the bytes.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    refuse_no_number(n, all_of_them=True)
    offset = int(start) if isinstance(start, Integral) else None
    since = None if start is None or offset is not None or start == "earliest" else milliseconds(start)
    ranges = ranges_of(admin, topic, start=offset, since_ms=since)
    rows, whole = rows_of(admin, ranges, n, first=start is not None)
    rows.sort(key=lambda row: row[:3])
    count = len(rows)
    if n is not None:
        rows = latest(rows, n) if start is None else rows[:n]
    records = decoded(rows, topic, key_serde, value_serde)
    there = count if whole else total(counter.count(admin.settings, ranges))
    return Records(records, note=_read_note(topic, len(records), there, size_of(ranges)), title=topic)


def decoded(found: Sequence[_Row], topic: str, key_serde: Serde | None, value_serde: Serde | None) -> list[ReadRecord]:
    """Return rows as decoded records. Serdes that are None are inferred from the bytes."""
    headers = [row[5] for row in found]
    keys = _values(key_serde, [row[3] for row in found], headers, "key")
    values = _values(value_serde, [row[4] for row in found], headers, "value")
    return [
        ReadRecord(key, value, row[0], topic, row[1], row[2], list(row[5] or ()))
        for key, value, row in zip(keys, values, found, strict=True)
    ]


def refuse_no_number(n: object, *, all_of_them: bool = False) -> None:
    """Raise if `n` is not a number of records; with `all_of_them`, None is allowed and means all.

    Raises:
        CallError: it is not.
    """
    if not (isinstance(n, Integral) and int(n) >= 0) and not (all_of_them and n is None):
        raise CallError(f"n must be >= 0{' or None' if all_of_them else ''}, got {n!r}", hint="give a number of records, such as n=10")


def latest(found: list[T], n: int) -> list[T]:
    """Return the last `n`, or all if there are fewer. A slice from ``-n`` or ``len(found) - n`` is wrong for 0, or for fewer than `n`."""
    return found[max(0, len(found) - n) :]


def rows_of(
    admin: Admin, ranges: Sequence[OffsetRange], n: int | None, *, first: bool, few: int = FEW
) -> tuple[list[_Row], bool]:
    """Return at least the first or last `n` records of each partition, or all there are, and whether that is all of them.

    Not every offset holds a record (a transaction ends with a marker, compaction removes some), so a partition that gave fewer
    than `n` is read again over a range four times as large.

    Args:
        few: if `n` is larger than this, the last `n` offsets are taken evenly from the partitions.
    """
    merged: list[_Row] = []
    left, size, whole = list(ranges), n, True
    while left:
        taken = [_end_of(item, size, first=first) for item in left]
        if not first and n is not None and n > few:
            taken = list(last_of(left, n))
        rows: dict[int, list[_Row]] = {item.partition.partition: [] for item in taken}
        for partition, batch in read_ranges(admin.settings, taken):
            headers = batch.headers or [None] * len(batch)
            rows[partition.partition] += zip(
                batch.timestamps, [partition.partition] * len(batch), batch.offsets, batch.keys, batch.values, headers, strict=True
            )
        again = []
        for item, part in zip(left, taken, strict=True):
            mine = rows[item.partition.partition]
            if part != item and n is not None and len(mine) < n <= few:
                again.append(item)
                continue
            whole = whole and part == item
            merged += mine
        left, size = again, None if size is None else 4 * size
    return merged, whole


def _end_of(item: OffsetRange, size: int | None, *, first: bool) -> OffsetRange:
    if size is None or item.end - item.start <= size:
        return item
    return OffsetRange(item.partition, *((item.start, item.start + size) if first else (item.end - size, item.end)))


def _values(serde: Serde | None, cells: Sequence[bytes | None], headers: Sequence[Headers | None], part: Part) -> list[object]:
    """Return decoded cells; the bytes of a cell that cannot be decoded."""
    chosen, framed = recognised(serde, cells, headers, part)

    def read(cell: bytes | None, as_framed: bytes | None) -> object:
        if cell is None:
            return None
        try:
            return chosen.deserialize(as_framed)
        except Exception:  # reading must not fail because of one record; the bytes show its content
            return cell

    return list(map(read, cells, framed))


def _read_note(topic: str, shown: int, there: int | None, offsets: int) -> str:
    if there == 0:
        return f"0 records on {topic}; produce with session.produce({topic!r}, [...])"
    return f"{shown:,} of {at_most(there, offsets)} records" if shown != there else f"all {there:,} records"


def total(counted: Mapping[TopicPartition, int | None]) -> int | None:
    """Return the sum of the records of some partitions; None if that of one is unknown."""
    counts = list(counted.values())
    return None if None in counts else sum(number or 0 for number in counts)


def size_of(ranges: Iterable[OffsetRange]) -> int:
    """Return the number of offsets."""
    return sum(item.end - item.start for item in ranges)


def sizes_of_topics(admin: Admin, counter: RecordCounter, topics: Iterable[str], *, most: int) -> dict[str, tuple[int | None, int]]:
    """Return for each topic the number of its records, None where that is unknown, and the number of its offsets."""
    ranges = {topic: ranges_of(admin, topic) for topic in topics}
    counted = counter.count(admin.settings, [item for items in ranges.values() for item in items], most=most)
    return {topic: (total({item.partition: counted[item.partition] for item in items}), size_of(items)) for topic, items in ranges.items()}


def topics_table(admin: Admin, counter: RecordCounter, *, internal: bool) -> Table:
    """Return the table of `Session.topics`."""
    counts = admin.topics()
    hidden = frozenset() if internal else internal_names(admin)
    sizes = sizes_of_topics(admin, counter, [name for name in counts if name not in hidden], most=_MOST_COUNTED)
    rows = [(name, counts[name], records, offsets) for name, (records, offsets) in sizes.items()]
    note = "" if rows else "no topics yet; session.produce(topic, records) makes one"
    if any(records is None for records, _ in sizes.values()):
        note = "large topics are not counted: they have at most one record for each offset"
    return Table.of(("topic", "partitions", "records", "offsets"), rows, note=note)
