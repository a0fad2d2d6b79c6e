"""What the reader of a journal makes of what its client gives it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from kstreams_repl.host.journal.journal import JournalReader
from kstreams_repl.host.journal.journal_records import DesiredState, encode
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.system.errors import UnknownTopicError


def test_a_command_that_comes_with_an_error_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error was raised before the records behind it were looked at, and an instance never heard that it was to stop."""
    monkeypatch.setattr("kstreams_repl.host.journal.journal.make_consumer", lambda *args, **more: _Consumer())
    reader = JournalReader(ClientSettings("nowhere:1"), "app")
    with pytest.raises(UnknownTopicError):
        reader.poll()
    assert reader.state.desired == DesiredState(1, "stopped", 1, 1)


class _Consumer:
    def list_topics(self, topic: str, timeout: float) -> None: ...

    def assign(self, partitions: Any) -> None: ...

    def consume(self, count: int, seconds: float) -> list[Message]:
        key, value = encode(DesiredState(1, "stopped", 1, 1))
        at: Any = {"topic": "app-journal", "partition": 0}
        return [Message(**at, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)), Message(**at, offset=3, key=key, value=value)]
