"""Changes of a regrouped table as bytes in a repartition topic: `new‖01`, `old‖00`, or `varint length of new‖new‖old‖02`.

The last byte is the layout. Layouts 03 to 05 have one more byte before it, `is_latest`; they are read, never written. Source:
Kafka Streams' ChangedSerializer and ChangedDeserializer, KIP-904, KIP-914.
"""

from __future__ import annotations

from kstreams_repl.engine.serdes.deferred import around
from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes
from kstreams_repl.system.errors import SerializationError

_OLD, _NEW, _BOTH = b"\x00", b"\x01", b"\x02"
_WITH_IS_LATEST = 3


def change(value_serde: Serde | None = None) -> object:
    """Return the serde of `(new, old, is_latest)` tuples whose values `value_serde` writes; None: the application's default
    serde."""
    return around(_change, value_serde, "value")


def _change(inner: Serde) -> Serde:
    to_bytes, from_bytes = inner.serialize, inner.deserialize

    def serialize(value: tuple[object, object, bool]) -> bytes:
        new, old = to_bytes(value[0]), to_bytes(value[1])
        if new is None:
            if old is None:
                raise SerializationError("a change without new and old value cannot be written", serde="change")
            return old + _OLD
        if old is None:
            return new + _NEW
        return varint(len(new)) + new + old + _BOTH

    def deserialize(data: bytes) -> tuple[object, object, bool]:
        kind, end, is_latest = data[-1] if data else 255, len(data) - 1, True
        if kind > 5:
            raise wrong_bytes("change", data, "a new value, an old value or both, followed by one byte from 0 to 5")
        if kind >= _WITH_IS_LATEST:
            if end < 1:
                raise wrong_bytes("change", data, "whether it is the latest, before the last byte")
            end, kind = end - 1, kind - _WITH_IS_LATEST
            is_latest = data[end] == 1
        if kind == 0:
            return None, from_bytes(data[:end]), is_latest
        if kind == 1:
            return from_bytes(data[:end]), None, is_latest
        size, start = read_varint(data)
        middle = start + size
        if middle > end:
            raise wrong_bytes("change", data, f"a new value of {size} bytes")
        return from_bytes(data[start:middle]), from_bytes(data[middle:end]), is_latest

    return Serde(serialize, deserialize, name=f"change({inner.name})", recipe=(_change, (inner,)))


def varint(number: int) -> bytes:
    """Return a non-negative number as Kafka's variable-length integer: zig-zag, seven bits per byte, lowest first."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes, position: int = 0) -> tuple[int, int]:
    """Return (number, index of the first byte after it)."""
    number = shift = 0
    for index, byte in enumerate(data[position:] if position else data, position):
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1, index + 1
        shift += 7
    raise wrong_bytes("change", data, "a length at the front")
