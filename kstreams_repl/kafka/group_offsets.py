"""Positions between our types and the client's: assign, commit, transaction offsets.

The rest of the code speaks `types.TopicPartition` and plain numbers; only here they become the client's objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl.types import TopicPartition

OffsetAndMetadata = tuple[int, str]
_CONNECT_SECONDS = 1.0


def client_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[Any]:
    """The client's list of (topic, partition, offset, metadata)."""
    return [ClientTopicPartition(at.topic, at.partition, offset, metadata) for at, (offset, metadata) in offsets.items()]


def assign(consumer: Consumer, positions: Mapping[TopicPartition, int]) -> None:
    """Read these partitions from these offsets and no others.

    A new client that looks for its partitions' brokers in the wrong moment, between two connections, looks again after a second. So it is
    asked first for what it needs to know; a cluster that does not answer is the read's to tell.
    """
    topic = next((at.topic for at in positions), None)
    if topic is not None:
        with suppress(KafkaException):
            consumer.list_topics(topic, timeout=_CONNECT_SECONDS)
    consumer.assign([ClientTopicPartition(at.topic, at.partition, offset) for at, offset in positions.items()])


def assign_more(consumer: Consumer, positions: Mapping[TopicPartition, int]) -> None:
    """Read these partitions, too; what is read already goes on where it is."""
    consumer.incremental_assign([ClientTopicPartition(at.topic, at.partition, offset) for at, offset in positions.items()])


def unassign(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    """Read these partitions no longer; the others go on where they are."""
    consumer.incremental_unassign([ClientTopicPartition(at.topic, at.partition) for at in partitions])


def pause(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    """Stop fetching; what was prefetched of them is dropped and fetched again, so this is for long imbalance only."""
    consumer.pause([ClientTopicPartition(at.topic, at.partition) for at in partitions])


def resume(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    consumer.resume([ClientTopicPartition(at.topic, at.partition) for at in partitions])


def known_end(consumer: Consumer, partition: TopicPartition) -> int | None:
    """The end of the log as of the last fetch, without asking the broker; None before the first."""
    low, high = consumer.get_watermark_offsets(ClientTopicPartition(partition.topic, partition.partition), cached=True)
    return high if high >= 0 else None


def is_partition_end(error: KafkaError) -> bool:
    """Whether a consumed message only says that the end of its partition was reached."""
    return bool(error.code() == KafkaError._PARTITION_EOF)


def is_passing(error: KafkaError) -> bool:
    """Whether the client recovers from the error by itself (a broker that is away, a leader that moved)."""
    return error.retriable() or error.code() in _PASSING


_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


def place_of(message: Message) -> TopicPartition:
    """Which partition a message, or an error that came as one, belongs to."""
    return TopicPartition(message.topic(), message.partition())
