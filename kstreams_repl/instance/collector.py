"""The record collector: from a task's output to librdkafka's send buffers.

Actors: *senders* (one closure per sink or changelog, made at build time) and the producer, whose own accumulator is the
output buffer. Back-pressure: a full buffer blocks the sender until there is room. Invariant: after `seal` and a flush every
record is acknowledged or an error is raised, and `positions` tells the offset after the last record of each changelog. Under
exactly once that offset comes from the delivery report of the last changelog
record alone: a changelog sender holds one record back, and `seal` sends it with a callback. (Reports for all of them would
cost a Python call per record.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from kstreams_repl.errors import KStreamsError, ProductionError, UnknownTopicError
from kstreams_repl.kafka.delivery import describe_delivery, send_errors
from kstreams_repl.kafka.partitioning import partitioner
from kstreams_repl.runtime.collector import Send, SendMany
from kstreams_repl.types import Headers, TopicPartition

ProductionHandler = Callable[[str, Exception], bool]
"""(topic, error) -> whether to go on without the record."""

_FULL_SECONDS = 60.0
_ANY_PARTITION = -1
_NOW = 0
"""librdkafka reads the timestamp 0 as "now", so that a record of the year 1970's first millisecond is sent as of its second."""


class KafkaRecordCollector:
    """`runtime.collector.RecordCollector` over a producer.

    Args:
        producer: the client's producer.
        count: number of partitions of a topic; raises UnknownTopicError.
        changelogs: real names of changelog topics.
        track: learn changelog positions from delivery reports (exactly once).
        on_error: decides about a record that cannot be sent; None fails.
    """

    def __init__(
        self,
        producer: Any,
        *,
        count: Callable[[str], int],
        changelogs: frozenset[str] = frozenset(),
        track: bool = True,
        on_error: ProductionHandler | None = None,
    ) -> None:
        self._producer = producer
        self._count = count
        self._counts: dict[str, int] = {}
        self._places: dict[str, Callable[[bytes], int]] = {}
        self._changelogs = changelogs
        self._track = track
        self._on_error = on_error
        self._failed: KStreamsError | None = None
        self._seals: list[Callable[[], None]] = []
        self._positions: dict[TopicPartition, int] = {}
        self.dropped = 0

    # ---- RecordCollector

    def partitions(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._count(topic)
        return count

    def partition_of(self, topic: str, key: bytes) -> int:
        place = self._places.get(topic)
        if place is None:
            place = self._places[topic] = partitioner(self.partitions(topic))
        return place(key)

    def sender(self, topic: str) -> Send:
        return self.senders(topic)[0]

    def senders(self, topic: str) -> tuple[Send, SendMany]:
        self.partitions(topic)
        if self._track and topic in self._changelogs:
            return self._changelog_senders(topic)
        produce, refused = self._producer.produce, self._refused

        def send(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            try:
                if headers:
                    produce(
                        topic, value, key, _ANY_PARTITION if partition is None else partition, None, None, timestamp or 1, headers
                    )
                else:
                    produce(topic, value, key, _ANY_PARTITION if partition is None else partition, None, None, timestamp or 1)
            except Exception as error:
                refused(error, topic, key, value, timestamp, headers, partition)

        return send, self._columns(topic)

    # ---- commit

    def seal(self) -> None:
        """Send what changelog senders hold back, with the callbacks that tell the positions. Flush the producer after it."""
        for release in self._seals:
            release()

    def take_positions(self) -> dict[TopicPartition, int]:
        """Offset after the last record of each changelog partition written since the last call."""
        positions, self._positions = self._positions, {}
        return positions

    def check(self) -> None:
        """Raise the first delivery error met so far."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def delivery_failed(self, error: Any, message: Any) -> None:
        """The producer's callback for records that could not be delivered (at least once)."""
        if error is None:
            return
        found = describe_delivery(error, message)
        if self._on_error is not None and self._on_error(str(message.topic()), found):
            self.dropped += 1
        elif self._failed is None:
            self._failed = found

    # ---- inside

    def _columns(self, topic: str) -> SendMany:
        """The loop around the client's call: nothing else happens per record."""
        produce, refused = self._producer.produce, self._refused

        def send_many(
            keys: Sequence[bytes | None],
            values: Sequence[bytes | None],
            timestamps: Sequence[int],
            headers: Sequence[Headers] | None,
            partitions: int | Sequence[int] | None,
        ) -> None:
            one = _ANY_PARTITION if partitions is None else partitions if isinstance(partitions, int) else None
            places = repeat(one) if one is not None else partitions
            own_headers: Iterable[Any] = repeat(None) if headers is None else headers
            rows = zip(keys, values, timestamps, own_headers, places, strict=False)  # type: ignore[arg-type]
            while True:
                try:
                    for key, value, timestamp, own, place in rows:
                        if own:
                            produce(topic, value, key, place, None, None, timestamp or 1, own)
                        else:
                            produce(topic, value, key, place, None, None, timestamp or 1)
                    return
                except Exception as error:
                    refused(error, topic, key, value, timestamp, own or [], place)

        return send_many

    def _changelog_senders(self, topic: str) -> tuple[Send, SendMany]:
        produce, refused, learnt = self._producer.produce, self._refused, self._learnt
        columns = self._columns(topic)
        held: tuple[Any, ...] | None = None

        def send(
            key: bytes | None, value: bytes | None, timestamp: int | None, headers: Headers, partition: int | None = None
        ) -> None:
            nonlocal held
            before, held = held, (topic, value, key, partition, None, None, _NOW if timestamp is None else timestamp or 1)
            if before is not None:
                try:
                    produce(*before)
                except Exception as error:
                    refused(error, topic, before[2], before[1], before[6], [], before[3])

        def send_many(
            keys: Sequence[bytes | None],
            values: Sequence[bytes | None],
            timestamps: Sequence[int],
            headers: Sequence[Headers] | None,
            partitions: int | Sequence[int] | None,
        ) -> None:
            if keys:
                send(keys[0], values[0], timestamps[0], [], partitions)  # type: ignore[arg-type]
            if len(keys) > 1:
                send(keys[-1], values[-1], timestamps[-1], [], partitions)  # type: ignore[arg-type]
                columns(keys[1:-1], values[1:-1], timestamps[1:-1], None, partitions)

        def release() -> None:
            nonlocal held
            if held is not None:
                last, held = held, None
                try:
                    produce(*last[:4], None, learnt, last[6])
                except Exception as error:
                    refused(error, topic, last[2], last[1], last[6], [], last[3], learnt)

        self._seals.append(release)
        return send, send_many

    def _learnt(self, error: Any, message: Any) -> None:
        if error is not None:
            self.delivery_failed(error, message)
            return
        self._positions[TopicPartition(message.topic(), message.partition())] = message.offset() + 1

    def _refused(
        self,
        error: Exception,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        partition: int | None,
        callback: Any = None,
    ) -> None:
        """`produce` raised: wait for room when the buffer is full, else ask the handler."""
        deadline = time.monotonic() + _FULL_SECONDS
        while isinstance(error, BufferError):
            if time.monotonic() > deadline:
                raise ProductionError(
                    f"the send buffer stayed full for {_FULL_SECONDS:.0f} s",
                    hint="the broker does not take records; see its log",
                    topic=topic,
                ) from error
            self._producer.poll(0.05)
            try:
                where = _ANY_PARTITION if partition is None else partition
                self._producer.produce(topic, value, key, where, None, callback, timestamp, headers or None)
                return
            except Exception as again:
                error = again
        found = send_errors(error, topic, self._counts.get(topic))
        if self._on_error is not None and self._on_error(topic, found):
            self.dropped += 1
            return
        raise found from error


def counts_of(known: Mapping[str, int], ask: Callable[[str], int]) -> Callable[[str], int]:
    """Partition counts known at deploy; other topics (chosen per record) are asked for once."""

    def count(topic: str) -> int:
        found = known.get(topic)
        if found is not None:
            return found
        found = ask(topic)
        if not found:
            raise UnknownTopicError(f"there is no topic {topic!r} to write to", hint="create it first", topic=topic)
        return found

    return count
