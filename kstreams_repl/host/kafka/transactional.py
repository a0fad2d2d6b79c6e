"""The calls of a transactional producer, with three outcomes: done, fenced, or in doubt.

librdkafka reports many kinds of errors; for exactly-once only these outcomes matter. *Fenced*: a newer producer uses the id, stop
(`ProducerFencedError`). *In doubt*: the call may or may not have taken effect, so this producer must not be used any more
(`TransactionDoubtError`). Only `initialise` is retried; calls that add to, commit or abort a transaction are made once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException

from kstreams_repl.host.kafka.call_timeout import CallGivenUp, WatchedCalls
from kstreams_repl.host.kafka.clients import ClientEvents, ClientSettings, make_transactional_producer, take_transactional_id
from kstreams_repl.host.kafka.delivery_errors import is_refusal
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata, send_offsets
from kstreams_repl.host.kafka.failures import error_of, is_fenced, translate
from kstreams_repl.system.errors import ConfigError, KStreamsError, ProducerFencedError, ProductionError
from kstreams_repl.system.types import TopicPartition

_INIT_SECONDS = 30.0
_GRACE_SECONDS = 0.5


class TransactionDoubtError(KStreamsError):
    """It is unknown whether a transactional call took effect. Close the producer and read the committed state again."""

    @property
    def refused(self) -> bool:
        """As `ProductionError.refused`."""
        return bool(self.fields.get("refused"))


class TransactionalProducer:
    """A producer with one transactional id. Not thread-safe.

    Args:
        timeout_ms: the broker aborts a transaction that is open for longer. A call that takes more than a part of it counts as in
            doubt: waiting longer is useless, and after a broker restart the client may wait for an answer that never comes.
    """

    def __init__(self, settings: ClientSettings, transactional_id: str, *, timeout_ms: int, **overrides: object) -> None:
        self.settings = settings
        self.transactional_id = transactional_id
        self.events = ClientEvents()
        self._seconds = 0.6 * timeout_ms / 1000
        self.client = make_transactional_producer(
            settings, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, events=self.events, **overrides
        )
        self.in_transaction = False
        self.waited = 0.0
        """Seconds spent in calls that wait for the broker."""
        self.meanwhile: Callable[[], bool] | None = None
        """Work to do while a call waits for the broker (`WatchedCalls.call`); it must not use this producer."""
        self._calls = WatchedCalls(f"transactions-{transactional_id}")

    def initialise(self) -> None:
        """Fence every older producer with this id and abort its open transaction."""
        self._repeat("taking the transactional id over", lambda: take_transactional_id(self.client, _INIT_SECONDS), _INIT_SECONDS)

    def begin(self) -> None:
        if not self.in_transaction:
            try:
                self.client.begin_transaction()
            except KafkaException as error:
                raise self._outcome(error, "beginning a transaction") from error
            self.in_transaction = True

    def flush(self, check: Callable[[], None] = lambda: None) -> None:
        """Wait until every record sent is acknowledged. `check` raises when a record was rejected; the remaining ones may then never be
        acknowledged.
        """
        began = time.monotonic()
        deadline, before = began + self._seconds, -1
        while remaining := self._flush():
            check()
            if remaining == before:
                self._check_spoiled()
            before = remaining
            if time.monotonic() > deadline:
                raise TransactionDoubtError(f"records sent were not acknowledged within {self._seconds:.0f} s", hint=self.events.last)
        self.waited += time.monotonic() - began

    def _check_spoiled(self) -> None:
        """Raise the error that made the open transaction fail.

        After such an error the client neither sends nor reports the queued records, and gives the reason only on the next transactional
        call: here a second `begin_transaction`, which it refuses in any case.
        """
        try:
            self.client.begin_transaction()
        except KafkaException as error:
            inside = error_of(error)
            if inside is not None and inside.txn_requires_abort():
                raise self._outcome(error, "sending records") from error

    def _flush(self) -> Any:
        try:
            return self._calls.call(lambda: self.client.flush(0.1), self._seconds + _GRACE_SECONDS, self.meanwhile)
        except CallGivenUp as error:
            raise TransactionDoubtError(f"sending records: {error}", hint=self.events.last) from error
        except KafkaException as error:
            raise self._outcome(error, "sending records") from error

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: object) -> None:
        self._once(
            "adding the input offsets to the transaction", lambda: send_offsets(self.client, offsets, group, self._seconds)
        )

    def commit(self, in_flight: Callable[[], None] = lambda: None) -> None:
        """Commit the open transaction; `in_flight` is called once, while the request is under way."""
        self._once("committing the transaction", lambda: self.client.commit_transaction(self._seconds), in_flight)
        self.in_transaction = False

    def abort(self) -> None:
        if self.in_transaction:
            self._once("aborting the transaction", lambda: self.client.abort_transaction(self._seconds))
            self.in_transaction = False

    def close(self) -> None:
        """Drop the producer without waiting; the next producer with this id aborts the open transaction."""
        if self._calls.stuck:  # a thread is still inside a call of the client; closing the client under it would crash
            return
        self._calls.close()
        client = self.__dict__.pop("client", None)
        if client is not None:
            client.purge()  # then dropped: the client's close() aborts and flushes without a limit, so it hangs when the broker is down

    def _once(self, doing: str, call: Callable[[], object], begun: Callable[[], None] = lambda: None) -> None:
        """Make a call that adds to or ends a transaction, exactly once.

        Its success is not trusted when the connection broke during the request: the client may have sent the request twice, and the late
        one would take effect in the *next* transaction, because the broker checks only the epoch.
        """
        troubles = self.events.troubles
        self._repeat(doing, call, 0.0, begun)
        try:
            self.client.poll(0)  # serves the error callbacks about broken connections
        except KafkaException as error:
            raise self._outcome(error, doing) from error
        if self.events.troubles != troubles:
            raise TransactionDoubtError(
                f"{doing}: the connection broke during the request; a duplicate request may still be in flight", hint=self.events.last
            )

    def _repeat(self, doing: str, call: Callable[[], object], seconds: float, begun: Callable[[], None] = lambda: None) -> None:
        began = time.monotonic()
        deadline = began + seconds
        while True:
            try:
                limit = max(deadline - time.monotonic(), self._seconds) + _GRACE_SECONDS
                self._calls.call(call, limit, self.meanwhile, begun)
                self.waited += time.monotonic() - began
                return
            except CallGivenUp as error:
                raise TransactionDoubtError(f"{doing}: {error}", hint=self.events.last) from error
            except KafkaException as error:
                inside = error_of(error)
                if inside is not None and inside.retriable() and not is_fenced(error) and time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                raise self._outcome(error, doing) from error

    def _outcome(self, error: KafkaException, doing: str) -> KStreamsError:
        if is_fenced(error):
            return ProducerFencedError(f"{doing}: a newer producer took over the transactional id {self.transactional_id}")
        typed = translate(error, doing, bootstrap_servers=self.settings.bootstrap_servers, reason=self.events.last)
        if isinstance(typed, ConfigError):  # retrying cannot help
            return typed
        kind = ProductionError if isinstance(typed, ProductionError) else TransactionDoubtError
        inside = error_of(error)
        return kind(typed.message, hint=typed.hint, refused=inside is not None and is_refusal(inside))
