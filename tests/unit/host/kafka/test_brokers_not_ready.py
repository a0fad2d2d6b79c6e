"""Brokers that answer and cannot tell yet: what they look after is being loaded, or moves to another one."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl.host.kafka import admin_calls
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.group_admin import CommittedOffset, committed_by
from kstreams_repl.system.errors import BrokerUnavailableError
from kstreams_repl.system.types import TopicPartition

AT = TopicPartition("t", 0)
NOT_READY = [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR]


class Coordinator:
    """Refuses so many questions, and answers then."""

    def __init__(self, code: int, refuses: int) -> None:
        self._code = code
        self._left = refuses

    def _refuses(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def committed(self, asked: Any, timeout: float) -> list[ClientTopicPartition]:
        if self._refuses():
            raise KafkaException(KafkaError(self._code))
        return [ClientTopicPartition("t", 0, 7)]

    def list_consumer_groups(self, request_timeout: float) -> Future[Any]:
        told: Future[Any] = Future()
        refused = [KafkaException(KafkaError(self._code))] if self._refuses() else []
        told.set_result(SimpleNamespace(valid=[] if refused else [SimpleNamespace(group_id="app")], errors=refused))
        return told

    def groups(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> tuple[str, ...]:
        monkeypatch.setattr(admin_calls, "make_admin_client", lambda *args, **more: self)
        return Admin(ClientSettings("nowhere:1"), seconds=seconds).groups()


@pytest.mark.parametrize("code", NOT_READY)
def test_committed_offsets_are_asked_again_until_the_coordinator_is_ready(code: int) -> None:
    consumer: Any = Coordinator(code, 2)
    assert committed_by(consumer, [AT], seconds=10.0) == {AT: CommittedOffset(7)}


@pytest.mark.parametrize("code", NOT_READY)
def test_a_coordinator_that_is_not_ready_in_time_is_an_error_that_is_waited_for(code: int) -> None:
    """It was one of no kind known to pass: after ten take-overs the application failed."""
    consumer: Any = Coordinator(code, 1_000)
    with pytest.raises(BrokerUnavailableError, match="not ready"):
        committed_by(consumer, [AT], seconds=0.0)


def test_groups_are_told_when_every_broker_tells_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a broker that had only just started were left out: a cleanup kept the group's offsets and deleted the state."""
    assert Coordinator(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 2).groups(monkeypatch, 10.0) == ("app",)
    with pytest.raises(BrokerUnavailableError):
        Coordinator(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 1_000).groups(monkeypatch, 0.001)
    with pytest.raises(BrokerUnavailableError):
        Coordinator(KafkaError._TRANSPORT, 1).groups(monkeypatch, 10.0)
