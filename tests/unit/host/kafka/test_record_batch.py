"""Columns out of real `Message` objects, which the client lets be made without a broker."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from kstreams_repl.host.kafka.record_batch import columns
from kstreams_repl.system.types import TopicPartition


def _message(topic: str, partition: int, offset: int, *, headers: object = None, error: KafkaError | None = None) -> Message:
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=b"k",
        value=b"v%d" % offset,
        headers=headers,
        error=error,
        timestamp=(1, 1000 + offset),
    )


def _no_error(message: Message, error: KafkaError) -> None:
    raise AssertionError(error)


def test_nothing_consumed_is_nothing() -> None:
    assert columns([], _no_error) == []


def test_one_partition_is_one_batch_without_headers() -> None:
    [(at, batch)] = columns([_message("t", 1, n) for n in range(3)], _no_error)
    assert at == TopicPartition("t", 1) and batch.topic == "t"
    assert batch.keys == [b"k"] * 3 and batch.values == [b"v0", b"v1", b"v2"]
    assert batch.timestamps == [1000, 1001, 1002] and batch.offsets == [0, 1, 2] and batch.headers is None


def test_headers_are_lists_of_their_own_only_where_there_are_some() -> None:
    messages = [_message("t", 0, 0), _message("t", 0, 1, headers=[("h", b"1"), ("h", None)])]
    [(_, batch)] = columns(messages, _no_error)
    assert batch.headers == [None, [("h", b"1"), ("h", None)]]
    [(_, plain)] = columns(messages, _no_error, headers=False)
    assert plain.headers is None


def test_errors_are_handed_over_and_are_no_records() -> None:
    seen: list[tuple[int, int]] = []
    messages = [_message("t", 0, 0), _message("t", 0, 1, error=KafkaError(KafkaError._PARTITION_EOF)), _message("t", 1, 5)]
    batches = columns(messages, lambda message, error: seen.append((message.offset(), error.code())))
    assert seen == [(1, KafkaError._PARTITION_EOF)]
    assert [(at.partition, batch.offsets) for at, batch in batches] == [(0, [0]), (1, [5])]


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)), max_size=60))
def test_every_record_comes_out_once_in_its_partitions_order(places: list[tuple[str, int]]) -> None:
    messages = [_message(topic, partition, offset) for offset, (topic, partition) in enumerate(places)]
    found: dict[tuple[str, int], list[int]] = {}
    for at, batch in columns(messages, _no_error):
        assert len({len(column) for column in (batch.keys, batch.values, batch.timestamps, batch.offsets)}) == 1
        found.setdefault(tuple(at), []).extend(batch.offsets)
    expected: dict[tuple[str, int], list[int]] = {}
    for offset, place in enumerate(places):
        expected.setdefault(place, []).append(offset)
    assert found == expected


def test_a_batch_says_what_its_values_take() -> None:
    messages = [Message(topic="t", partition=0, offset=n, value=None if n == 1 else b"v" * n) for n in range(4)]
    [(_, batch)] = columns(messages, _no_error)
    assert batch.values[1] is None and batch.size_bytes == 5


def test_of_a_large_batch_it_says_so_about() -> None:
    messages = [Message(topic="t", partition=0, offset=n, value=b"v" * (n % 100)) for n in range(5000)]
    [(_, batch)] = columns(messages, _no_error)
    taken = sum(n % 100 for n in range(5000))
    assert abs(batch.size_bytes - taken) < taken / 50
