"""The messages between the two sides of a foreign-key join, as values and as bytes.

From left to right a *subscription*, keyed by the foreign key, with a hash of the left row. From right to left a *response*, keyed
by the primary key, with that hash, by which the left side detects stale responses. The store of subscriptions is keyed by both
keys. Source: Kafka Streams' SubscriptionWrapperSerde, SubscriptionResponseWrapperSerde, CombinedKeySchema; KIP-213, KIP-775.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import mmh3

from kstreams_repl.engine.serdes.deferred import around
from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes
from kstreams_repl.system.errors import SerializationError

DELETE_KEY_NO_PROPAGATE = 0
"""Unsubscribe without a response."""
DELETE_KEY_AND_PROPAGATE = 1
"""Unsubscribe, and respond with None."""
PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
"""Subscribe, and respond with the row, or with None if there is none."""
PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3
"""Subscribe, and respond only if there is a row."""

FOREIGN_KEY, PRIMARY_KEY, VALUE_HASH = "-fk", "-pk", "-vh"
"""What `pseudo_topic` stands for: foreign keys, primary keys, and the left value in its hash."""

_HASH_IS_NULL = 0x80
_HASH_SIZE = 16
_LENGTH = struct.Struct(">i")
_HASH = struct.Struct(">QQ")
_SEED = 104729


def hash128(data: bytes) -> bytes:
    """Return the hash of a left row: Kafka Streams' `Murmur3.hash128` with its default seed, two big-endian 64-bit halves.

    Example:
        >>> hash128(b"abc").hex()
        '8cc66bdf24a3b65ee942bed9d38bee40'
    """
    return _HASH.pack(*mmh3.mmh3_x64_128_utupledigest(data, _SEED))


def pseudo_topic(application_id: str, registration_topic: str, part: str) -> str:
    """Return the topic for which a part of a subscription is serialized: it names the subject of the part's schema.

    Example:
        >>> pseudo_topic("app", "join-subscription-registration-topic", PRIMARY_KEY)
        'app-join-subscription-registration-topic-pk'
    """
    return f"{application_id}-{registration_topic}{part}"


class Subscription(NamedTuple):
    """A left row's subscription to a right row.

    Attributes:
        hash: Murmur3 of the serialized left value, 16 bytes; None when the left row was deleted.
        instruction: one of the four constants above.
        primary_key: key of the left row.
        primary_partition: partition of the left row, to which responses are sent; None in records of version 0.
    """

    hash: bytes | None
    instruction: int
    primary_key: object
    primary_partition: int | None


class SubscriptionResponse(NamedTuple):
    """The response with a right row for one left row.

    Attributes:
        hash: the hash in the subscription.
        foreign_value: value of the right row; None if there is none.
        primary_partition: partition to send it to; not serialized, so None after reading.
    """

    hash: bytes | None
    foreign_value: object
    primary_partition: int | None = None


def subscription(primary_key_serde: Serde | None = None) -> object:
    """Return the serde of `Subscription`; None: the application's default key serde."""
    return around(_subscription, primary_key_serde, "key")


def _subscription(inner: Serde) -> Serde:
    to_bytes, from_bytes = inner.serialize, inner.deserialize

    def serialize(value: Subscription) -> bytes:
        digest, instruction, primary_key, partition = value
        data = to_bytes(primary_key)
        if data is None:
            raise SerializationError("a subscription of a foreign-key join needs a primary key", serde="subscription")
        if partition is None:  # read as version 0, so written as version 0
            version, tail = 0, b""
        else:
            version, tail = 1, _LENGTH.pack(partition)
        if digest is None:
            return bytes((version | _HASH_IS_NULL, instruction)) + data + tail
        return bytes((version, instruction)) + digest + data + tail

    def deserialize(data: bytes) -> Subscription:
        least = 2 + (0 if data[:1] >= b"\x80" else _HASH_SIZE) + (4 if data[:1] in (b"\x01", b"\x81") else 0)
        if len(data) < least:
            raise wrong_bytes("subscription", data, f"at least {least}")
        version, instruction = data[0] & 0x7F, data[1]
        if version > 1 or instruction > PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
            raise wrong_bytes("subscription", data, "version 0 or 1 and an instruction from 0 to 3")
        digest, start, end, partition = None, 2, len(data), None
        if not data[0] & _HASH_IS_NULL:
            start += _HASH_SIZE
            digest = data[2:start]
        if version:
            end -= 4
            partition = _LENGTH.unpack_from(data, end)[0]
        return Subscription(digest, instruction, from_bytes(data[start:end]), partition)

    def bind(topic: str | None, part: object, registry: object) -> Serde:
        bound = inner.for_topic(topic and topic + PRIMARY_KEY, "key", registry)
        return itself if bound is inner else _subscription(bound)

    itself = Serde(serialize, deserialize, name=f"subscription({inner.name})", recipe=(_subscription, (inner,)), bind=bind)
    return itself


def subscription_response(value_serde: Serde | None = None) -> object:
    """Return the serde of `SubscriptionResponse`; None: the application's default value serde."""
    return around(_subscription_response, value_serde, "value")


def _subscription_response(inner: Serde) -> Serde:
    to_bytes, from_bytes = inner.serialize, inner.deserialize

    def serialize(value: SubscriptionResponse) -> bytes:
        data = to_bytes(value[1]) or b""
        return b"\x80" + data if value[0] is None else b"\x00" + value[0] + data

    def deserialize(data: bytes) -> SubscriptionResponse:
        if data[:1] not in (b"\x00", b"\x80") or (data[0] == 0 and len(data) <= _HASH_SIZE):
            raise wrong_bytes("subscription response", data, "version 0, and a hash unless there is none")
        if data[0] & _HASH_IS_NULL:
            digest, rest = None, data[1:]
        else:
            digest, rest = data[1 : 1 + _HASH_SIZE], data[1 + _HASH_SIZE :]
        return SubscriptionResponse(digest, from_bytes(rest) if rest else None)

    return Serde(serialize, deserialize, name=f"subscription-response({inner.name})", recipe=(_subscription_response, (inner,)))


def foreign_key_prefix(foreign_key: bytes) -> bytes:
    """Return the common prefix of the keys of one foreign key's subscriptions."""
    return _LENGTH.pack(len(foreign_key)) + foreign_key


def response_partitioner(topic: str, key: object, value: SubscriptionResponse, partitions: int) -> int | None:
    """Return the partition of the left row that subscribed."""
    return value[2]
