"""Assignment, pausing and end offsets with this project's own types.

The rest of the code uses `types.TopicPartition` and integers; this module converts them to the client's objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl.system.types import TopicPartition

_CONNECT_SECONDS = 1.0


def assign(consumer: Consumer, positions: Mapping[TopicPartition, int]) -> None:
    """Assign exactly these partitions, starting at these offsets.

    A new client that looks for the partition leaders between two connection attempts retries only after a second. Requesting the metadata
    first avoids that; a cluster that does not answer is reported by the read that follows.
    """
    topic = next((partition.topic for partition in positions), None)
    if topic is not None:
        with suppress(KafkaException):
            consumer.list_topics(topic, timeout=_CONNECT_SECONDS)
    consumer.assign([ClientTopicPartition(partition.topic, partition.partition, offset) for partition, offset in positions.items()])


def assign_more(consumer: Consumer, positions: Mapping[TopicPartition, int]) -> None:
    """Assign these partitions in addition; reading of the others continues at their positions."""
    consumer.incremental_assign([ClientTopicPartition(at.topic, at.partition, offset) for at, offset in positions.items()])


def unassign(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    """Remove these partitions from the assignment; reading of the others continues at their positions."""
    consumer.incremental_unassign([ClientTopicPartition(partition.topic, partition.partition) for partition in partitions])


def pause(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    """Stop fetching these partitions. Prefetched records are dropped and fetched again later, so use this for long pauses only."""
    consumer.pause([ClientTopicPartition(partition.topic, partition.partition) for partition in partitions])


def resume(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    consumer.resume([ClientTopicPartition(partition.topic, partition.partition) for partition in partitions])


def known_end(consumer: Consumer, partition: TopicPartition) -> int | None:
    """Return the end offset as of the last fetch, without a request to the broker; None before the first fetch."""
    low, high = consumer.get_watermark_offsets(ClientTopicPartition(partition.topic, partition.partition), cached=True)
    return high if high >= 0 else None


def positions(consumer: Consumer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the next offset of each partition that has been read from, beyond the last message or marker that was consumed."""
    answers = consumer.position([ClientTopicPartition(partition.topic, partition.partition) for partition in partitions])
    return {TopicPartition(partition.topic, partition.partition): partition.offset for partition in answers if partition.offset >= 0}


def is_partition_end(error: KafkaError) -> bool:
    """Return whether a consumed message only reports that the end of its partition was reached."""
    return bool(error.code() == KafkaError._PARTITION_EOF)


def is_passing(error: KafkaError) -> bool:
    """Return whether the client recovers from the error by itself (an unreachable broker, a moved leader)."""
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


def topic_partition_of(message: Message) -> TopicPartition:
    """Return the partition of a message, or of an error delivered as a message."""
    return TopicPartition(message.topic(), message.partition())
