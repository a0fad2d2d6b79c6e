"""After a restart of the broker a client may ask with a leader epoch that it never learns anew."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kstreams_repl.host.kafka import admin_calls
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.system.types import TopicPartition


class Client:
    """Answers requests to the leaders of partitions, or refuses all of them."""

    def __init__(self, refuses: bool) -> None:
        self._refuses = refuses

    def list_offsets(self, request: Any, **_: Any) -> dict[Any, Future[Any]]:
        answers = {}
        for at in request:
            future: Future[Any] = Future()
            if self._refuses:
                future.set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
            else:
                future.set_result(SimpleNamespace(offset=7))
            answers[at] = future
        return answers

    delete_records = list_offsets


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The clients, in order; the first one refuses."""
    made: list[Client] = []

    def make(*_: Any, **__: Any) -> Client:
        made.append(Client(refuses=not made))
        return made[-1]

    monkeypatch.setattr(admin_calls, "make_admin_client", make)
    return made


def test_offsets_are_asked_by_a_new_client_when_the_old_one_has_a_stale_epoch(made: list[Client]) -> None:
    assert Admin(ClientSettings("unused:1")).end_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 7}
    assert len(made) == 2


def test_records_are_deleted_by_a_new_client_too(made: list[Client]) -> None:
    """A topic is listed with its leader before that broker has made the partition: deleting records at once was refused."""
    Admin(ClientSettings("unused:1")).delete_records({TopicPartition("t", 0): 0})
    assert len(made) == 2
