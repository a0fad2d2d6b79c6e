"""Fetch and commit offset metadata with its exact length.

confluent-kafka converts metadata as a C string: reading continues beyond its end, into other memory of the process, up to the next zero
byte, and writing appends a zero byte, which Kafka Streams on the JVM refuses. librdkafka itself knows the length, so these two calls use
the librdkafka library that confluent-kafka has loaded. For clients that are not confluent-kafka's (the simulation's) the client's own
method is called.

Invariants: a client's pointer is read while the caller holds a reference to the client, and a closed client raises its own error; neither
call serves Python callbacks (librdkafka waits on a queue private to the call).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, cimpl
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl.system.errors import MissingPackageError
from kstreams_repl.system.types import TopicPartition

OffsetAndMetadata = tuple[int, str]
_RK = object.__basicsize__
"""Offset of librdkafka's handle in confluent-kafka's client objects: the first field after the object header."""


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """The committed offset of a partition; offset < 0: nothing is committed."""

    partition: TopicPartition
    offset: int
    metadata: bytes
    error: KafkaError | None


class _Element(ctypes.Structure):
    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("_private", ctypes.c_void_p),
    )


class _Elements(ctypes.Structure):
    _fields_ = (("cnt", ctypes.c_int), ("size", ctypes.c_int), ("elems", ctypes.POINTER(_Element)))


_List = ctypes.POINTER(_Elements)


def fetch_offsets(consumer: Consumer, partitions: Iterable[TopicPartition], seconds: float) -> list[FetchedOffset]:
    """Return what the consumer's group has committed.

    Args:
        seconds: how long to wait for the coordinator.

    Raises:
        KafkaException: no answer in time, or an error from the coordinator.
    """
    handle = _handle(consumer)
    if handle is None:
        asked = [ClientTopicPartition(partition.topic, partition.partition) for partition in partitions]
        return [_plain(answer) for answer in consumer.committed(asked, timeout=seconds)]
    library = _library()
    listed = library.rd_kafka_topic_partition_list_new(0)
    try:
        for partition in partitions:
            library.rd_kafka_topic_partition_list_add(listed, partition.topic.encode(), partition.partition)
        code = library.rd_kafka_committed(handle, listed, int(seconds * 1000))
        if code:
            raise KafkaException(KafkaError(code))
        return [_fetched(listed.contents.elems[row]) for row in range(listed.contents.cnt)]
    finally:
        library.rd_kafka_topic_partition_list_destroy(listed)


def send_offsets(producer: Producer, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: Any, seconds: float) -> None:
    """Add input offsets to the open transaction.

    Args:
        group: `Consumer.consumer_group_metadata()`.

    Raises:
        KafkaException: as `Producer.send_offsets_to_transaction` raises it.
    """
    handle = _handle(producer)
    if handle is None:
        plain = [ClientTopicPartition(partition.topic, partition.partition, offset, text) for partition, (offset, text) in offsets.items()]
        producer.send_offsets_to_transaction(plain, group, seconds)
        return
    library = _library()
    metadata = ctypes.c_void_p()
    _check(library.rd_kafka_consumer_group_metadata_read(ctypes.byref(metadata), group, len(group)))
    listed = library.rd_kafka_topic_partition_list_new(len(offsets))
    texts = [ctypes.create_string_buffer(text.encode()) for _, text in offsets.values()]
    try:
        for partition in offsets:
            library.rd_kafka_topic_partition_list_add(listed, partition.topic.encode(), partition.partition)
        for row, ((offset, _), text) in enumerate(zip(offsets.values(), texts, strict=True)):
            element = listed.contents.elems[row]
            element.offset, element.metadata, element.metadata_size = offset, ctypes.addressof(text), len(text) - 1
        _check(library.rd_kafka_send_offsets_to_transaction(handle, listed, metadata, int(seconds * 1000)))
    finally:
        for row in range(listed.contents.cnt):  # Python owns the buffers; librdkafka would free them with the list
            listed.contents.elems[row].metadata = None
            listed.contents.elems[row].metadata_size = 0
        library.rd_kafka_topic_partition_list_destroy(listed)
        library.rd_kafka_consumer_group_metadata_destroy(metadata)


def _handle(client: object) -> ctypes.c_void_p | None:
    """Return librdkafka's handle of an open client; None for a closed client or one that is not confluent-kafka's."""
    if not isinstance(client, (Consumer, Producer)):
        return None
    address = ctypes.c_void_p.from_address(id(client) + _RK).value
    return None if address is None else ctypes.c_void_p(address)


def _fetched(element: _Element) -> FetchedOffset:
    data = ctypes.string_at(element.metadata, element.metadata_size) if element.metadata and element.metadata_size else b""
    error = KafkaError(element.err) if element.err else None
    return FetchedOffset(TopicPartition(element.topic.decode(), element.partition), element.offset, data, error)


def _plain(answer: ClientTopicPartition) -> FetchedOffset:
    metadata = (answer.metadata or "").encode()
    return FetchedOffset(TopicPartition(answer.topic, answer.partition), answer.offset, metadata, answer.error)


def _check(error: int | None) -> None:
    """Raise librdkafka's error object, if there is one, as confluent-kafka does."""
    if not error:
        return
    library = _library()
    try:
        raise KafkaException(
            KafkaError(
                library.rd_kafka_error_code(error),
                library.rd_kafka_error_string(error).decode("utf-8", "replace"),
                fatal=bool(library.rd_kafka_error_is_fatal(error)),
                retriable=bool(library.rd_kafka_error_is_retriable(error)),
                txn_requires_abort=bool(library.rd_kafka_error_txn_requires_abort(error)),
            )
        )
    finally:
        library.rd_kafka_error_destroy(error)


@cache
def _library() -> ctypes.CDLL:
    """Return librdkafka as loaded by confluent-kafka: its symbols are found through the extension module that depends on it."""
    library = ctypes.CDLL(cimpl.__file__)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    signatures: dict[str, tuple[object, ...]] = {
        "topic_partition_list_new": (_List, number),
        "topic_partition_list_add": (ctypes.POINTER(_Element), _List, ctypes.c_char_p, ctypes.c_int32),
        "topic_partition_list_destroy": (None, _List),
        "committed": (number, pointer, _List, number),
        "consumer_group_metadata_read": (pointer, ctypes.POINTER(pointer), ctypes.c_char_p, ctypes.c_size_t),
        "consumer_group_metadata_destroy": (None, pointer),
        "send_offsets_to_transaction": (pointer, pointer, _List, pointer, number),
        "error_code": (number, pointer),
        "error_string": (ctypes.c_char_p, pointer),
        "error_is_fatal": (number, pointer),
        "error_is_retriable": (number, pointer),
        "error_txn_requires_abort": (number, pointer),
        "error_destroy": (None, pointer),
    }
    try:
        for name, (returns, *takes) in signatures.items():
            function = getattr(library, f"rd_kafka_{name}")
            function.restype, function.argtypes = returns, takes
    except AttributeError as error:
        raise MissingPackageError(
            f"cannot find librdkafka's functions through {cimpl.__file__}: {error}",
            hint="install the confluent-kafka wheel from PyPI (pip install --force-reinstall confluent-kafka)",
        ) from error
    return library
