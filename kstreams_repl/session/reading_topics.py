"""Bounded reads of a topic as decoded records, in the order of their time."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from kstreams_repl import serdes as serde_library
from kstreams_repl.display.table import Table
from kstreams_repl.inspection.columns import guess
from kstreams_repl.inspection.topics import last_of
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.reading import ranges_of, read_ranges
from kstreams_repl.serdes import Serde
from kstreams_repl.session.internal_names import internal_names
from kstreams_repl.session.producing import milliseconds
from kstreams_repl.session.records import ReadRecord, Records


def read_records(
    admin: Admin, topic: str, n: int | None, *, start: Any, key_serde: Serde | None, value_serde: Serde | None
) -> Records:
    """As `Session.read`; serdes that are None are found out from the bytes.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    offset = int(start) if isinstance(start, Integral) else None
    since = None if start is None or offset is not None or start == "earliest" else milliseconds(start)
    ranges = ranges_of(admin, topic, start=offset, since_ms=since)
    there = sum(item.end - item.start for item in ranges)
    if start is None:
        ranges = last_of(ranges, n)
    elif n is not None:
        ranges = tuple(type(item)(item.partition, item.start, min(item.end, item.start + n)) for item in ranges)
    found: list[tuple[int, int, int, bytes | None, bytes | None, Any]] = []
    for at, batch in read_ranges(admin.settings, ranges):
        headers = batch.headers or [None] * len(batch)
        found += zip(batch.timestamps, [at.partition] * len(batch), batch.offsets, batch.keys, batch.values, headers, strict=True)
    found.sort(key=lambda row: row[:3])
    if n is not None:
        found = found[-n:] if start is None and n else found[:n]
    read_key = _reader(key_serde, [row[3] for row in found])
    read_value = _reader(value_serde, [row[4] for row in found])
    records = [
        ReadRecord(read_key(key), read_value(value), timestamp, topic, partition, offset, list(headers or ()))
        for timestamp, partition, offset, key, value, headers in found
    ]
    return Records(records, note=_read_note(topic, len(records), there), title=topic)


def _reader(serde: Any, cells: list[bytes | None]) -> Any:
    """Reads single cells; what cannot be read is shown as its bytes."""
    chosen = serde if serde is not None else serde_library.of(guess(cells))

    def read(cell: bytes | None) -> Any:
        if cell is None:
            return None
        try:
            return chosen.deserialize(cell)
        except Exception:  # a look must not fail over one record; the bytes say what is there
            return cell

    return read


def _read_note(topic: str, shown: int, there: int) -> str:
    if there == 0:
        return f"0 records on {topic}; produce with session.produce({topic!r}, [...])"
    return f"{shown:,} of {there:,} records" if shown != there else f"all {there:,} records"


def topics_table(admin: Admin, *, internal: bool) -> Table:
    """As `Session.topics`."""
    counts = admin.topics()
    hidden = frozenset() if internal else internal_names(admin)
    rows = []
    for name in counts:
        if name not in hidden:
            ranges = ranges_of(admin, name, isolation="read_uncommitted")
            rows.append((name, counts[name], sum(item.end - item.start for item in ranges)))
    note = "" if rows else "no topics yet; session.produce(topic, records) makes one"
    return Table.of(("topic", "partitions", "records"), rows, note=note)
