"""The transactional producer's calls with three outcomes: done, fenced, or in doubt.

librdkafka reports many errors in many ways; for exactness only three matter. *Fenced*: a newer owner exists, stop
(`ProducerFencedError`). *In doubt*: the call may or may not have taken effect, so nobody may go on with this producer
(`TransactionDoubtError`). Only taking the id over may be repeated; a call that ends or fills a transaction is made once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException

from kstreams_repl.errors import ConfigError, KStreamsError, ProducerFencedError, ProductionError
from kstreams_repl.kafka.clients import ClientEvents, ClientSettings, make_transactional_producer, take_transactional_id
from kstreams_repl.kafka.delivery import is_refusal
from kstreams_repl.kafka.failures import error_of, is_fenced, translate
from kstreams_repl.kafka.group_offsets import OffsetAndMetadata, client_offsets
from kstreams_repl.kafka.watched_calls import CallGivenUp, WatchedCalls
from kstreams_repl.types import TopicPartition

_INIT_SECONDS = 30.0
_GRACE_SECONDS = 0.5


class TransactionDoubtError(KStreamsError):
    """A transactional call did not tell whether it took effect. The producer must be given up and the committed state read
    again.
    """


class TransactionalProducer:
    """A producer with one transactional id. Not thread-safe.

    Args:
        timeout_ms: after this the broker aborts a transaction that is left open. A call that takes more than some part of it
        counts as
            doubtful: waiting for longer is of no use, and after a restart of the broker the client may wait for an answer
            that never comes.
    """

    def __init__(self, settings: ClientSettings, transactional_id: str, *, timeout_ms: int, **overrides: Any) -> None:
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
        """What to do while a call waits for the broker (`WatchedCalls.call`); it must not touch this producer."""
        self._calls = WatchedCalls(f"transactions-{transactional_id}")

    def initialise(self) -> None:
        """Fence every older holder of the id and abort what it left open."""
        self._repeat("taking the transactional id over", lambda: take_transactional_id(self.client, _INIT_SECONDS), _INIT_SECONDS)

    def begin(self) -> None:
        if not self.in_transaction:
            try:
                self.client.begin_transaction()
            except KafkaException as error:
                raise self._outcome(error, "beginning a transaction") from error
            self.in_transaction = True

    def flush(self, check: Callable[[], None] = lambda: None) -> None:
        """Wait until every record sent is acknowledged; `check` raises when one was refused, after which the rest may never be."""
        began = time.monotonic()
        deadline, before = began + self._seconds, -1
        while remaining := self._flush():
            check()
            if remaining == before:
                self._check_spoiled()
            before = remaining
            if time.monotonic() > deadline:
                raise TransactionDoubtError(f"records were not acknowledged within {self._seconds:.0f} s", hint=self.events.last)
        self.waited += time.monotonic() - began

    def _check_spoiled(self) -> None:
        """Raise what spoiled the open transaction. The client then neither sends nor reports the records that wait, and tells why only
        when it is asked for something: here for a second beginning, which it refuses in any case.
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

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: Any) -> None:
        listed = client_offsets(offsets)
        self._once(
            "adding the input offsets to the transaction",
            lambda: self.client.send_offsets_to_transaction(listed, group, self._seconds),
        )

    def commit(self) -> None:
        self._once("committing the transaction", lambda: self.client.commit_transaction(self._seconds))
        self.in_transaction = False

    def abort(self) -> None:
        if self.in_transaction:
            self._once("aborting the transaction", lambda: self.client.abort_transaction(self._seconds))
            self.in_transaction = False

    def close(self) -> None:
        """Give the producer up at once; what is open is aborted by the next holder of the id."""
        if self._calls.stuck:  # a thread is still inside, which keeps the client; closing would pull it away under that
            return
        self._calls.close()
        client = self.__dict__.pop("client", None)
        if client is not None:
            client.purge()  # and dropped: the client's own close() aborts and flushes without a bound, so it hangs when the broker is away

    def _once(self, doing: str, call: Callable[[], Any]) -> None:
        """A call that ends or fills a transaction. It is never made twice, nor believed when the connection broke under it: of two
        requests the late one would take effect in the *next* transaction, for the broker looks at the epoch alone.
        """
        troubles = self.events.troubles
        self._repeat(doing, call, 0.0)
        try:
            self.client.poll(0)  # lets the client tell what happened to its connections
        except KafkaException as error:
            raise self._outcome(error, doing) from error
        if self.events.troubles != troubles:
            raise TransactionDoubtError(
                f"{doing}: the connection broke under the request; a second one may still be on its way", hint=self.events.last
            )

    def _repeat(self, doing: str, call: Callable[[], Any], seconds: float) -> None:
        began = time.monotonic()
        deadline = began + seconds
        while True:
            try:
                self._calls.call(call, max(deadline - time.monotonic(), self._seconds) + _GRACE_SECONDS, self.meanwhile)
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
            return ProducerFencedError(f"{doing}: a newer owner has taken {self.transactional_id} over")
        typed = translate(error, doing, bootstrap_servers=self.settings.bootstrap_servers, reason=self.events.last)
        if isinstance(typed, ConfigError):  # it is so each time
            return typed
        kind = ProductionError if isinstance(typed, ProductionError) else TransactionDoubtError
        inside = error_of(error)
        return kind(typed.message, hint=typed.hint, refused=inside is not None and is_refusal(inside))
