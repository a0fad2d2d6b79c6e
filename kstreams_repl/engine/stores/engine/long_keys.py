"""Keys longer than LMDB's limit (511 bytes), kept in order.

A key of up to 510 bytes is stored as it is. Longer keys share a *bucket* under their first 511 bytes; the bucket's value lists
the rest of each key with its value, sorted. Every key in a bucket lies between the bucket's neighbours in the tree, so iteration
is in key order for all lengths. A bucket is rewritten once per commit, however many of its keys changed.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable

BUCKET_SIZE = 511

_COUNT = struct.Struct(">I")
_SIZES = struct.Struct(">II")

Bucket = list[tuple[bytes, bytes]]
"""(rest of the key, value), sorted."""


def decode(data: bytes) -> Bucket:
    (count,) = _COUNT.unpack_from(data)
    position, bucket = 4, []
    for _ in range(count):
        rest_size, value_size = _SIZES.unpack_from(data, position)
        position += 8
        bucket.append((data[position : position + rest_size], data[position + rest_size : position + rest_size + value_size]))
        position += rest_size + value_size
    return bucket


def encode(bucket: Bucket) -> bytes:
    parts = [_COUNT.pack(len(bucket))]
    for rest, value in bucket:
        parts += [_SIZES.pack(len(rest), len(value)), rest, value]
    return b"".join(parts)


def find(data: bytes, key: bytes) -> bytes | None:
    """Return the value of a full key in its bucket."""
    bucket, rest = decode(data), key[BUCKET_SIZE:]
    index = bisect_left(bucket, (rest,))
    return bucket[index][1] if index < len(bucket) and bucket[index][0] == rest else None


def change(data: bytes | None, changes: Iterable[tuple[bytes, bytes | None]]) -> bytes | None:
    """Return the bucket with full keys put (None: deleted); None when the bucket becomes empty."""
    rows = dict(decode(data)) if data is not None else {}
    for key, value in changes:
        if value is None:
            rows.pop(key[BUCKET_SIZE:], None)
        else:
            rows[key[BUCKET_SIZE:]] = value
    return encode(sorted(rows.items())) if rows else None
