"""Conversion between a store's objects and the bytes in its engine and its changelog.

A plain store has the serialized value in both. The object of a timestamped store is the tuple `(value, timestamp)`: its engine
holds `int64 timestamp‖value`, its changelog only the value, in a record with that timestamp, byte for byte as Kafka Streams does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import add, itemgetter
from typing import Any

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.system.types import Deserialize, Headers

_TIMESTAMP = struct.Struct(">q")
SMALL = 512
"""Maximum length (bytes or characters) of a value that stays cached for reads after it was flushed."""

NO_TYPES: frozenset[type] = frozenset()
TEXTS: frozenset[type] = frozenset({str, bytes})
"""Types whose values can be long."""

_WITHOUT_TIMESTAMP: Callable[[Any], bytes] = itemgetter(slice(8, None))


class Codec:
    """Converts one store's values between object, stored bytes and changelog record."""

    __slots__ = (
        "timestamped", "serde", "encode", "decode", "log_value", "log_timestamp", "encode_many", "log_values", "deferrable", "size_of",
        "log_headers", "encode_data",
    )  # fmt: skip

    def __init__(self, serde: Serde, *, timestamped: bool) -> None:
        self.timestamped = timestamped
        self.serde = serde
        self.deferrable = serde.immutable
        self.encode: Callable[[Any], bytes | None]
        self.decode: Deserialize
        self.encode_data: Callable[[Sequence[bytes], Sequence[int]], list[bytes | None]] = _same_data
        """(serialized values, timestamps) -> stored bytes."""
        self.log_value: Callable[[bytes], bytes]
        self.log_timestamp: Callable[[bytes, int], int]
        self.encode_many: Callable[[Sequence[Any], Sequence[int]], list[bytes | None]]
        """(values, timestamps), no value None: encode two columns of objects; only a timestamped store uses the timestamps."""
        self.log_values: Callable[[Sequence[bytes]], Sequence[bytes | None]] = _same_column
        """Returns the changelog values of stored rows, none of which is a deletion."""
        self.log_headers: Callable[[bytes | None], Headers] | None = None
        """(stored bytes, or None for a deletion) -> headers of the changelog record; None: there are none."""
        if timestamped:
            self._use_timestamps(serde)
            if serde.layout is not None:
                self._use_layout(struct.Struct(">q" + serde.layout))
        else:
            self.encode = serde.serialize
            self.decode = serde.deserialize
            self.log_value = _same
            self.log_timestamp = _of_the_record
            self.encode_many = lambda values, timestamps: list(map(serde.serialize, values))
        size_of = serde.size_of
        self.size_of: Callable[[Any], int] = (lambda item: 8 + size_of(item[0])) if timestamped else size_of

    def _use_timestamps(self, serde: Serde) -> None:
        serialize, deserialize = serde.serialize, serde.deserialize
        pack, unpack_from = _TIMESTAMP.pack, _TIMESTAMP.unpack_from

        def encode(item: Any) -> bytes | None:
            if item is None:
                return None
            value, timestamp = item
            data = serialize(value)
            return None if data is None else pack(timestamp) + data

        def decode(data: bytes) -> tuple[Any, int]:
            return deserialize(data[8:]), unpack_from(data)[0]

        self.encode = encode
        self.decode = decode
        self.encode_data = lambda column, timestamps: list(map(add, map(pack, timestamps), column))
        self.log_value = _WITHOUT_TIMESTAMP
        self.log_timestamp = lambda data, record_timestamp: unpack_from(data)[0]
        self.log_values = lambda stored: list(map(_WITHOUT_TIMESTAMP, stored))
        self.encode_many = lambda values, timestamps: list(map(encode, zip(values, timestamps, strict=True)))

    def _use_layout(self, layout: struct.Struct) -> None:
        """Pack a number and its timestamp with one struct. Values that do not fit take the slow path, whose error says what is wrong
        with the value."""
        pack, unpack, encode, decode = layout.pack, layout.unpack, self.encode, self.decode

        def encode_many(values: Sequence[object], timestamps: Sequence[int]) -> list[bytes | None]:
            try:
                return list(map(pack, timestamps, values))
            except struct.error:
                return list(map(encode, zip(values, timestamps, strict=True)))

        def decode_number(data: bytes) -> tuple[object, int]:
            try:
                timestamp, value = unpack(data)
            except struct.error:
                value, timestamp = decode(data)
            return value, timestamp

        self.encode_many = encode_many
        self.decode = decode_number


def _same(data: bytes) -> bytes:
    return data


def _same_data(column: Sequence[bytes], timestamps: Sequence[int]) -> list[bytes | None]:
    return list(column)


def _same_column(stored: Sequence[bytes]) -> Sequence[bytes]:
    return stored


def _of_the_record(data: bytes, record_timestamp: int) -> int:
    return record_timestamp
