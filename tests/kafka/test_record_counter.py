"""The number of records of a topic is what a reader of committed records gets, whatever else has offsets there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl.host.kafka import record_counter
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_transactional_producer
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.host.kafka.record_counter import RecordCounter
from kstreams_repl.system.types import TopicPartition
from tests.kafka.test_reading import _await_end, _produce

pytestmark = pytest.mark.kafka


def _transaction(settings: ClientSettings, topic: str, records: int, *, commit: bool) -> None:
    producer = make_transactional_producer(settings, transactional_id=f"{topic}-writer")
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, b"%d" % number)
    producer.flush(10)
    producer.commit_transaction(30) if commit else producer.abort_transaction(30)


def test_markers_and_aborted_records_are_not_counted(
    settings: ClientSettings, admin: Admin, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The side panel and `session.topics()` said 91 for 69."""
    reads: list[tuple[OffsetRange, ...]] = []

    def reading(settings: ClientSettings, ranges: Any, **more: Any) -> Any:
        reads.append(tuple(ranges))
        return read_ranges(settings, ranges, **more)

    monkeypatch.setattr(record_counter, "read_ranges", reading)
    name, counter = topic(), RecordCounter()
    at = TopicPartition(name, 0)
    _produce(settings, name, [b"x"] * 60)
    _transaction(settings, name, 9, commit=True)
    _transaction(settings, name, 20, commit=False)
    _await_end(admin, name, 91)
    assert counter.count(settings, ranges_of(admin, name)) == {at: 69}
    # what was counted is not read again, and a topic that grows is read from there
    assert counter.count(settings, ranges_of(admin, name)) == {at: 69}
    _produce(settings, name, [b"x"] * 5)
    assert counter.count(settings, ranges_of(admin, name)) == {at: 74}
    assert [len(ranges) for ranges in reads] == [1, 0, 1] and reads[2] == (OffsetRange(at, 91, 96),)
    # beyond the limit the number is unknown, not the number of offsets
    assert RecordCounter().count(settings, ranges_of(admin, name), most=95) == {at: None}
    assert counter.count(settings, [OffsetRange(at, 70, 91)]) == {at: 0}, "only aborted records and markers"
