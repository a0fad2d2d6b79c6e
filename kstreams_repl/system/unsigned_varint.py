"""Numbers of variable length: seven bits per byte, the lowest first; the last byte is below 128. Kafka's unsigned varints."""

from __future__ import annotations

_MOST_BITS = 63


def unsigned_varint(number: int) -> bytes:
    """Encode a number that is not negative.

    Example:
        >>> unsigned_varint(300).hex()
        'ac02'
    """
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)


def read_unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it.

    Raises:
        IndexError: it is cut off.
        ValueError: it has more than 64 bits.

    Example:
        >>> read_unsigned_varint(bytes.fromhex("ac02"), 0)
        (300, 2)
    """
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7
        if shift > _MOST_BITS:
            raise ValueError("invalid number")
