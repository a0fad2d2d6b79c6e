"""A topic as a table: key, value, partition, offset, timestamp, headers; window bounds when its keys are windowed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from kstreams_repl.inspection.columns import TableData, decode, milliseconds, unreadable_note
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.serdes import Serde
from kstreams_repl.types import Headers, RecordBatch, TopicPartition

FEW = 10_000
HEADERS_TYPE = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def topic_table(
    admin: Admin,
    topic: str,
    *,
    key_serde: Serde | None = None,
    value_serde: Serde | None = None,
    records: int | None,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> TableData:
    """The last records of a topic, committed ones only.

    Args:
        key_serde, value_serde: None = found out from the bytes.
        records: at most so many, the last ones of each partition; None reads all.
        since_ms, until_ms: a stretch of time, by record timestamps.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    whole = ranges_of(admin, topic, since_ms=since_ms, until_ms=until_ms)
    taken = bounded(whole, records)
    batches = list(read_ranges(admin.settings, taken))
    batches.sort(key=lambda item: item[0].partition)
    return records_table(batches, key_serde=key_serde, value_serde=value_serde, bound=_bound(topic, whole, taken))


def bounded(ranges: Sequence[OffsetRange], records: int | None) -> tuple[OffsetRange, ...]:
    """The last offsets of the ranges, evenly over the partitions; what short partitions leave goes to the longer ones."""
    if records is None:
        return tuple(ranges)
    left, taken = max(records, 0), {}
    by_length = sorted(ranges, key=lambda item: item.end - item.start)
    for index, item in enumerate(by_length):
        share = min(item.end - item.start, left // (len(by_length) - index))
        left -= share
        taken[item.partition] = OffsetRange(item.partition, item.end - share, item.end)
    return tuple(taken[item.partition] for item in ranges)


def last_of(ranges: Sequence[OffsetRange], records: int | None) -> tuple[OffsetRange, ...]:
    """Enough at the end of each partition to hold the last records of the topic by time, as long as they are few; else as `bounded`."""
    if records is None or records > FEW:
        return bounded(ranges, records)
    return tuple(OffsetRange(item.partition, max(item.start, item.end - records), item.end) for item in ranges)


def records_table(
    batches: Iterable[tuple[TopicPartition, RecordBatch]], *, key_serde: Serde | None, value_serde: Serde | None, bound: str
) -> TableData:
    """Columns of records that were read."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    partitions: list[int] = []
    offsets: list[int] = []
    timestamps: list[int] = []
    headers: list[Headers | None] = []
    for at, batch in batches:
        keys += batch.keys
        values += batch.values
        partitions += [at.partition] * len(batch)
        offsets += batch.offsets
        timestamps += batch.timestamps
        headers += batch.headers or [None] * len(batch)
    key, value = decode(key_serde, keys), decode(value_serde, values)
    columns = {"key": key.values, **key.more, "value": value.values, **value.more}
    columns |= {
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": milliseconds(timestamps),
        "headers": pa.array([[] if one is None else [{"name": n, "value": v} for n, v in one] for one in headers], HEADERS_TYPE),
    }
    notes = unreadable_note("key", key, key_serde) + unreadable_note("value", value, value_serde)
    json_columns = tuple(name for name, column in (("key", key), ("value", value)) if column.is_json)
    return TableData(columns, json_columns, bound, notes)


def _bound(topic: str, whole: Sequence[OffsetRange], taken: Sequence[OffsetRange]) -> str:
    there, read = (sum(item.end - item.start for item in ranges) for ranges in (whole, taken))
    partitions = f"{len(whole)} partition{'s' if len(whole) != 1 else ''}"
    if there == 0:
        return f"topic {topic}: empty"
    if read == there:
        return f"topic {topic}: all {there:,} offsets of {partitions}"
    return f"topic {topic}: the last {read:,} of {there:,} offsets of {partitions}; records=None reads all"
