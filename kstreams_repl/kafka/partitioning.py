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


_FEW = 8
"""Keys of one length that are hashed one by one."""
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
    if len(keys) >= _FEW and len(lengths := set(map(len, keys))) == 1:
        return [number % partitions for number in _positive_murmur2_of_many(keys, lengths.pop())]
    by_length: dict[int, list[int]] = {}
    for at, length in enumerate(map(len, keys)):
        by_length.setdefault(length, []).append(at)
    found = [0] * len(keys)
    for length, places in by_length.items():
        if len(places) < _FEW:
            for at in places:
                found[at] = partition_for_key(keys[at], partitions)
            continue
        for at, number in zip(places, _positive_murmur2_of_many([keys[at] for at in places], length), strict=True):
            found[at] = number % partitions
    return found


def _positive_murmur2_of_many(keys: Sequence[bytes], length: int) -> tuple[int, ...]:
    """Return the lower 31 bits of the murmur2 of keys of one length.

    All keys are hashed by the same operations on one long integer, in which each key has 64 bits: a product of two 32-bit numbers stays
    in them, and the mask removes what a shift takes from the neighbour.
    """
    count, joined = len(keys), b"".join(keys)
    mask = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    h = int.from_bytes(((_SEED ^ length) & _MASK).to_bytes(8, "little") * count, "little")

    def column(first: int, last: int) -> int:
        """The bytes first to last of each key, as little-endian numbers."""
        lanes = bytearray(8 * count)
        for at in range(first, last):
            lanes[at - first :: 8] = joined[at::length]
        return int.from_bytes(lanes, "little")

    whole = length & ~3
    for first in range(0, whole, 4):
        k = column(first, first + 4) * _M & mask
        h = (h * _M & mask) ^ (((k ^ k >> 24) & mask) * _M & mask)
    if length > whole:
        h = (h ^ column(whole, length)) * _M & mask
    h = ((h ^ h >> 13) & mask) * _M & mask
    h = (h ^ h >> 15) & int.from_bytes(b"\xff\xff\xff\x7f\0\0\0\0" * count, "little")
    return struct.unpack(f"<{count}Q", h.to_bytes(8 * count, "little"))


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
    """Return the same as `partitioner` for a column of keys; those that are not cached are hashed together."""
    if partitions == 1:
        return lambda keys: [0] * len(keys)
    seen: dict[bytes, int] = {}
    recall = seen.get

    def partitions_of(keys: Sequence[bytes]) -> list[int]:
        places: list[int | None] = list(map(recall, keys))
        if None in places:
            if len(seen) >= MEMO_LIMIT:
                seen.clear()
            where = [at for at, place in enumerate(places) if place is None]
            missing = [keys[at] for at in where]
            for at, key, place in zip(where, missing, partitions_for_keys(missing, partitions), strict=True):
                places[at] = seen[key] = place
        return places  # type: ignore[return-value]

    return partitions_of


def base_key_of_windowed(key: bytes, *, session: bool = False) -> bytes:
    """Return the plain key of a serialized windowed key: without the 8 bytes of the start, or the 16 of both bounds (sessions)."""
    return key[:-16] if session else key[:-8]


def partition_for_windowed_key(key: bytes, partitions: int, *, session: bool = False) -> int:
    """Return the partition of a serialized windowed key, which is that of its plain key."""
    return partition_for_key(base_key_of_windowed(key, session=session), partitions)
