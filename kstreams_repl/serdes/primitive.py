"""The serdes of Kafka's own clients: bytes, UTF-8 text, big-endian numbers. Same bytes as Java's, including for malformed text."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

from kstreams_repl.serdes.base import Serde, wrong_bytes, wrong_type

_LONG = struct.Struct(">q")
_INTEGER = struct.Struct(">i")
_DOUBLE = struct.Struct(">d")
_HALVES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""A surrogate by itself: one unreadable character to Java, one for each byte to Python."""
_UNREADABLE = "\ufffd".encode()


def _number(name: str, layout: struct.Struct, kind: type, text: str) -> Serde:
    pack, unpack, size = layout.pack, layout.unpack, layout.size

    def serialize(value: Any) -> bytes | None:
        try:
            return pack(value)
        except struct.error:
            if value is None:
                return None
            if isinstance(value, int):
                raise wrong_type(name, value, f"{text}; {value} is out of its range") from None
            raise wrong_type(name, value, text) from None

    def deserialize(data: bytes | None) -> Any:
        try:
            return unpack(data)[0]  # type: ignore[arg-type]
        except (struct.error, TypeError):
            if data is None:
                return None
            raise wrong_bytes(name, data, f"exactly {size} bytes") from None

    def size_of(value: Any) -> int:
        return size

    # struct.pack(">q", None) raises struct.error, so None costs nothing on the good path.
    return Serde(
        serialize,  # type: ignore[arg-type]
        deserialize,
        name=name,
        passthrough=True,
        canonical=lambda data: len(data) == size,
        immutable=(kind,),
        size_of=size_of,
        none_safe=True,
        layout=layout.format[-1],
        deserialize_many=lambda column: [number for (number,) in map(unpack, column)],  # type: ignore[arg-type]
    )


def _serialize_bytes(value: Any) -> bytes | None:
    kind = type(value)
    if kind is bytes or value is None:
        return value  # type: ignore[no-any-return]
    if kind is bytearray or kind is memoryview:
        return bytes(value)
    raise wrong_type("bytes", value, "bytes")


def _serialize_string(value: Any) -> bytes | None:
    try:
        return value.encode()  # type: ignore[no-any-return]
    except AttributeError:
        if value is None:
            return None
        raise wrong_type("string", value, "str") from None
    except UnicodeEncodeError:
        whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # two halves that belong together are one
        return whole.encode("utf-8", "replace")  # type: ignore[no-any-return]


def _deserialize_string(data: bytes | None) -> str | None:
    try:
        return data.decode()  # type: ignore[union-attr]
    except AttributeError:
        if data is None:
            return None
        raise wrong_bytes("string", data, "bytes") from None
    except UnicodeDecodeError:
        return _HALVES.sub(_UNREADABLE, data).decode("utf-8", "replace")  # type: ignore[arg-type]


def _deserialize_strings(column: Sequence[bytes | None]) -> list[Any]:
    try:
        return list(map(bytes.decode, column))  # type: ignore[arg-type]
    except (TypeError, UnicodeDecodeError):
        return list(map(_deserialize_string, column))


def _canonical_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


BYTES = Serde(
    _serialize_bytes,  # type: ignore[arg-type]
    lambda data: data,
    name="bytes",
    passthrough=True,
    canonical=lambda data: True,
    immutable=(bytes,),
    none_safe=True,
    deserialize_many=list,
    ascii_safe=True,
)
STRING = Serde(
    _serialize_string,  # type: ignore[arg-type]
    _deserialize_string,
    name="string",
    passthrough=True,
    canonical=_canonical_text,
    immutable=(str,),
    none_safe=True,
    deserialize_many=_deserialize_strings,
    ascii_safe=True,
)
LONG = _number("long", _LONG, int, "an int of 64 bits, 8 bytes big-endian")
INTEGER = _number("integer", _INTEGER, int, "an int of 32 bits, 4 bytes big-endian")
DOUBLE = _number("double", _DOUBLE, float, "a float, 8 bytes big-endian")
