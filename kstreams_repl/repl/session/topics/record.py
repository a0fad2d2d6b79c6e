"""Record topics as a `Recording`: fix the bounds first, then read exactly the records between them."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Mapping

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.repl.session.topics.read import latest, refuse_no_number, rows_of
from kstreams_repl.system.errors import CallError
from kstreams_repl.system.types import Headers, TopicPartition
from kstreams_repl.test_driver.recording import RecordedRecord, Recording

Offsets = tuple[int | None, int | None] | Mapping[int, tuple[int | None, int | None]]


def record_topics(admin: Admin, topics: Iterable[str], *, n: int | None, seconds: float | None, offsets: Offsets | None) -> Recording:
    """Record topics, as `Session.record`."""
    names = list(dict.fromkeys(topics))
    refuse_no_number(n, all_of_them=True)
    if sum(bound is not None for bound in (n, seconds, offsets)) > 1:
        given = [name for name, bound in (("n", n), ("timeout", seconds), ("offsets", offsets)) if bound is not None]
        raise CallError(
            f"record() takes one of n, timeout and offsets, got {' and '.join(given)}",
            hint="n=100: the last 100; timeout=10: what is written in the next 10 s; offsets=(from, to)",
        )
    if seconds is not None:
        before = {name: ranges_of(admin, name) for name in names}
        time.sleep(seconds)
        ranges = {name: ranges_of(admin, name, start={r.partition.partition: r.end for r in before[name]}) for name in names}
        note = f"written within {seconds:g} s"
    elif offsets is not None:
        ranges = {name: _between(admin, name, offsets) for name in names}
        note = "offsets as given"
    else:
        n = 1000 if n is None else n
        note = f"the last {n:,} of each topic"
    records: list[RecordedRecord] = []
    for name in names:
        records += read_records_of(admin, ranges[name]) if n is None else _last_of(admin, name, n)
    return Recording(in_order(records), {name: admin.partitions(name) for name in names}, note=note)


def _last_of(admin: Admin, topic: str, n: int) -> list[RecordedRecord]:
    rows, _ = rows_of(admin, ranges_of(admin, topic), n, first=False, few=n)
    found = in_order(
        RecordedRecord(topic, partition, offset, timestamp, key, value, list(headers or ()))
        for timestamp, partition, offset, key, value, headers in rows
    )
    return latest(found, n)


def in_order(records: Iterable[RecordedRecord]) -> list[RecordedRecord]:
    """Return records in a task's order: the partition whose *head* is earliest first, each partition in offset order."""
    queues: dict[TopicPartition, list[RecordedRecord]] = {}
    for record in sorted(records, key=lambda record: record.offset):
        queues.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
    return list(heapq.merge(*queues.values(), key=lambda record: record.timestamp))


def _between(admin: Admin, topic: str, offsets: Offsets) -> tuple[OffsetRange, ...]:
    if not isinstance(offsets, Mapping):
        return ranges_of(admin, topic, start=offsets[0], end=offsets[1])
    start = {partition: first for partition, (first, _) in offsets.items() if first is not None}
    end = {partition: after for partition, (_, after) in offsets.items() if after is not None}
    return ranges_of(admin, topic, partitions=sorted(offsets), start=start, end=end)


def read_records_of(admin: Admin, ranges: Iterable[OffsetRange]) -> list[RecordedRecord]:
    """Return records of one topic by time, those of one partition in offset order."""
    found: list[RecordedRecord] = []
    for partition, batch in read_ranges(admin.settings, ranges):
        headers: Iterable[Headers | None] = batch.headers or [None] * len(batch)
        found += [
            RecordedRecord(partition.topic, partition.partition, offset, timestamp, key, value, list(own or ()))
            for offset, timestamp, key, value, own in zip(
                batch.offsets, batch.timestamps, batch.keys, batch.values, headers, strict=True
            )
        ]
    return in_order(found)
