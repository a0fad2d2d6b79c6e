"""Conversion of consumed messages to columns, the first step for every record.

`Consumer.consume` returns messages of several partitions, interleaved in runs. `columns` splits them into one `RecordBatch` per run by
mapping the message class's own methods over them; the values are the only objects created per record. Error messages (end of a
partition, offset out of range) are not records: they are passed to `on_error` and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, groupby
from operator import itemgetter

from confluent_kafka import KafkaError, Message

from kstreams_repl.system.types import Headers, RecordBatch, TopicPartition

_key = Message.key
_value = Message.value
_offset = Message.offset
_partition = Message.partition
_topic = Message.topic
_timestamp = Message.timestamp
_headers = Message.headers
_error = Message.error
_second = itemgetter(1)
_WEIGHED = 512
_EVERY = 7
"""In a batch with more than `_WEIGHED` values every seventh is measured: measuring each would cost 2 % of the throughput."""


def columns(
    messages: list[Message],
    on_error: Callable[[Message, KafkaError], None],
    *,
    headers: bool = True,
    topic: str | None = None,
) -> list[tuple[TopicPartition, RecordBatch]]:
    """Return the messages as columns, one batch for each run of one partition, in the order of the messages.

    Args:
        messages: the result of `Consumer.consume`.
        on_error: called with each error message and its error, in order; may raise.
        topic: the topic of all messages, when the consumer reads only one.
        headers: False skips reading headers (when the topology neither uses nor forwards any).
    """
    if not messages:
        return []
    if any(map(_error, messages)):
        messages = _without_errors(messages, on_error)
        if not messages:
            return []
    return [(TopicPartition(name, partition), _batch(run, name, headers)) for name, partition, run in _runs(messages, topic)]


def _batch(run: list[Message], topic: str, headers: bool) -> RecordBatch:
    found = list(map(_headers, run)) if headers else None
    values = list(map(_value, run))
    return RecordBatch(
        list(map(_key, run)),
        values,
        list(map(_second, map(_timestamp, run))),
        list(map(_offset, run)),
        [_as_headers(header) for header in found] if found is not None and any(found) else None,
        topic,
        size_of(values),
    )


def size_of(values: Sequence[Message | bytes | None]) -> int:
    """Return the size of the values in bytes; an estimate for more than `_WEIGHED` values."""
    if len(values) <= _WEIGHED:
        return sum(map(len, filter(None, values)))
    return _EVERY * sum(map(len, filter(None, values[::_EVERY])))


def _runs(messages: list[Message], topic: str | None) -> Iterable[tuple[str, int, list[Message]]]:
    """Yield consecutive messages of one partition. The client delivers whole fetches, so runs are long; often there is only one."""
    partitions = list(map(_partition, messages))
    topics = list(map(_topic, messages)) if topic is None else [topic]
    count = len(messages)
    if partitions.count(partitions[0]) == count and topics.count(topics[0]) == len(topics):
        yield topics[0], partitions[0], messages
        return
    start = 0
    for (name, partition), run in groupby(zip(cycle(topics), partitions, strict=False)):
        end = start + sum(1 for _ in run)
        yield name, partition, messages[start:end]
        start = end


def _without_errors(messages: list[Message], on_error: Callable[[Message, KafkaError], None]) -> list[Message]:
    records = []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(message)
        else:
            on_error(message, error)
    return records


def _as_headers(found: list[tuple[str, bytes | None]] | None) -> Headers | None:
    return list(found) if found else None
