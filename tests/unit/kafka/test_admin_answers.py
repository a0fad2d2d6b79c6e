"""Answers of the admin client that are none, or only a part."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kstreams_repl.errors import BrokerUnavailableError
from kstreams_repl.kafka import admin_calls, group_admin
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.types import TopicPartition


def admin_of(client: Any, monkeypatch: pytest.MonkeyPatch) -> Admin:
    monkeypatch.setattr(admin_calls, "make_admin_client", lambda *about, **more: client)
    return Admin(ClientSettings("nowhere:9092"), seconds=-1.0)  # a call waits a second more


def told(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def test_groups_that_a_broker_did_not_tell_are_not_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the broker away there were no groups: a cleanup left its application's committed offsets, and took topics of others."""
    away = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    group = SimpleNamespace(group_id="orders")
    part = SimpleNamespace(list_consumer_groups=lambda **_: told(SimpleNamespace(valid=[group], errors=[away])))
    with pytest.raises(BrokerUnavailableError, match="listing groups: no broker answered at nowhere:9092") as error:
        admin_of(part, monkeypatch).groups()
    assert error.value.hint
    whole = SimpleNamespace(list_consumer_groups=lambda **_: told(SimpleNamespace(valid=[group], errors=[])))
    assert admin_of(whole, monkeypatch).groups() == ("orders",)


def test_an_answer_that_never_comes_is_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three calls it was a TimeoutError without a word."""
    never: Any = lambda names, **_: {getattr(name, "topic", name): Future() for name in names}  # noqa: E731
    offsets: Any = lambda asked, **_: {at: Future() for at in asked}  # noqa: E731
    client = SimpleNamespace(create_topics=never, delete_consumer_groups=never, delete_topics=never, list_offsets=offsets)
    admin = admin_of(client, monkeypatch)
    for call in (
        lambda: admin.create_topic("words", 1),
        lambda: admin.delete_groups(["orders"]),
        lambda: admin.delete_topics(["words"]),
        lambda: admin.end_offsets([TopicPartition("words", 0)]),
    ):
        with pytest.raises(BrokerUnavailableError, match="no broker answered at nowhere:9092") as error:
            call()
        assert error.value.hint


def test_who_did_not_tell_committed_offsets_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker answered "at None"."""

    def committed(asked: Any, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    consumer = SimpleNamespace(committed=committed, close=lambda: None)
    monkeypatch.setattr(group_admin, "make_consumer", lambda *about, **more: consumer)
    with pytest.raises(BrokerUnavailableError, match="at nowhere:9092"):
        admin_of(SimpleNamespace(), monkeypatch).committed_offsets("orders", [TopicPartition("words", 0)])
