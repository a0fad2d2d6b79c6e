"""The record collector, as far as it needs no broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import Message

from kstreams_repl.engine.commit.offset_metadata import UNKNOWN
from kstreams_repl.host.instance.failures.rejected_records import RejectedRecords
from kstreams_repl.host.instance.tasks.record_collector import KafkaRecordCollector
from kstreams_repl.system.types import TopicPartition


class _Producer:
    def produce(self, *arguments: Any) -> None:
        raise AssertionError("nothing is sent here")


def test_the_position_after_a_record_that_the_broker_had_already_is_not_known() -> None:
    """An idempotent producer that sends a batch again, for its answer was lost, is told that it is there, and not where."""
    collector = KafkaRecordCollector(_Producer(), count=lambda topic: 2, changelogs=frozenset({"log"}), rejected=RejectedRecords())
    collector._delivered(None, Message(topic="log", partition=1, offset=-1001))
    collector._delivered(None, Message(topic="log", partition=1, offset=41))
    collector._delivered(None, Message(topic="log", partition=0, offset=-1001))
    assert Message(topic="log", partition=1, offset=-1001).offset() is None
    assert collector.take_positions() == {TopicPartition("log", 1): 42, TopicPartition("log", 0): UNKNOWN}


def test_a_record_is_sent_with_its_key_time_and_headers_alone_and_in_columns() -> None:
    sent: list[tuple[Any, ...]] = []
    producer: Any = SimpleNamespace(produce=lambda *arguments: sent.append(arguments))
    send, send_many = KafkaRecordCollector(producer, count=lambda topic: 2, rejected=RejectedRecords()).senders("out")
    headers = [("from", b"1")]
    send(b"k", b"v", 5, headers, 1)
    send(b"k", None, 0, [])
    send_many([b"k"], [b"v"], [5], [headers], [1])
    whole = ("out", b"v", b"k", 1, None, None, 5, headers)
    assert sent == [whole, ("out", None, b"k", -1, None, None, 1), whole]
