"""A producer with a transactional id: how long it waits, and what is left of it when a call was given up."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from kstreams_repl.host.kafka import transactional
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.transactional import TransactionalProducer, TransactionDoubtError

NOWHERE = ClientSettings("127.0.0.1:1")


def test_an_id_that_cannot_be_taken_over_is_let_go_of_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call outlasted the watch over it by the second that it looks for a connection: in an outage every take-over left a client and
    a thread behind for good, and when the broker was back each of these clients took the id from its successor.
    """
    monkeypatch.setattr(transactional, "_INIT_SECONDS", 1.1)
    producer = TransactionalProducer(NOWHERE, "app-0", timeout_ms=1000)
    with pytest.raises(TransactionDoubtError, match="no broker answered"):
        producer.initialise()
    assert not producer._calls.stuck
    producer.close()


class _Client:
    """Does not answer before it is told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()

    def abort_transaction(self, seconds: float) -> None:
        self.answers.wait(10)

    def commit_transaction(self, seconds: float) -> None:
        assert self.answers.wait(10)

    def poll(self, seconds: float) -> None:
        pass


def test_a_client_that_was_given_up_goes_when_its_call_returns_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed, with the thread, as long as the process."""
    client = _Client()
    made = [client]
    monkeypatch.setattr(transactional, "make_transactional_producer", lambda *args, **more: made.pop())
    monkeypatch.setattr(transactional, "_GRACE_SECONDS", 0.01)
    producer: Any = TransactionalProducer(NOWHERE, "app-0", timeout_ms=1)
    producer.in_transaction = True
    with pytest.raises(TransactionDoubtError, match="no answer"):
        producer.abort()
    thread, answers, left = producer._calls._thread, client.answers, weakref.ref(client)
    producer.close()
    monkeypatch.undo()
    del producer, client
    gc.collect()
    assert left() is not None  # its call is under way
    answers.set()
    thread.join(10)
    gc.collect()
    assert not thread.is_alive() and left() is None


def test_a_commit_calls_back_once_while_its_request_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failpoint F6 acts there, on the calls that production makes; for it the commit ran on a thread of its own."""
    client, called = _Client(), []
    monkeypatch.setattr(transactional, "make_transactional_producer", lambda *args, **more: client)
    producer: Any = TransactionalProducer(NOWHERE, "app-0", timeout_ms=60_000)
    producer.meanwhile = lambda: not client.answers.is_set()

    def in_flight() -> None:
        called.append(threading.current_thread())
        client.answers.set()

    producer.commit(in_flight)
    assert called == [threading.current_thread()]
    producer._calls.close()
