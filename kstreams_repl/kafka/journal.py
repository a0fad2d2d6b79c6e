"""The control journal on the broker: who writes it, who reads it.

`JournalControl` is the one writer of control keys. Opening it runs `init_transactions` on ``<application.id>-control``, which fences the
kernel that held it before: a notebook that was forgotten cannot command an application that another one attached to. `JournalReports` is
an instance's writer of its own keys; it never waits. `JournalReader` follows the topic with ``read_committed``, so a command of several
records is seen whole or not at all; what the records mean is `journal_state`'s business.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from kstreams_repl.errors import BrokerUnavailableError, KStreamsError, ProducerFencedError
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import (
    ClientEvents,
    ClientSettings,
    make_consumer,
    make_producer,
    make_transactional_producer,
    take_transactional_id,
)
from kstreams_repl.kafka.failures import is_fenced, translate
from kstreams_repl.kafka.group_offsets import OffsetAndMetadata, assign, client_offsets
from kstreams_repl.kafka.internal_topics import ensure_internal_topics, journal_topic, journal_topic_name
from kstreams_repl.kafka.journal_records import ControlRecord, InstanceRecord, encode
from kstreams_repl.kafka.journal_state import JournalState
from kstreams_repl.kafka.reading import READ_GROUP, positions
from kstreams_repl.types import TopicPartition

_LOG = logging.getLogger("kstreams_repl.kafka")
CALL_SECONDS = 10.0
TRANSACTION_MS = 10_000
_ABORT_SECONDS = 1.0
Beside = tuple[str, int, bytes, bytes | None, int]
"""A record of another topic that goes into a control transaction: topic, partition, key, value, timestamp."""


def ensure_journal(admin: Admin, application_id: str) -> str:
    """Creates the application's journal topic when it is missing, and returns its name."""
    ensure_internal_topics(admin, [journal_topic(application_id)])
    return journal_topic_name(application_id)


def generation_in_force(settings: ClientSettings, application_id: str) -> int | None:
    """The generation that the application's journal tells now; None when it tells none, or cannot be read."""
    try:
        reader = JournalReader(settings, application_id, reports=False)
        try:
            desired = reader.catch_up(Admin(settings)).desired
        finally:
            reader.close()
    except KStreamsError:
        return None
    return None if desired is None else desired.generation


class JournalControl:
    """The writer of control keys; there is one per application at any time, and the latest to open wins.

    Raises (all methods):
        ProducerFencedError: somebody else has attached to the application since; this object is of no more use.
        BrokerUnavailableError: the broker did not answer in time. Whether the write happened is unknown: open a new control and read.
    """

    def __init__(self, settings: ClientSettings, application_id: str, *, transaction_timeout_ms: int = TRANSACTION_MS) -> None:
        self.application_id = application_id
        self._settings = settings
        self._topic = journal_topic_name(application_id)
        self._events = ClientEvents()
        self._broken: KStreamsError | None = None
        self._seconds = max(CALL_SECONDS, transaction_timeout_ms / 1000)
        self._producer = make_transactional_producer(
            settings,
            transactional_id=f"{application_id}-control",
            transaction_timeout_ms=transaction_timeout_ms,
            events=self._events,
            linger_ms=0,
        )
        try:
            take_transactional_id(self._producer, CALL_SECONDS)
        except KafkaException as error:
            raise self._failed(error, "taking control of the application") from error

    def write(
        self,
        *records: ControlRecord,
        beside: Iterable[Beside] = (),
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        """Writes the records in one transaction: readers see all of them or none. Returns when they are committed.

        Args:
            beside: records of other topics in the same transaction.
            offsets: the application's group commits these in the same transaction.
        """
        if self._broken is not None:
            raise self._broken
        try:
            self._producer.begin_transaction()
            for topic, partition, key, value, timestamp in beside:
                self._produce(topic, partition, key, value, timestamp)
            for record in records:
                key, value = encode(record)
                self._producer.produce(self._topic, key=key, value=value, partition=0)
            if offsets:
                self._producer.send_offsets_to_transaction(client_offsets(offsets), self._group(), self._seconds)
            self._producer.commit_transaction(self._seconds)
        except KafkaException as error:
            failed = self._failed(error, "writing to the journal")
            with suppress(KafkaException):  # readers would wait for what is open; a broker that is away ends it after its time
                self._producer.abort_transaction(_ABORT_SECONDS)
            raise failed from error

    def _group(self) -> Any:
        consumer = make_consumer(self._settings, group_id=self.application_id, isolation="read_committed", events=self._events)
        try:
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def _produce(self, topic: str, partition: int, key: bytes, value: bytes | None, timestamp: int) -> None:
        while True:
            try:
                self._producer.produce(topic, key=key, value=value, partition=partition, timestamp=timestamp)
                return
            except BufferError:  # the client's queue is full
                self._producer.poll(0.1)

    @property
    def broken(self) -> KStreamsError | None:
        """Why this object is of no more use; None while it is."""
        return self._broken

    def close(self) -> None:
        """Lets go of the connection; what was written stays in force. Never waits, for a broker that is away least of all."""
        _drop(self)

    def _failed(self, error: KafkaException, doing: str) -> KStreamsError:
        """Any failure ends this object: after an unanswered commit only the journal itself can tell what happened."""
        if is_fenced(error):
            self._broken = ProducerFencedError(
                f"{doing}: another session has taken control of {self.application_id!r}",
                hint="attach to the application again to take control back",
                topic=self._topic,
            )
        else:
            self._broken = translate(
                error, doing, bootstrap_servers=self._settings.bootstrap_servers, topic=self._topic, reason=self._events.last
            )
        return self._broken


class JournalReports:
    """An instance's writer: reports and claims under its own keys. `send` only queues; delivery goes on in the background."""

    def __init__(self, settings: ClientSettings, application_id: str) -> None:
        self._topic = journal_topic_name(application_id)
        self.failed = 0
        """Reports that could not be delivered; they are heartbeats, the next one says the same."""
        self._producer = make_producer(settings, on_delivery_error=self._on_failure, linger_ms=0, message_timeout_ms=30_000)

    def send(self, record: InstanceRecord) -> None:
        """Queues a record; drops it when the queue is full (the broker has been away for long) or the client does not take it."""
        key, value = encode(record)
        try:
            try:
                self._producer.produce(self._topic, key=key, value=value, partition=0)
            except BufferError:
                self.failed += 1
            self._producer.poll(0)
        except KafkaException as error:
            self.failed += 1
            _LOG.warning("a report of %d bytes was not sent: %s", len(value), error)

    def flush(self, seconds: float = CALL_SECONDS) -> bool:
        """Waits until everything queued is delivered; False when that took too long."""
        return bool(self._producer.flush(seconds) == 0)

    def close(self) -> None:
        """Lets go at once; reports still queued are dropped (`flush` first to keep them)."""
        _drop(self)

    def _on_failure(self, error: KafkaError | None, message: Message) -> None:
        self.failed += error is not None


class JournalReader:
    """Follows an application's journal; `state` is what it says up to now.

    `poll` never waits and costs a microsecond when there is nothing new, so a loop can call it every round; a command reaches it within
    milliseconds of its commit. Not for several threads.

    Args:
        start: the offset to begin at; what was written before it is not known then.
        reports: False leaves out what instances report, unread.
    """

    def __init__(self, settings: ClientSettings, application_id: str, *, start: int = 0, reports: bool = True) -> None:
        self.state = JournalState()
        self._passed_over = () if reports else (b"instance/",)
        self._settings = settings
        self._events = ClientEvents()
        self._at = TopicPartition(journal_topic_name(application_id), 0)
        self._consumer = make_consumer(
            settings,
            group_id=READ_GROUP,
            events=self._events,
            fetch_wait_max_ms=500,
            queued_max_messages_kbytes=4096,
            enable_partition_eof=True,
        )
        self._consume = self._consumer.consume
        self._reached = 0
        assign(self._consumer, {self._at: start})

    def poll(self) -> bool:
        """Folds in what has arrived; whether that changed the state."""
        return self._fold(self._consume(500, 0))

    def wait(self, seconds: float) -> bool:
        """`poll`, but waits up to ``seconds`` for a first record."""
        message = self._consumer.poll(seconds)
        return self._fold([message, *self._consume(500, 0)]) if message is not None else False

    def catch_up(self, admin: Admin, *, seconds: float = CALL_SECONDS) -> JournalState:
        """Reads everything that was written before the call, and returns the state.

        The target is the end of the log, not the committed end, which lags a moment behind an acknowledged commit; a transaction that is
        open at the call is waited for.

        Raises:
            UnknownTopicError: the application has no journal: there is none of that name on this cluster.
            BrokerUnavailableError: the end was not reached in time.
        """
        admin.partitions(self._at.topic)
        end = admin.end_offsets([self._at], isolation="read_uncommitted")[self._at]
        deadline = time.monotonic() + seconds
        while self.position < end:
            self.wait(0.05)
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"the journal {self._at.topic!r} was read to offset {self.position} of {end} in {seconds:.0f} s",
                    hint="check that the broker runs",
                    bootstrap_servers=self._settings.bootstrap_servers,
                )
        return self.state

    @property
    def position(self) -> int:
        """The next offset to read; markers of transactions count."""
        return max(self._reached, self.state.position, positions(self._consumer, [self._at]).get(self._at, 0))

    def close(self) -> None:
        self._consumer.close()

    def _fold(self, messages: list[Message]) -> bool:
        changed, failed = False, None
        for message in messages:
            error = message.error()
            if error is None:
                if self._passed_over and (message.key() or b"").startswith(self._passed_over):
                    self._reached = message.offset() + 1
                    continue
                changed |= self.state.apply(message.key(), message.value(), message.offset())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reached = message.offset()
            elif error.code() == KafkaError._AUTO_OFFSET_RESET or not error.retriable() and error.code() not in _PASSING:
                failed = error
        if failed is not None:  # what came with it is folded in first: it does not come again
            servers = self._settings.bootstrap_servers
            raise translate(failed, "reading the journal", bootstrap_servers=servers, topic=self._at.topic)
        return changed


def _drop(writer: JournalControl | JournalReports) -> None:
    """Gives a producer up by dropping it: its own close() flushes without a bound and hangs when the broker is away."""
    producer = writer.__dict__.pop("_producer", None)
    if producer is not None:
        producer.purge()


_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
