"""Bounded reads: a range of a topic as columns, for inspection, restoration and recordings.

The bounds are fixed before the first record is read, so a topic that is still being written to gives a finite result. A read is complete
when the consumer's *position* reaches the end, not when the last record's offset does: transaction markers, aborted records and compacted
ranges have offsets but no records. (A `read_committed` read ends at the first open transaction, or later if that commits meanwhile.)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientEvents, ClientSettings, Isolation, make_consumer
from kstreams_repl.host.kafka.failures import translate
from kstreams_repl.host.kafka.group_offsets import assign, is_passing
from kstreams_repl.host.kafka.record_batch import columns
from kstreams_repl.system.errors import BrokerUnavailableError, CallError
from kstreams_repl.system.types import RecordBatch, TopicPartition

READ_GROUP = "kstreams-repl-reader"
"""A group name for clients that commit nothing; librdkafka requires one."""

SILENT_SECONDS = 30.0
FEW_OFFSETS = 20_000
_SMALL_FETCHES: Mapping[str, Any] = {"fetch_message_max_bytes": 128 * 1024, "queued_min_messages": 1000}
"""Settings to read up to `FEW_OFFSETS`: the client otherwise fetches and decompresses a megabyte of each partition, and more in advance."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets ``start <= offset < end`` of one partition."""

    partition: TopicPartition
    start: int
    end: int


def ranges_of(
    admin: Admin,
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    start: Mapping[int, int] | int | None = None,
    end: Mapping[int, int] | int | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    isolation: Isolation = "read_committed",
    settled: bool = False,
) -> tuple[OffsetRange, ...]:
    """Return the offsets to read of a topic; bounds outside the log are moved to its ends.

    Args:
        partitions: the partitions to read; None for all.
        start: the first offset, for all partitions or by partition.
        end: the offset after the last one, for all partitions or by partition.
        since_ms: start at the first record whose timestamp (epoch ms) is this or later.
        until_ms: end before the first record whose timestamp (epoch ms) is this or later. (The bound is an offset; timestamps need not
            ascend.)
        settled: wait until no transaction is open below the end (`Admin.settled_end_offsets`), so that everything committed is included.

    Raises:
        UnknownTopicError: the topic does not exist.
    """
    count = admin.partitions(topic)
    requested = [TopicPartition(topic, number) for number in (range(count) if partitions is None else partitions)]
    beyond = [partition.partition for partition in requested if not 0 <= partition.partition < count]
    if beyond:
        raise CallError(f"topic {topic!r} has {count} partitions, there is no partition {beyond[0]}", topic=topic, partition=beyond[0])
    first = admin.beginning_offsets(requested)
    after = admin.settled_end_offsets(requested) if settled else admin.end_offsets(requested, isolation=isolation)
    low = {partition: _bound(start, partition, first[partition]) for partition in requested}
    high = {partition: _bound(end, partition, after[partition]) for partition in requested}
    if since_ms is not None:
        for partition, offset in admin.offsets_for_time({partition: since_ms for partition in requested}).items():
            low[partition] = max(low[partition], after[partition] if offset is None else offset)
    if until_ms is not None:
        for partition, offset in admin.offsets_for_time({partition: until_ms for partition in requested}).items():
            high[partition] = high[partition] if offset is None else min(high[partition], offset)
    ranges = []
    for partition in requested:
        ending = min(high[partition], after[partition])
        starting = max(low[partition], first[partition])
        ranges.append(OffsetRange(partition, min(starting, ending), ending))
    return tuple(ranges)


def read_ranges(
    settings: ClientSettings,
    ranges: Iterable[OffsetRange],
    *,
    isolation: Isolation = "read_committed",
    batch_size: int = 20_000,
    silent_seconds: float = SILENT_SECONDS,
) -> Iterator[tuple[TopicPartition, RecordBatch]]:
    """Yield the records of the ranges as columns; partitions are interleaved, each is in offset order.

    Ends when the position of every partition has reached its end. Close the iterator to stop early. Of several ranges of one partition, the
    later ones are read after the first ranges of all partitions.

    Raises:
        BrokerUnavailableError: no position advanced for ``silent_seconds``.
        KStreamsError: a start offset is no longer in the log (the topic was truncated during the read).
    """
    left = [item for item in ranges if item.start < item.end]
    if not left:
        return
    events = ClientEvents()
    few = _SMALL_FETCHES if sum(item.end - item.start for item in left) <= FEW_OFFSETS else {}
    consumer = make_consumer(settings, group_id=READ_GROUP, isolation=isolation, events=events, enable_partition_eof=True, **few)
    try:
        while left:
            next_ones = {item.partition: item for item in reversed(left)}
            left = [item for item in left if item is not next_ones[item.partition]]
            assign(consumer, {at: item.start for at, item in next_ones.items()})
            ends = {at: item.end for at, item in next_ones.items()}
            yield from _read(consumer, settings, events, ends, batch_size, silent_seconds)
    finally:
        consumer.close()


def _read(
    consumer: Consumer,
    settings: ClientSettings,
    events: ClientEvents,
    ends: dict[TopicPartition, int],
    batch_size: int,
    silent_seconds: float,
) -> Iterator[tuple[TopicPartition, RecordBatch]]:
    open_ends = dict(ends)
    reached: dict[TopicPartition, int] = {}

    def on_error(message: Message, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            reached[TopicPartition(message.topic(), message.partition())] = message.offset()
        elif not is_passing_for_reader(error):
            raise translate(
                error,
                f"reading {message.topic()}-{message.partition()}",
                bootstrap_servers=settings.bootstrap_servers,
                topic=message.topic(),
            )

    moved = time.monotonic()
    while open_ends:
        messages = consumer.consume(batch_size, 0.02)
        for partition, batch in columns(messages, on_error):
            end = open_ends.get(partition)
            if end is None:
                continue
            if batch.offsets[-1] >= end:
                batch = batch.before(end)
                _finish(consumer, open_ends, partition)
            if batch.offsets:
                yield partition, batch
        now = time.monotonic()
        if messages:
            moved = now
        elif now - moved > silent_seconds:
            raise BrokerUnavailableError(
                f"no records from {settings.bootstrap_servers} for {silent_seconds:.0f} s while reading {_names(open_ends)}"
                + (f" ({events.last})" if events.last else ""),
                hint="check that the broker is running",
                bootstrap_servers=settings.bootstrap_servers,
            )
        # After the records before it: a partition's end-of-file, or its position past markers, may complete it.
        reached |= positions(consumer, open_ends)
        for partition, position in reached.items():
            if partition in open_ends and position >= open_ends[partition]:
                _finish(consumer, open_ends, partition)
        reached.clear()


def positions(consumer: Consumer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the consumer's next offset in each partition that has one; it also advances over markers and compacted ranges."""
    asked = [ClientTopicPartition(at.topic, at.partition) for at in partitions]
    try:
        answers = consumer.position(asked)
    except KafkaException as error:
        raise translate(error, "reading the position") from error
    return {TopicPartition(at.topic, at.partition): at.offset for at in answers if at.offset != OFFSET_INVALID and at.offset >= 0}


def is_passing_for_reader(error: KafkaError) -> bool:
    """Return whether a client of `READ_GROUP` recovers from the error by itself, or does not need what was refused: it never uses the
    group, so no user needs a right on it.
    """
    return is_passing(error) or bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def _bound(given: Mapping[int, int] | int | None, at: TopicPartition, otherwise: int) -> int:
    if given is None:
        return otherwise
    return given if isinstance(given, int) else given.get(at.partition, otherwise)


def _finish(consumer: Consumer, open_ends: dict[TopicPartition, int], partition: TopicPartition) -> None:
    """Remove a finished partition from the consumer, so that records after its end are not fetched."""
    if open_ends.pop(partition, None) is not None:
        consumer.incremental_unassign([ClientTopicPartition(partition.topic, partition.partition)])


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
