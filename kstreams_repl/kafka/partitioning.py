"""Kafka's default partitioner: murmur2 of the key, bit for bit as the Java producer and Kafka Streams compute it.

librdkafka agrees with ``partitioner=murmur2_random`` (set in `clients`). This module computes the same in Python for topics whose
partition is chosen here, for lookups by key and for co-partitioning. Null keys have no fixed partition: callers distribute them.
A windowed key is partitioned by its plain key (`base_key_of_windowed`), so that all windows of a key stay in one partition.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C

MEMO_LIMIT = 131_072
"""Number of keys a `partitioner` memoises before it clears its cache; about 20 MB at 100 bytes per key."""


_SMALL_WORDS = tuple(struct.Struct(f"<{count}I") for count in range(64))


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of the bytes as a signed integer.

    Example:
        >>> murmur2(b"a"), murmur2(b"")
        (-1563381124, 275646681)
    """
    length = len(data)
    h = _SEED ^ length
    count = length >> 2
    tail = length & 3
    if count:
        words = _SMALL_WORDS[count] if count < 64 else struct.Struct(f"<{count}I")
        for k in words.unpack_from(data):
            k = k * _M & _MASK
            h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if tail:
        h = (h ^ int.from_bytes(data[length - tail :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - 0x100000000 if h >> 31 else h


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a serialized key: positive murmur2 modulo ``partitions``.

    Example:
        >>> partition_for_key(b"abc", 12)
        3
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitioner(partitions: int) -> Callable[[bytes], int]:
    """Return `partition_for_key` for a fixed number of partitions, memoised in a bounded cache; for the record path.

    Not thread-safe: results stay correct, but the cache may exceed its bound.
    """
    if partitions == 1:
        return lambda key: 0
    seen: dict[bytes, int] = {}
    recall = seen.get

    def partition_of(key: bytes) -> int:
        partition = recall(key)
        if partition is None:
            if len(seen) >= MEMO_LIMIT:
                seen.clear()
            partition = seen[key] = (murmur2(key) & 0x7FFFFFFF) % partitions
        return partition

    return partition_of


def partitioner_of_columns(partitions: int) -> Callable[[Sequence[bytes]], list[int]]:
    """Return the same as `partitioner` for a column of keys; only keys that are not cached cost a call."""
    if partitions == 1:
        return lambda keys: [0] * len(keys)
    seen: dict[bytes, int] = {}
    recall = seen.get

    def partitions_of(keys: Sequence[bytes]) -> list[int]:
        places: list[int | None] = list(map(recall, keys))
        if None in places:
            if len(seen) >= MEMO_LIMIT:
                seen.clear()
            for at, place in enumerate(places):
                if place is None:
                    key = keys[at]
                    places[at] = seen[key] = (murmur2(key) & 0x7FFFFFFF) % partitions
        return places  # type: ignore[return-value]

    return partitions_of


def base_key_of_windowed(key: bytes, *, session: bool = False) -> bytes:
    """Return the plain key of a serialized windowed key: without the 8 bytes of the start, or the 16 of both bounds (sessions)."""
    return key[:-16] if session else key[:-8]


def partition_for_windowed_key(key: bytes, partitions: int, *, session: bool = False) -> int:
    """Return the partition of a serialized windowed key, which is that of its plain key."""
    return partition_for_key(base_key_of_windowed(key, session=session), partitions)
