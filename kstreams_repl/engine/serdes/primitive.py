"""The serdes of Kafka's own clients: bytes, UTF-8 text, big-endian numbers, booleans, UUIDs, void. They write the same bytes as
Java's, also for malformed text."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID as Uuid

from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes, wrong_type

_LONG = struct.Struct(">q")
_INTEGER = struct.Struct(">i")
_DOUBLE = struct.Struct(">d")
_SHORT = struct.Struct(">h")
_FLOAT = struct.Struct(">f")
_UUID = re.compile(r"[+]?([0-9a-fA-F]{1,16})" + 4 * r"-[+]?([0-9a-fA-F]{1,16})")
"""The texts that Java's ``UUID.fromString`` accepts: five hexadecimal numbers, each truncated to the width of its field."""
_OWN_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HALVES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""A lone surrogate: Java reads one unreadable character, Python one per byte."""
_UNREADABLE = "\ufffd".encode()


def _number(name: str, layout: struct.Struct, text: str, *, kind: type | None = None) -> Serde:
    """Return the serde of a number.

    Args:
        kind: the type whose values are read back as they were written; None: there is none.
    """
    pack, unpack, size = layout.pack, layout.unpack, layout.size

    def serialize(value: object) -> bytes | None:
        try:
            return pack(value)
        except struct.error:
            if value is None:
                return None
            if isinstance(value, int):
                raise wrong_type(name, value, f"{text}; {value} is out of its range") from None
            raise wrong_type(name, value, text) from None
        except OverflowError:
            raise wrong_type(name, value, f"{text}; {value} is out of its range") from None

    def deserialize(data: bytes | None) -> object:
        try:
            return unpack(data)[0]  # type: ignore[arg-type]
        except (struct.error, TypeError):
            if data is None:
                return None
            raise wrong_bytes(name, data, f"exactly {size} bytes") from None

    def size_of(value: object) -> int:
        return size

    # struct.pack(">q", None) raises struct.error, so checking for None costs nothing for other values.
    if kind is None:
        return Serde(serialize, deserialize, name=name, none_safe=True)  # type: ignore[arg-type]
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
        whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # joins the halves of surrogate pairs
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


def _deserialize_strings(column: Sequence[bytes | None]) -> list[str | None]:
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


def _serialize_boolean(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    raise wrong_type("boolean", value, "a bool")


def _deserialize_boolean(data: bytes | None) -> bool | None:
    if data == b"\x01":
        return True
    if data == b"\x00":
        return False
    if data is None:
        return None
    raise wrong_bytes("boolean", data, "one byte, 00 or 01")


def _serialize_uuid(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, Uuid):
        return str(value).encode()
    raise wrong_type("uuid", value, "a uuid.UUID")


def _deserialize_uuid(data: bytes | None) -> Uuid | None:
    if data is None:
        return None
    match = _UUID.fullmatch(data.decode("utf-8", "replace")) if len(data) <= 36 else None
    if match is None:
        raise wrong_bytes("uuid", data, "its text, such as 123e4567-e89b-12d3-a456-426614174000")
    bits = 0
    for group, size in zip(match.groups(), (32, 16, 16, 16, 48), strict=True):
        bits = bits << size | int(group, 16) & (1 << size) - 1
    return Uuid(int=bits)


def _serialize_void(value: object) -> bytes | None:
    if value is None:
        return None
    raise wrong_type("void", value, "None, and nothing else")


def _deserialize_void(data: bytes | None) -> None:
    if data is not None:
        raise wrong_bytes("void", data, "null")


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
LONG = _number("long", _LONG, "an int of 64 bits, 8 bytes big-endian", kind=int)
INTEGER = _number("integer", _INTEGER, "an int of 32 bits, 4 bytes big-endian", kind=int)
DOUBLE = _number("double", _DOUBLE, "a float, 8 bytes big-endian", kind=float)
SHORT = _number("short", _SHORT, "an int of 16 bits, 2 bytes big-endian", kind=int)
FLOAT32 = _number("float32", _FLOAT, "a float of 32 bits, 4 bytes big-endian")
BOOLEAN = Serde(
    _serialize_boolean,  # type: ignore[arg-type]
    _deserialize_boolean,
    name="boolean",
    passthrough=True,
    canonical=lambda data: data in (b"\x00", b"\x01"),
    immutable=(bool,),
    size_of=lambda value: 1,
    none_safe=True,
)
UUID = Serde(
    _serialize_uuid,  # type: ignore[arg-type]
    _deserialize_uuid,
    name="uuid",
    passthrough=True,
    canonical=lambda data: _OWN_UUID.fullmatch(data) is not None,
    immutable=(Uuid,),
    size_of=lambda value: 36,
    none_safe=True,
)
VOID = Serde(_serialize_void, _deserialize_void, name="void", none_safe=True)  # type: ignore[arg-type]
