"""Answers of the admin client that are none, or only a part."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kstreams_repl.host.kafka import admin_calls, group_admin
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.system.errors import BrokerUnavailableError
from kstreams_repl.system.types import TopicPartition


def admin_of(client: Any, monkeypatch: pytest.MonkeyPatch) -> Admin:
    monkeypatch.setattr(admin_calls, "make_admin_client", lambda *about, **more: client)
    admin = Admin(ClientSettings("nowhere:9092"))
    admin._seconds = -1.0  # a call waits a second more
    return admin


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


def test_settings_are_set_when_the_broker_reports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller confirms a change before its brokers have it: the settings read after the call were the old ones, once in CI."""
    answers = iter([("delete", "86460000", "0.2"), ("compact,delete", "86460000", "0.5"), ("compact,delete", "-1", "0.5")])
    names = ("cleanup.policy", "retention.ms", "min.cleanable.dirty.ratio")

    def describe(resources: Any, **_: Any) -> Any:
        entries = {name: SimpleNamespace(value=value) for name, value in zip(names, next(answers), strict=True)}
        return {resource: told(entries) for resource in resources}

    alter: Any = lambda resources, **_: {resource: told(None) for resource in resources}  # noqa: E731
    admin = admin_of(SimpleNamespace(incremental_alter_configs=alter, describe_configs=describe), monkeypatch)
    monkeypatch.setattr(admin, "_seconds", 5.0)
    admin.alter_topic_configs("words", dict(zip(names, ("compact, delete", "-1", "0.50"), strict=True)))
    assert next(answers, "read to the last answer") == "read to the last answer"


def test_added_partitions_are_there_when_the_call_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of partitions counted as the new one."""
    answers = iter([2, 2, 3])

    def listed(**_: Any) -> Any:
        partitions = {number: SimpleNamespace(leader=1) for number in range(next(answers))}
        return SimpleNamespace(topics={"words": SimpleNamespace(error=None, partitions=partitions)})

    client = SimpleNamespace(create_partitions=lambda new, **_: {"words": told(None)}, list_topics=listed)
    admin = admin_of(client, monkeypatch)
    monkeypatch.setattr(admin, "_seconds", 5.0)
    admin.add_partitions("words", 3)
    assert next(answers, None) is None


def test_an_interrupt_inside_the_client_is_a_keyboard_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell told SystemError: <built-in method list_offsets> returned a result with an exception set."""

    def interrupted(*_: Any, **__: Any) -> Any:
        raise SystemError("<built-in method> returned a result with an exception set") from KeyboardInterrupt()

    def broken(*_: Any, **__: Any) -> Any:
        raise SystemError("bad argument to internal function")

    admin = admin_of(SimpleNamespace(list_offsets=interrupted, describe_configs=interrupted, list_topics=broken), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        admin.end_offsets([TopicPartition("words", 0)])
    with pytest.raises(KeyboardInterrupt):
        admin.topic_configs(["words"])
    with pytest.raises(SystemError, match="bad argument"):
        admin.topics()
