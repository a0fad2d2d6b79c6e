"""The writers and readers of the control journal.

`JournalControl` is the only writer of control keys. Opening it runs `init_transactions` on ``<application.id>-control``, which fences the
kernel that held the id before: a forgotten notebook cannot control an application that another one has attached to. `JournalReports`
writes the keys of one instance and never blocks. `JournalReader` follows the topic with ``read_committed``, so that it sees all records
of a command or none; `journal_state` interprets them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Message

from kstreams_repl.host.journal.journal_records import ControlRecord, InstanceRecord, encode
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import (
    ClientEvents,
    ClientSettings,
    make_consumer,
    make_producer,
    make_transactional_producer,
    take_transactional_id,
)
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata, send_offsets
from kstreams_repl.host.kafka.failures import is_fenced, translate
from kstreams_repl.host.kafka.group_offsets import assign
from kstreams_repl.host.kafka.internal_topics import ensure_internal_topics, journal_topic, journal_topic_name
from kstreams_repl.host.kafka.reading import READ_GROUP, is_passing_for_reader, positions
from kstreams_repl.system.errors import BrokerUnavailableError, KStreamsError, ProducerFencedError
from kstreams_repl.system.types import Headers, TopicPartition

_LOG = logging.getLogger("kstreams_repl.host.kafka")
CALL_SECONDS = 10.0
TRANSACTION_MS = 10_000
_ABORT_SECONDS = 1.0
_TAPPED = b"tapped/"
TopicRecord = tuple[str, int, bytes | None, bytes | None, int] | tuple[str, int, bytes | None, bytes | None, int, Headers]
"""A record of another topic within a control transaction: topic, partition, key, value, timestamp, and headers if it has any."""


def ensure_journal(admin: Admin, application_id: str) -> str:
    """Create the application's journal topic if it does not exist, and return its name."""
    ensure_internal_topics(admin, [journal_topic(application_id)])
    return journal_topic_name(application_id)


def generation_in_force(settings: ClientSettings, application_id: str) -> int | None:
    """Return the current generation according to the application's journal; None if it has none or cannot be read."""
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
    """The writer of control keys. An application has one at any time: opening a new one fences the previous one.

    Raises (all methods):
        ProducerFencedError: another session has attached to the application; this object cannot be used any more.
        BrokerUnavailableError: the broker did not answer in time. It is unknown whether the write happened: open a new control and read.
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
        topic_records: Iterable[TopicRecord] = (),
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        """Write the records in one transaction and return when it is committed: readers see all of them or none.

        Args:
            topic_records: records of other topics in the same transaction.
            offsets: offsets to commit for the application's group in the same transaction.
        """
        if self._broken is not None:
            raise self._broken
        try:
            self._producer.begin_transaction()
            for other in topic_records:
                self._produce(*other)
            for record in records:
                key, value = encode(record)
                self._producer.produce(self._topic, key=key, value=value, partition=0)
            if offsets:
                send_offsets(self._producer, offsets, self._group(), self._seconds)
            self._producer.commit_transaction(self._seconds)
        except KafkaException as error:
            failed = self._failed(error, "writing to the journal")
            with suppress(KafkaException):  # an open transaction blocks readers; the broker aborts it after its timeout if this fails
                self._producer.abort_transaction(_ABORT_SECONDS)
            raise failed from error

    def _group(self) -> object:
        consumer = make_consumer(self._settings, group_id=self.application_id, isolation="read_committed", events=self._events)
        try:
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def _produce(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None = None
    ) -> None:
        while True:
            try:
                self._producer.produce(topic, key=key, value=value, partition=partition, timestamp=timestamp, headers=headers or None)
                return
            except BufferError:  # the client's queue is full
                self._producer.poll(0.1)

    @property
    def broken(self) -> KStreamsError | None:
        """The error that made this object unusable; None if it is usable."""
        return self._broken

    def close(self) -> None:
        """Drop the connection; written records stay in effect. Never blocks, not even when the broker is down."""
        _drop(self)

    def _failed(self, error: KafkaException, doing: str) -> KStreamsError:
        """Make this object unusable and return the error: after an unanswered commit only the journal shows what happened."""
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
    """The writer of one instance's reports and claims, or of a client's orders and taps. `send` only queues; delivery happens in the
    background.
    """

    def __init__(self, settings: ClientSettings, application_id: str) -> None:
        self._servers = settings.bootstrap_servers
        self._error: KafkaException | KafkaError | None = None
        self._topic = journal_topic_name(application_id)
        self.failed = 0
        """Number of undelivered reports. They are heartbeats, so the next one replaces a lost one."""
        self._producer = make_producer(settings, on_delivery_error=self._on_failure, linger_ms=0, message_timeout_ms=30_000)

    def send(self, record: InstanceRecord) -> None:
        """Queue a record; drop it when the queue is full (the broker has been down for long) or the client rejects it."""
        self._send(*encode(record))

    def remove(self, key: str) -> None:
        """Queue the removal of a record, as `send` does."""
        self._send(key.encode(), None)

    def _send(self, key: bytes, value: bytes | None) -> None:
        try:
            try:
                self._producer.produce(self._topic, key=key, value=value, partition=0)
            except BufferError:
                self.failed += 1
            self._producer.poll(0)
        except KafkaException as error:
            self.failed += 1
            self._error = error
            _LOG.warning("a report of %d bytes was not sent: %s", len(value or b""), error)

    def flush(self, seconds: float = CALL_SECONDS) -> bool:
        """Wait up to ``seconds`` until everything queued is delivered; return False on timeout."""
        return bool(self._producer.flush(seconds) == 0)

    def confirm(self, doing: str, *, hint: str, seconds: float = CALL_SECONDS) -> None:
        """Wait until everything queued is delivered: what a client asks for is not replaced by a next report.

        Args:
            doing: what is written, as a participle, for the error.
            hint: for the error of a broker that does not answer.

        Raises:
            AuthorizationError: there is no right to write to the journal.
            BrokerUnavailableError: the broker did not confirm it in time.
        """
        try:
            delivered = self.flush(seconds)
        except (KafkaException, SystemError) as error:  # a fatal error of the client, at times in the place of a callback's result
            cause = error if isinstance(error, KafkaException) else error.__cause__
            if not isinstance(cause, KafkaException):
                raise
            raise translate(cause, doing, bootstrap_servers=self._servers, topic=self._topic) from error
        if self._error is not None:
            raise translate(self._error, doing, bootstrap_servers=self._servers, topic=self._topic)
        if not delivered or self.failed:
            raise BrokerUnavailableError(
                f"{doing}: waited {seconds:.0f} s for the broker to confirm a record of {self._topic}", hint=hint, topic=self._topic
            )

    def close(self) -> None:
        """Drop the connection without waiting; queued reports are lost (call `flush` first to deliver them)."""
        _drop(self)

    def _on_failure(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            self._error = error


class JournalReader:
    """A reader that follows an application's journal; `state` is its content so far. Not thread-safe.

    `poll` never blocks and costs a microsecond when there is nothing new, so a loop can call it in every round; a command arrives within
    milliseconds of its commit.

    Args:
        start: the first offset to read; earlier records are not known to this reader.
        reports: False skips the instances' reports without decoding them.
        tapped: True reads the values at tapped nodes, and nothing else; False skips them.
    """

    def __init__(
        self, settings: ClientSettings, application_id: str, *, start: int = 0, reports: bool = True, tapped: bool = False
    ) -> None:
        self.state = JournalState()
        self._tapped = tapped
        self._passed_over = (_TAPPED,) if reports else (_TAPPED, b"instance/")
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
        """Fold in the records that have arrived; return whether the state changed."""
        return self._fold(self._consume(500, 0))

    def wait(self, seconds: float) -> bool:
        """Do the same as `poll`, but wait up to ``seconds`` for a first record."""
        message = self._consumer.poll(seconds)
        return self._fold([message, *self._consume(500, 0)]) if message is not None else False

    def catch_up(self, admin: Admin, *, seconds: float = CALL_SECONDS) -> JournalState:
        """Read everything that was written before the call, and return the state.

        The target is the end of the log, not the committed end, which lags slightly behind an acknowledged commit; the call waits for a
        transaction that is open when it begins.

        Raises:
            UnknownTopicError: the application has no journal on this cluster.
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
                    hint="check that the broker is running",
                    bootstrap_servers=self._settings.bootstrap_servers,
                )
        return self.state

    @property
    def position(self) -> int:
        """The next offset to read, counting transaction markers."""
        return max(self._reached, self.state.position, positions(self._consumer, [self._at]).get(self._at, 0))

    def close(self) -> None:
        self._consumer.close()

    def _fold(self, messages: list[Message]) -> bool:
        changed, failed = False, None
        for message in messages:
            error = message.error()
            if error is None:
                key = message.key() or b""
                if not key.startswith(_TAPPED) if self._tapped else key.startswith(self._passed_over):
                    self._reached = message.offset() + 1
                    continue
                changed |= self.state.apply(message.key(), message.value(), message.offset())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reached = message.offset()
            elif error.code() == KafkaError._AUTO_OFFSET_RESET or not is_passing_for_reader(error):
                failed = error
        if failed is not None:  # after the records of the same poll, which would otherwise be lost
            servers = self._settings.bootstrap_servers
            raise translate(failed, "reading the journal", bootstrap_servers=servers, topic=self._at.topic)
        return changed


def _drop(writer: JournalControl | JournalReports) -> None:
    """Drop a producer without closing it: its own close() flushes without a time limit and hangs when the broker is down."""
    producer = writer.__dict__.pop("_producer", None)
    if producer is not None:
        producer.purge()
