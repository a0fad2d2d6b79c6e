"""The record collector: from a task's output to librdkafka's send buffers.

Actors: *senders* (one closure per sink or changelog, made at build time) and the producer, whose own accumulator is the output
buffer. Back-pressure: a full buffer blocks the sender until there is room. Invariant: after `seal` and a flush every record is
acknowledged or an error is raised, and `positions` holds the offset after the last record of each changelog. Under exactly once
that offset comes from the delivery report of the last changelog record alone: a changelog sender holds one record back, and
`seal` sends it with a callback. (Reports for all records would cost a Python call per record.) Rejected records are handled by
`production_errors`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING

from kstreams_repl.engine.commit.offset_metadata import UNKNOWN
from kstreams_repl.engine.partitioning import partitioner, partitions_for_keys
from kstreams_repl.engine.runtime.nodes.collector import Direct, Send, SendMany, Site, one_by_one
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.host.instance.failures.rejected_records import RejectedRecords, identity
from kstreams_repl.host.instance.tasks.production_errors import ProductionErrors
from kstreams_repl.system.errors import UnknownTopicError
from kstreams_repl.system.types import Headers, TopicPartition
from kstreams_repl.table_files.instance_tables import InstanceTables, TaskRows

if TYPE_CHECKING:
    from kstreams_repl.host.kafka.clients import Message, Producer
    from kstreams_repl.table_files.row_batches import Misfit

_ANY_PARTITION = -1
_NOW = 0
"""librdkafka reads the timestamp 0 as "now", so a record of the first millisecond of 1970 is sent with the timestamp of its
second.
"""


class KafkaRecordCollector:
    """`engine.runtime.nodes.collector.RecordCollector` over a producer.

    Args:
        producer: the client's producer.
        count: returns the number of partitions of a topic; raises UnknownTopicError.
        changelogs: real names of changelog topics.
        track: learn changelog positions from delivery reports (exactly once).
        rejected: the slot's known rejected records; also says whether this instance is careful.
        tables: the instance's table sinks.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        count: Callable[[str], int],
        changelogs: frozenset[str] = frozenset(),
        track: bool = True,
        rejected: RejectedRecords | None = None,
        tables: InstanceTables | None = None,
    ) -> None:
        self._producer = producer
        self.tables = tables or InstanceTables("")
        self._count = count
        self._counts: dict[str, int] = {}
        self._partitioners: dict[str, Callable[[bytes], int]] = {}
        self._changelogs = changelogs
        self._track = track
        self.rejected = rejected or RejectedRecords()
        self.careful = self.rejected.careful
        self.errors = ProductionErrors(producer, self.rejected, self._counts, transactional=track)
        self._seals: list[Callable[[], None]] = []
        self._positions: dict[TopicPartition, int] = {}

    # ---- RecordCollector

    def partitions(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._count(topic)
        return count

    def partition_of(self, topic: str, key: bytes) -> int:
        partition_of = self._partitioners.get(topic)
        if partition_of is None:
            partition_of = self._partitioners[topic] = partitioner(self.partitions(topic))
        return partition_of(key)

    def partitions_of(self, topic: str, keys: Sequence[bytes]) -> list[int]:
        """Return `partition_of` for a column of keys."""
        return partitions_for_keys(keys, self.partitions(topic))

    def sender(self, topic: str, site: Site | None = None) -> Send:
        return self.senders(topic, site)[0]

    def senders(self, topic: str, site: Site | None = None) -> tuple[Send, SendMany]:
        self.partitions(topic)
        if self.careful:
            careful = self._careful_sender(topic, site)
            return careful, one_by_one(careful)
        if self._track and topic in self._changelogs:
            return self._changelog_senders(topic)
        produce, failed = self._producer.produce, self.errors.produce_failed

        def send(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            try:
                if headers:
                    produce(
                        topic, value, key, _ANY_PARTITION if partition is None else partition, None, None, timestamp or 1, headers
                    )
                else:
                    produce(topic, value, key, _ANY_PARTITION if partition is None else partition, None, None, timestamp or 1)
            except Exception as error:
                failed(error, topic, site, key, value, timestamp, headers, partition)

        return send, self._columns(topic)

    def direct(self, topic: str, site: Site | None = None) -> Direct | None:
        self.partitions(topic)
        if self.careful or (self._track and topic in self._changelogs):
            return None

        def failed(
            error: Exception, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int
        ) -> None:
            at = None if partition == _ANY_PARTITION else partition
            self.errors.produce_failed(error, topic, site, key, value, timestamp, headers, at)

        return Direct(self._producer.produce, failed, earliest=1, copies=True)

    def rows(
        self, node: str, table: TableFiles, partition: int, misfit: Misfit, context: Callable[[], object] | None = None
    ) -> TaskRows:
        return self.tables.rows(node, table, partition, misfit, context)

    # ---- commit

    def seal(self) -> None:
        """Send the records that changelog senders hold back, with the callbacks that report positions. Flush the producer after
        it.
        """
        for release in self._seals:
            release()

    def take_positions(self) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each changelog partition written since the last call. It is `UNKNOWN` if it was
        not reported: a store's position stays, and a few more records are read again after a crash.
        """
        positions, self._positions = self._positions, {}
        return positions

    def check(self) -> None:
        """Raise the first delivery error met so far."""
        self.errors.check()

    def delivery_failed(self, error: object, message: object) -> None:
        """Handle an undelivered record, as the producer's callback; the source record it was made from is not known here."""
        self.errors.delivery_failed(error, message)

    # ---- internals

    def _columns(self, topic: str) -> SendMany:
        """Return the client's call mapped over columns, so that no Python code runs per record."""
        produce, failed = self._producer.produce, self.errors.produce_failed

        def send_many(
            keys: Sequence[bytes | None],
            values: Sequence[bytes | None],
            timestamps: Sequence[int],
            headers: Sequence[Headers] | None,
            partitions: int | Sequence[int] | None,
        ) -> None:
            one = _ANY_PARTITION if partitions is None else partitions if isinstance(partitions, int) else None
            targets: Iterable[int] = repeat(one) if one is not None else partitions  # type: ignore[assignment]
            sent = iter(values)
            stamps: Iterable[int] = timestamps if all(timestamps) else [timestamp or 1 for timestamp in timestamps]
            columns: list[Iterable[object]] = [repeat(topic), sent, keys, targets, repeat(None), repeat(None), stamps]
            if headers is not None:
                columns.append(own or None for own in headers)
            calls = map(produce, *columns)
            while True:
                try:
                    deque(calls, 0)
                    return
                except Exception as error:
                    row = len(values) - length_hint(sent) - 1
                    target = one if one is not None else partitions[row]  # type: ignore[index]
                    own = [] if headers is None else headers[row]
                    failed(error, topic, None, keys[row], values[row], timestamps[row], own, target)

        return send_many

    def _changelog_senders(self, topic: str) -> tuple[Send, SendMany]:
        produce, failed, delivered = self._producer.produce, self.errors.produce_failed, self._delivered
        columns = self._columns(topic)
        held: tuple[str, bytes | None, bytes | None, int | None, None, None, int, Headers | None] | None = None

        def send(
            key: bytes | None, value: bytes | None, timestamp: int | None, headers: Headers, partition: int | None = None
        ) -> None:
            nonlocal held
            stamp = _NOW if timestamp is None else timestamp or 1
            before, held = held, (topic, value, key, partition, None, None, stamp, headers or None)
            if before is not None:
                try:
                    produce(*before)
                except Exception as error:
                    failed(error, topic, None, before[2], before[1], before[6], before[7] or [], before[3])

        def send_many(
            keys: Sequence[bytes | None],
            values: Sequence[bytes | None],
            timestamps: Sequence[int],
            headers: Sequence[Headers] | None,
            partitions: int | Sequence[int] | None,
        ) -> None:
            if keys:
                send(keys[0], values[0], timestamps[0], headers[0] if headers else [], partitions)  # type: ignore[arg-type]
            if len(keys) > 1:
                send(keys[-1], values[-1], timestamps[-1], headers[-1] if headers else [], partitions)  # type: ignore[arg-type]
                columns(keys[1:-1], values[1:-1], timestamps[1:-1], headers[1:-1] if headers else None, partitions)

        def release() -> None:
            nonlocal held
            if held is not None:
                last, held = held, None
                try:
                    produce(*last[:4], delivered, None, *last[6:])
                except Exception as error:
                    failed(error, topic, None, last[2], last[1], last[6], last[7] or [], last[3], delivered)

        self._seals.append(release)
        return send, send_many

    def _careful_sender(self, topic: str, site: Site | None) -> Send:
        """Return a sender whose records each have a delivery report with their source record; known rejected records are left
        out.
        """
        produce, errors, is_changelog = self._producer.produce, self.errors, self._track and topic in self._changelogs

        def send(
            key: bytes | None, value: bytes | None, timestamp: int | None, headers: Headers, partition: int | None = None
        ) -> None:
            stamp = _NOW if timestamp is None else timestamp or 1
            record = identity(topic, key, value, stamp, headers, partition)
            context = None if site is None else site.context()
            known = errors.rejected.find(record)
            if known is not None and site is not None and context is not None:
                errors.give_up(site, context, known)
                return

            def reported(error: object, message: object) -> None:
                if error is not None:
                    errors.decide(error, topic, site, context, record)
                elif is_changelog:
                    self._delivered(None, message)

            where = _ANY_PARTITION if partition is None else partition
            try:
                produce(topic, value, key, where, reported, None, stamp, headers or None)
            except Exception as error:
                errors.produce_failed(error, topic, site, key, value, stamp, headers, partition, reported)

        return send

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.delivery_failed(error, message)
            return
        offset = message.offset()
        at = TopicPartition(message.topic(), message.partition())
        # None: the broker had the record from a request whose answer was lost; no offset is reported
        self._positions[at] = UNKNOWN if offset is None else offset + 1


def counts_of(known: Mapping[str, int], ask: Callable[[str], int]) -> Callable[[str], int]:
    """Return a lookup of partition counts: those known at deploy; other topics (chosen per record) are requested once."""

    def count(topic: str) -> int:
        found = known.get(topic)
        if found is not None:
            return found
        found = ask(topic)
        if not found:
            raise UnknownTopicError(f"cannot write to topic {topic!r}: it does not exist", hint="create the topic first", topic=topic)
        return found

    return count
