from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer, make_transactional_producer
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.system.errors import BrokerUnavailableError, UnknownTopicError
from kstreams_repl.system.types import TopicPartition

pytestmark = pytest.mark.kafka


def _produce(settings: ClientSettings, topic: str, values: list[bytes], **fields: object) -> None:
    producer = make_producer(settings)
    for value in values:
        producer.produce(topic, value, **fields)
    producer.flush(10)
    producer.close()


def _values(settings: ClientSettings, ranges: tuple[OffsetRange, ...], **options: object) -> list[bytes | None]:
    return [value for _, batch in read_ranges(settings, ranges, **options) for value in batch.values]


def _await_end(admin: Admin, topic: str, end: int) -> None:
    """Until the markers of acknowledged transactions are in the topic too."""
    at, deadline = TopicPartition(topic, 0), time.monotonic() + 20
    while admin.end_offsets([at], isolation="read_committed")[at] < end:
        assert time.monotonic() < deadline, "the marker never came"
        time.sleep(0.02)


def test_a_read_gives_all_columns_in_offset_order(settings: ClientSettings, admin: Admin, topic: Callable[..., str]) -> None:
    name = topic()
    producer = make_producer(settings)
    producer.produce(name, key=b"a", value=b"1", timestamp=1000)
    producer.produce(name, key=None, value=None, timestamp=2000, headers=[("h", b"x"), ("h", None)])
    producer.flush(10)
    producer.close()
    [(at, batch)] = read_ranges(settings, ranges_of(admin, name))
    assert at == TopicPartition(name, 0)
    assert (batch.keys, batch.values, batch.timestamps, batch.offsets) == ([b"a", None], [b"1", None], [1000, 2000], [0, 1])
    assert batch.headers == [None, [("h", b"x"), ("h", None)]]
    assert batch.topic == name


def test_several_ranges_of_a_partition_are_read_one_after_the_other(
    settings: ClientSettings, admin: Admin, topic: Callable[..., str]
) -> None:
    name = topic(partitions=2)
    for number in range(2):
        _produce(settings, name, [b"%d" % n for n in range(100)], partition=number)
    first, second = (TopicPartition(name, number) for number in range(2))
    ranges = (OffsetRange(first, 0, 2), OffsetRange(first, 98, 100), OffsetRange(second, 50, 51), OffsetRange(first, 10, 11))
    found = [(at.partition, offset) for at, batch in read_ranges(settings, ranges) for offset in batch.offsets]
    assert sorted(found[:3]) == [(0, 0), (0, 1), (1, 50)] and found[3:] == [(0, 98), (0, 99), (0, 10)]


def test_a_read_stops_at_the_bounds_fixed_before_it_though_the_topic_grows(
    settings: ClientSettings, admin: Admin, topic: Callable[..., str]
) -> None:
    name = topic()
    _produce(settings, name, [b"%d" % n for n in range(100)])
    ranges = ranges_of(admin, name)
    _produce(settings, name, [b"later"] * 1000)
    assert _values(settings, ranges) == [b"%d" % n for n in range(100)]


def test_a_read_ends_behind_a_transaction_marker_and_leaves_aborted_records_out(
    settings: ClientSettings, admin: Admin, topic: Callable[..., str]
) -> None:
    name = topic()
    producer = make_transactional_producer(settings, transactional_id=name)
    producer.init_transactions(10)
    for value, end in ((b"kept", producer.commit_transaction), (b"thrown away", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(10)
        end(10)
    producer.close()
    _await_end(admin, name, 4)
    ranges = ranges_of(admin, name, settled=True)
    assert ranges[0].end == 4
    assert _values(settings, ranges) == [b"kept"]
    everything = ranges_of(admin, name, isolation="read_uncommitted")
    assert _values(settings, everything, isolation="read_uncommitted") == [b"kept", b"thrown away"]


def test_a_read_that_starts_in_nothing_but_markers_ends(settings: ClientSettings, admin: Admin, topic: Callable[..., str]) -> None:
    name = topic()
    producer = make_transactional_producer(settings, transactional_id=name)
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(name, b"v")
    producer.commit_transaction(10)
    producer.close()
    _await_end(admin, name, 2)
    ranges = ranges_of(admin, name, start=1, settled=True)
    assert (ranges[0].start, ranges[0].end) == (1, 2)
    assert _values(settings, ranges) == []


@pytest.mark.slow
def test_a_compacted_tail_ends_the_read(settings: ClientSettings, admin: Admin, topic: Callable[..., str]) -> None:
    policy = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100"}
    name = topic(**policy, **{"delete.retention.ms": "0", "max.compaction.lag.ms": "100"})
    _produce(settings, name, [b"old"] * 1000, key=b"k")
    time.sleep(0.2)
    _produce(settings, name, [b"new"], key=b"k")
    deadline = time.monotonic() + 60
    while len(_values(settings, ranges_of(admin, name, end=1000))) > 1:  # the cleaner comes by every 15 s
        assert time.monotonic() < deadline, "the topic was never compacted"
        time.sleep(1)
    assert _values(settings, ranges_of(admin, name, start=10, end=900)) == []
    assert _values(settings, ranges_of(admin, name, end=1001))[-1] == b"new"


def test_bounds_by_offset_and_time_are_clipped_to_the_log(
    settings: ClientSettings, admin: Admin, topic: Callable[..., str]
) -> None:
    name = topic()
    producer = make_producer(settings)
    for n in range(10):
        producer.produce(name, b"%d" % n, timestamp=1000 * (n + 1))
    producer.flush(10)
    producer.close()

    def read(**bounds: object) -> list[bytes | None]:
        return _values(settings, ranges_of(admin, name, **bounds))

    assert read(start=8) == [b"8", b"9"]
    assert read(start=-5, end=2) == [b"0", b"1"]
    assert read(start={0: 9}, end={0: 99}) == [b"9"]
    assert read(since_ms=8500) == [b"8", b"9"]
    assert read(until_ms=2000) == [b"0"]
    assert read(since_ms=99_000) == []
    assert read(start=5, end=3) == []


def test_all_partitions_are_read_and_each_in_order(settings: ClientSettings, admin: Admin, topic: Callable[..., str]) -> None:
    name = topic(4)
    producer = make_producer(settings)
    for n in range(4000):
        producer.produce(name, key=b"%d" % (n % 97), value=b"%d" % n)
    producer.flush(10)
    producer.close()
    seen: dict[int, list[int]] = {}
    for at, batch in read_ranges(settings, ranges_of(admin, name), batch_size=300):
        seen.setdefault(at.partition, []).extend(batch.offsets)
    assert sum(map(len, seen.values())) == 4000
    assert all(offsets == list(range(len(offsets))) for offsets in seen.values())


def test_a_read_can_be_left_early(settings: ClientSettings, admin: Admin, topic: Callable[..., str]) -> None:
    name = topic()
    _produce(settings, name, [b"v"] * 5000)
    reading = read_ranges(settings, ranges_of(admin, name), batch_size=100)
    assert len(next(reading)[1]) <= 100
    reading.close()


def test_an_unknown_topic_is_told_before_anything_is_read(admin: Admin) -> None:
    with pytest.raises(UnknownTopicError):
        ranges_of(admin, "no-such-topic")


def test_a_reader_without_a_broker_gives_up(name: str) -> None:
    with pytest.raises(BrokerUnavailableError, match="no records from 127.0.0.1:1"):
        _values(ClientSettings("127.0.0.1:1"), (OffsetRange(TopicPartition(name, 0), 0, 1),), silent_seconds=1)
