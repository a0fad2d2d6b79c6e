"""The record collector: from a task's output to librdkafka's send buffers.

Actors: *senders* (one closure per sink or changelog, made at build time) and the producer, whose own accumulator is the output
buffer. Back-pressure: a full buffer blocks the sender until there is room. Invariant: after `seal` and a flush every record is
acknowledged or an error is raised, and `positions` holds the offset after the last record of each changelog. Under exactly once
that offset comes from the delivery report of the last changelog record alone: a changelog sender holds one record back, and
`seal` sends it with a callback. (Reports for all records would cost a Python call per record.) The production exception handler
of the site (`runtime.collector.Site`) decides on a record that the broker rejects, but only in a *careful* instance, where every
record has a delivery report; see `instance.failures.rejected_records`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any

from kstreams_repl.errors import KStreamsError, OutputRetryError, ProductionError, StreamsProcessingError, UnknownTopicError
from kstreams_repl.instance.failures.rejected_records import OutputRefusedError, Refusals, identity
from kstreams_repl.kafka.delivery_errors import describe_delivery, is_consequence, needs_abort, send_errors, serve
from kstreams_repl.kafka.partitioning import partitioner, partitioner_of_columns
from kstreams_repl.runtime.collector import Direct, Send, SendMany, Site, one_by_one
from kstreams_repl.runtime.handlers import ErrorContext, Response
from kstreams_repl.types import Headers, TopicPartition

_FULL_SECONDS = 60.0
_ANY_PARTITION = -1
_NOW = 0
"""librdkafka reads the timestamp 0 as "now", so a record of the first millisecond of 1970 is sent with the timestamp of its
second.
"""


class KafkaRecordCollector:
    """`runtime.collector.RecordCollector` over a producer.

    Args:
        producer: the client's producer.
        count: returns the number of partitions of a topic; raises UnknownTopicError.
        changelogs: real names of changelog topics.
        track: learn changelog positions from delivery reports (exactly once).
        refusals: the slot's known rejected records; also says whether this instance is careful.
    """

    def __init__(
        self,
        producer: Any,
        *,
        count: Callable[[str], int],
        changelogs: frozenset[str] = frozenset(),
        track: bool = True,
        refusals: Refusals | None = None,
    ) -> None:
        self._producer = producer
        self._count = count
        self._counts: dict[str, int] = {}
        self._places: dict[str, Callable[[bytes], int]] = {}
        self._column_places: dict[str, Callable[[Sequence[bytes]], list[int]]] = {}
        self._changelogs = changelogs
        self._track = track
        self.refusals = refusals or Refusals()
        self.careful = self.refusals.careful
        self._failed: KStreamsError | None = None
        """Raised by the next `check`."""
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

    def partitions_of(self, topic: str, keys: Sequence[bytes]) -> list[int]:
        """Return `partition_of` for a column of keys."""
        place = self._column_places.get(topic)
        if place is None:
            place = self._column_places[topic] = partitioner_of_columns(self.partitions(topic))
        return place(keys)

    def sender(self, topic: str, site: Site | None = None) -> Send:
        return self.senders(topic, site)[0]

    def senders(self, topic: str, site: Site | None = None) -> tuple[Send, SendMany]:
        self.partitions(topic)
        if self.careful:
            careful = self._careful_sender(topic, site)
            return careful, one_by_one(careful)
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
                refused(error, topic, site, key, value, timestamp, headers, partition)

        return send, self._columns(topic)

    def direct(self, topic: str, site: Site | None = None) -> Direct | None:
        self.partitions(topic)
        if self.careful or (self._track and topic in self._changelogs):
            return None

        def refused(error: Exception, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
            self._refused(error, topic, site, key, value, timestamp, headers, None)

        return Direct(self._producer.produce, refused)

    # ---- commit

    def seal(self) -> None:
        """Send the records that changelog senders hold back, with the callbacks that report positions. Flush the producer after
        it.
        """
        for release in self._seals:
            release()

    def take_positions(self) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each changelog partition written since the last call, if it was reported;
        without it a store's position stays, and a few more records are read again after a crash.
        """
        positions, self._positions = self._positions, {}
        return positions

    def check(self) -> None:
        """Raise the first delivery error met so far."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def delivery_failed(self, error: Any, message: Any) -> None:
        """Handle an undelivered record, as the producer's callback; the source record it was made from is not known here."""
        if error is None or self._failed is not None:
            return
        found = describe_delivery(error, str(message.topic()))
        if isinstance(found, ProductionError):
            found = OutputRefusedError(found.message, hint=found.hint, topic=message.topic())
        self._failed = found

    # ---- internals

    def _columns(self, topic: str) -> SendMany:
        """Return the client's call mapped over columns, so that no Python code runs per record."""
        produce, refused = self._producer.produce, self._refused

        def send_many(
            keys: Sequence[bytes | None],
            values: Sequence[bytes | None],
            timestamps: Sequence[int],
            headers: Sequence[Headers] | None,
            partitions: int | Sequence[int] | None,
        ) -> None:
            one = _ANY_PARTITION if partitions is None else partitions if isinstance(partitions, int) else None
            places: Iterable[int] = repeat(one) if one is not None else partitions  # type: ignore[assignment]
            sent = iter(values)
            at: Iterable[int] = timestamps if all(timestamps) else [timestamp or 1 for timestamp in timestamps]
            columns: list[Iterable[Any]] = [repeat(topic), sent, keys, places, repeat(None), repeat(None), at]
            if headers is not None:
                columns.append(own or None for own in headers)
            calls = map(produce, *columns)
            while True:
                try:
                    deque(calls, 0)
                    return
                except Exception as error:
                    row = len(values) - length_hint(sent) - 1
                    place = one if one is not None else partitions[row]  # type: ignore[index]
                    own = [] if headers is None else headers[row]
                    refused(error, topic, None, keys[row], values[row], timestamps[row], own, place)

        return send_many

    def _changelog_senders(self, topic: str) -> tuple[Send, SendMany]:
        produce, refused, learnt = self._producer.produce, self._refused, self._learnt
        columns = self._columns(topic)
        held: tuple[Any, ...] | None = None

        def send(
            key: bytes | None, value: bytes | None, timestamp: int | None, headers: Headers, partition: int | None = None
        ) -> None:
            nonlocal held
            at = _NOW if timestamp is None else timestamp or 1
            before, held = held, (topic, value, key, partition, None, None, at, headers or None)
            if before is not None:
                try:
                    produce(*before)
                except Exception as error:
                    refused(error, topic, None, before[2], before[1], before[6], before[7] or [], before[3])

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
                    produce(*last[:4], learnt, None, *last[6:])
                except Exception as error:
                    refused(error, topic, None, last[2], last[1], last[6], last[7] or [], last[3], learnt)

        self._seals.append(release)
        return send, send_many

    def _careful_sender(self, topic: str, site: Site | None) -> Send:
        """Return a sender whose records each have a delivery report with their source record; known rejected records are left
        out.
        """
        produce, refusals, is_changelog = self._producer.produce, self.refusals, self._track and topic in self._changelogs

        def send(
            key: bytes | None, value: bytes | None, timestamp: int | None, headers: Headers, partition: int | None = None
        ) -> None:
            at = _NOW if timestamp is None else timestamp or 1
            record = identity(topic, key, value, at, headers, partition)
            context = None if site is None else site.context()
            known = refusals.find(record)
            if known is not None and site is not None and context is not None:
                self._give_up(site, context, known)
                return

            def reported(error: Any, message: Any) -> None:
                if error is not None:
                    self._judge(error, topic, site, context, record)
                elif is_changelog:
                    self._learnt(None, message)

            where = _ANY_PARTITION if partition is None else partition
            try:
                produce(topic, value, key, where, reported, None, at, headers or None)
            except Exception as error:
                self._refused(error, topic, site, key, value, at, headers, partition, reported)

        return send

    def _judge(self, error: Any, topic: str, site: Site | None, context: ErrorContext | None, record: bytes) -> None:
        """Handle the delivery error of a careful instance's record."""
        found = describe_delivery(error, topic)
        if is_consequence(error) or (self._failed is not None and not isinstance(self._failed, OutputRefusedError)):
            self._failed = self._failed or OutputRefusedError(found.message, hint=found.hint, topic=topic)
            return
        if not isinstance(found, ProductionError) or site is None or context is None:
            self._failed = _without_site(found, topic)
            return
        try:
            response = site.decide(context, found)
        except Exception as raised:
            self._failed = _handler_raised(raised, found)
            return
        if response is Response.CONTINUE and not self._track:  # no other record is affected
            self._give_up(site, context, found)
        elif response is Response.CONTINUE:
            self.refusals.note(record, found)
            self._failed = OutputRefusedError(found.message, hint=found.hint, topic=topic)
        else:
            self._failed = _answered(response, found, context)

    def _give_up(self, site: Site, context: ErrorContext, error: KStreamsError) -> None:
        self.dropped += 1
        site.give_up(context, error)

    def _learnt(self, error: Any, message: Any) -> None:
        if error is not None:
            self.delivery_failed(error, message)
            return
        offset = message.offset()
        if offset is not None:  # None: the broker had the record from a request whose answer was lost; no offset is reported
            self._positions[TopicPartition(message.topic(), message.partition())] = offset + 1

    def _refused(
        self,
        error: Exception,
        topic: str,
        site: Site | None,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        partition: int | None,
        callback: Any = None,
    ) -> None:
        """Handle an error that `produce` raised: wait for room when the buffer is full, else call the handler."""
        deadline = time.monotonic() + _FULL_SECONDS
        while isinstance(error, BufferError):
            if time.monotonic() > deadline:
                raise ProductionError(
                    f"the send buffer stayed full for {_FULL_SECONDS:.0f} s",
                    hint="the broker does not take records; see its log",
                    topic=topic,
                ) from error
            serve(self._producer, 0.05)
            try:
                where = _ANY_PARTITION if partition is None else partition
                self._producer.produce(topic, value, key, where, callback, None, timestamp or 1, headers or None)
                return
            except Exception as again:
                error = again
        if self._track and needs_abort(error):
            serve(self._producer, 0)
            self.check()
            raise OutputRefusedError(
                f"the transaction took no record for {topic}: an earlier one was refused", topic=topic
            ) from error
        found = send_errors(error, topic, self._counts.get(topic))
        if not isinstance(found, ProductionError) or site is None:
            raise _without_site(found, topic) from error
        context = site.context()
        response = site.decide(context, found)
        if response is not Response.CONTINUE:
            raise _answered(response, found, context) from error
        self._give_up(site, context, found)


def _answered(response: Response, error: ProductionError, context: ErrorContext) -> KStreamsError:
    """Return the error for RETRY and FAIL, with the source record that the rejected record was made from."""
    kind = OutputRetryError if response is Response.RETRY else ProductionError
    at = f"\n  in node {context.node}, task {context.task}"
    if context.topic is not None:
        at += f", from the record at {context.topic}-{context.partition} offset {context.offset}"
    fields = {"node": context.node, "task": context.task, "topic": context.topic, "partition": context.partition}
    return kind(error.message + at, hint=error.hint, **fields, offset=context.offset, sink_topic=error.fields.get("topic"))


def _without_site(error: KStreamsError, topic: str) -> KStreamsError:
    """Return the error for a record without a site. No handler is called: a changelog must match its store, and a dead letter has
    no further destination.
    """
    if not isinstance(error, ProductionError):
        return error
    hint = f"{error.hint or 'see the broker'}; a changelog or a dead letter is never left out, whatever the handler says"
    return ProductionError(error.message, hint=hint, topic=topic)


def _handler_raised(raised: Exception, error: KStreamsError) -> KStreamsError:
    failed = ProductionError(
        raised.message
        if isinstance(raised, StreamsProcessingError)  # it names the handler and its record
        else f"the production exception handler raised {type(raised).__name__}: {raised}, when asked about: {error.message}",
        hint="a handler answers with a Response and does not raise",
        topic=error.fields.get("topic"),
    )
    failed.__cause__ = raised
    return failed


def counts_of(known: Mapping[str, int], ask: Callable[[str], int]) -> Callable[[str], int]:
    """Return a lookup of partition counts: those known at deploy; other topics (chosen per record) are requested once."""

    def count(topic: str) -> int:
        found = known.get(topic)
        if found is not None:
            return found
        found = ask(topic)
        if not found:
            raise UnknownTopicError(f"there is no topic {topic!r} to write to", hint="create it first", topic=topic)
        return found

    return count
