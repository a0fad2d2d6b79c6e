"""Kafka's default partitioner: murmur2 of the key, bit for bit as the Java producer and Kafka Streams compute it.

librdkafka agrees with ``partitioner=murmur2_random`` (set in `clients`). This module computes the same in Python for topics whose
partition is chosen here, for lookups by key and for co-partitioning. Null keys have no fixed partition: callers distribute them.
A windowed key is partitioned by its plain key, so that all windows of a key stay in one partition (`engine/runtime/nodes/sinks.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C

MEMO_LIMIT = 131_072
"""Number of keys a `partitioner` memoises before it clears its cache; about 20 MB at 100 bytes per key."""


_FEW = 32
"""Fewer keys of one length are hashed one by one."""
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


def partitions_for_keys(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return `partition_for_key` of each key; for many keys of few lengths at a fraction of the cost.

    Example:
        >>> partitions_for_keys([b"abc", b"abd", b"abcdefgh"], 12) == [partition_for_key(key, 12) for key in (b"abc", b"abd", b"abcdefgh")]
        True
    """
    if partitions == 1:
        return [0] * len(keys)
    lengths = set(map(len, keys))
    if len(lengths) == 1 and len(keys) >= _FEW:
        return _partitions_of_one_length(keys, lengths.pop(), partitions)
    by_length: dict[int, list[int]] = {}
    for index, length in enumerate(map(len, keys)):
        by_length.setdefault(length, []).append(index)
    numbered = [0] * len(keys)
    for length, places in by_length.items():
        same = [keys[index] for index in places]
        if len(same) < _FEW:
            numbers = [partition_for_key(key, partitions) for key in same]
        else:
            numbers = _partitions_of_one_length(same, length, partitions)
        for index, number in zip(places, numbers, strict=True):
            numbered[index] = number
    return numbered


def _partitions_of_one_length(keys: Sequence[bytes], length: int, partitions: int) -> list[int]:
    if not length:
        return [partition_for_key(b"", partitions)] * len(keys)
    import numpy

    word, multiplier = numpy.uint32, numpy.uint32(_M)
    filler = b"\0" * (-length & 3)
    words = numpy.frombuffer(filler.join(keys) + filler, "<u4").reshape(len(keys), -1)
    h = numpy.full(len(keys), (_SEED ^ length) & _MASK, word)
    for index in range(length >> 2):
        k = words[:, index] * multiplier
        k ^= k >> word(24)
        k *= multiplier
        h *= multiplier
        h ^= k
    if filler:
        h ^= words[:, -1]
        h *= multiplier
    h ^= h >> word(13)
    h *= multiplier
    h ^= h >> word(15)
    h &= word(0x7FFFFFFF)
    partition: list[int] = (h % word(partitions)).tolist()
    return partition


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
