"""Murmur3, 128 bits, x64 variant: the hash by which foreign-key joins compare left values.

The result is that of Kafka Streams' `Murmur3.hash128` with its default seed.
"""

from __future__ import annotations

import struct

_SEED = 104729
_MASK = 0xFFFFFFFFFFFFFFFF
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_TWO_BLOCKS = struct.Struct("<QQ")
_RESULT = struct.Struct(">QQ")


def hash128(data: bytes, seed: int = _SEED) -> bytes:
    """Return the hash as 16 bytes: two big-endian 64-bit halves, as Kafka Streams writes it."""
    h1 = h2 = seed
    whole = len(data) & ~15
    for k1, k2 in _TWO_BLOCKS.iter_unpack(data[:whole]):
        h1 ^= _mix_first(k1)
        h1 = (h1 << 27 | h1 >> 37) & _MASK
        h1 = ((h1 + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix_second(k2)
        h2 = (h2 << 31 | h2 >> 33) & _MASK
        h2 = ((h2 + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[whole:]
    if len(tail) > 8:
        h2 ^= _mix_second(int.from_bytes(tail[8:], "little"))
    if tail:
        h1 ^= _mix_first(int.from_bytes(tail[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finish(h1), _finish(h2)
    h1 = (h1 + h2) & _MASK
    return _RESULT.pack(h1, (h2 + h1) & _MASK)


def _mix_first(k: int) -> int:
    k = k * _C1 & _MASK
    return (k << 31 | k >> 33) * _C2 & _MASK


def _mix_second(k: int) -> int:
    k = k * _C2 & _MASK
    return (k << 33 | k >> 31) * _C1 & _MASK


def _finish(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33
