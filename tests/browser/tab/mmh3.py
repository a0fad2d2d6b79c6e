"""What the wheel calls of mmh3, in Python: MurmurHash3 of 128 bits, for 64-bit machines."""

from __future__ import annotations

_ALL = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _ALL


def _mixed(number: int) -> int:
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _ALL
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _ALL
    return number ^ number >> 33


def mmh3_x64_128_utupledigest(key: bytes, seed: int = 0) -> tuple[int, int]:
    first = second = seed
    whole = len(key) - len(key) % 16
    for at in range(0, whole + 1, 16):  # the last round is what is left, which may be nothing
        low, high = int.from_bytes(key[at : at + 8], "little"), int.from_bytes(key[at + 8 : at + 16], "little")
        first ^= _rotated(low * _C1 & _ALL, 31) * _C2 & _ALL
        if at < whole:
            first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & _ALL
        second ^= _rotated(high * _C2 & _ALL, 33) * _C1 & _ALL
        if at < whole:
            second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & _ALL
    first, second = first ^ len(key), second ^ len(key)
    first = (first + second) & _ALL
    second = (second + first) & _ALL
    first, second = _mixed(first), _mixed(second)
    first = (first + second) & _ALL
    return first, (second + first) & _ALL
