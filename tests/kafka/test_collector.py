"""The record collector against a real broker: positions of changelogs, and records that the broker refuses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext, Response
from kstreams_repl.host.instance.failures.rejected_records import OutputRejectedError, RejectedRecords
from kstreams_repl.host.instance.tasks.record_collector import KafkaRecordCollector
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.kafka.transactional import TransactionalProducer
from kstreams_repl.system.errors import OutputRetryError, ProductionError
from kstreams_repl.system.types import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
Make = Callable[..., str]
BIG = os.urandom(6_000)


class Site:
    """A sink that answers always the same, and knows which record is at work."""

    def __init__(self, answer: Response) -> None:
        self.answer = answer
        self.offset = 0
        self.asked: list[int] = []
        self.given_up: list[int] = []

    def context(self) -> ErrorContext:
        return ErrorContext("sink", "0_0", "in", 0, self.offset, 7)

    def decide(self, context: ErrorContext, error: Exception) -> Response:
        self.asked.append(context.offset)
        return self.answer

    def give_up(self, context: ErrorContext, error: Exception) -> None:
        self.given_up.append(context.offset)


@contextmanager
def transaction(settings: ClientSettings, name: str, refusals: RejectedRecords) -> Iterator[TransactionalProducer]:
    producer = TransactionalProducer(
        settings, name, timeout_ms=10_000, **({"batch_num_messages": 1, "linger_ms": 0} if refusals.careful else {})
    )
    try:
        producer.initialise()
        producer.begin()
        yield producer
    finally:
        producer.close()


def committed(settings: ClientSettings, admin: Admin, topic: str) -> list[bytes | None]:
    return [value for _, batch in read_ranges(settings, ranges_of(admin, topic, settled=True)) for value in batch.values]


def careful() -> RejectedRecords:
    refusals = RejectedRecords()
    assert refusals.goes_on(OutputRejectedError("seen before"))
    return refusals


def send_all(collector: KafkaRecordCollector, topic: str, site: Site, values: list[bytes]) -> None:
    send = collector.sender(topic, site)
    for site.offset, value in enumerate(values):
        send(b"k", value, int(time.time() * 1000), [], None)


@pytest.mark.parametrize("refusals", [RejectedRecords(), careful()], ids=["usual", "careful"])
def test_a_commit_under_exactly_once_learns_the_position_of_each_changelog(
    settings: ClientSettings, topic: Make, name: str, refusals: RejectedRecords
) -> None:
    log = topic(partitions=2)
    with transaction(settings, name, refusals) as producer:
        collector = KafkaRecordCollector(producer.client, count=lambda topic: 2, changelogs=frozenset({log}), rejected=refusals)
        send = collector.sender(log)
        for number in range(10):
            send(b"k", b"%d" % number, int(time.time() * 1000), [], 1)
        collector.seal()
        producer.flush(collector.check)
        producer.commit()
        assert collector.take_positions() == {TopicPartition(log, 1): 10}


@pytest.mark.parametrize("refusals", [RejectedRecords(), careful()], ids=["usual", "careful"])
def test_changelog_records_keep_their_headers(
    settings: ClientSettings, admin: Admin, topic: Make, name: str, refusals: RejectedRecords
) -> None:
    """The JVM reads a suppress changelog's record without its version header as one of the first version, and ends."""
    log, now, version = topic(), int(time.time() * 1000), [("v", b"\x03")]
    with transaction(settings, name, refusals) as producer:
        collector = KafkaRecordCollector(producer.client, count=lambda topic: 1, changelogs=frozenset({log}), rejected=refusals)
        send, send_many = collector.senders(log)
        send(b"1", b"", now, version, 0)
        send(b"2", b"", now, [], 0)
        send_many([b"3", b"4", b"5", b"6"], [b""] * 4, [now] * 4, [version, version, [], version], 0)
        send_many([b"7", b"8"], [b""] * 2, [now] * 2, None, 0)
        send(b"9", b"", now, version, 0)
        collector.seal()
        producer.flush(collector.check)
        collector.check()
        producer.commit()
    found = {}
    for _, batch in read_ranges(settings, ranges_of(admin, log, settled=True)):
        found |= dict(zip(batch.keys, batch.headers or [[]] * len(batch), strict=True))
    assert {key for key, headers in found.items() if headers} == {b"1", b"3", b"4", b"6", b"9"}
    assert all(list(headers) == version for headers in found.values() if headers)


def test_only_the_record_that_is_too_large_is_asked_about_and_left_out_of_the_next_transaction(
    settings: ClientSettings, admin: Admin, topic: Make, name: str
) -> None:
    small = topic(**{"max.message.bytes": "2000"})
    values = [b"v%d" % number for number in range(20)]
    values[7] = BIG
    refusals, site = careful(), Site(Response.CONTINUE)
    now = int(time.time() * 1000)
    for attempt in range(2):
        with transaction(settings, name, refusals) as producer:
            collector = KafkaRecordCollector(producer.client, count=lambda topic: 1, rejected=refusals)
            send = collector.sender(small, site)
            for site.offset, value in enumerate(values):
                send(b"k", value, now + site.offset, [("h", b"1")], None)
            if attempt == 0:
                with pytest.raises(OutputRejectedError, match="larger"):
                    producer.flush(collector.check)
                    collector.check()
            else:
                producer.flush(collector.check)
                collector.check()
                producer.commit()
    assert (site.asked, site.given_up, collector.errors.dropped) == ([7], [7], 1)
    assert committed(settings, admin, small) == [value for value in values if value != BIG]


def test_fail_names_the_source_record_of_the_one_that_the_broker_refused(settings: ClientSettings, topic: Make, name: str) -> None:
    small, refusals, site = topic(**{"max.message.bytes": "2000"}), careful(), Site(Response.FAIL)
    with transaction(settings, name, refusals) as producer:
        collector = KafkaRecordCollector(producer.client, count=lambda topic: 1, rejected=refusals)
        send_all(collector, small, site, [b"a", b"b", BIG, b"c"])
        with pytest.raises(ProductionError, match="from the record at in-0 offset 2") as failure:
            producer.flush(collector.check)
            collector.check()
    assert (failure.value.node, failure.value.offset, failure.value.sink_topic) == ("sink", 2, small)


def test_retry_asks_for_the_open_commit_to_be_processed_again(settings: ClientSettings, topic: Make, name: str) -> None:
    small, refusals, site = topic(**{"max.message.bytes": "2000"}), careful(), Site(Response.RETRY)
    with transaction(settings, name, refusals) as producer:
        collector = KafkaRecordCollector(producer.client, count=lambda topic: 1, rejected=refusals)
        send_all(collector, small, site, [BIG])
        with pytest.raises(OutputRetryError):
            producer.flush(collector.check)
            collector.check()


def test_a_usual_instance_says_that_its_commit_has_to_be_looked_at(settings: ClientSettings, topic: Make, name: str) -> None:
    small, refusals, site = topic(**{"max.message.bytes": "2000"}), RejectedRecords(), Site(Response.CONTINUE)
    with transaction(settings, name, refusals) as producer:
        collector = KafkaRecordCollector(producer.client, count=lambda topic: 1, rejected=refusals)
        send_all(collector, small, site, [b"a", BIG])
        producer.flush(collector.check)
        collector.check()
        with pytest.raises(OutputRejectedError):
            send_all(collector, small, site, [b"b"])
        with pytest.raises(ProductionError) as failure:
            producer.commit()
    assert refusals.goes_on(failure.value)
    assert refusals.careful
    assert site.asked == []


def test_no_handler_is_asked_about_a_changelog_that_the_broker_refuses(settings: ClientSettings, topic: Make, name: str) -> None:
    log, refusals = topic(**{"max.message.bytes": "2000"}), careful()
    with transaction(settings, name, refusals) as producer:
        collector = KafkaRecordCollector(producer.client, count=lambda topic: 1, changelogs=frozenset({log}), rejected=refusals)
        collector.sender(log)(b"k", BIG, 1, [], 0)
        with pytest.raises(ProductionError, match="cannot be skipped by a handler"):
            producer.flush(collector.check)
            collector.check()


def test_the_same_commit_is_not_processed_again_for_ever() -> None:
    refusals = RejectedRecords()
    with pytest.raises(ProductionError, match="attempts to process the same commit"):
        for _ in range(1_000):
            assert refusals.goes_on(OutputRejectedError("refused"))
