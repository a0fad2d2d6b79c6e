"""Between a store's objects and the bytes in its engine and its changelog.

A plain store keeps the serialized value in both places. A timestamped store's object is the tuple `(value, timestamp)`: its engine holds
`int64 timestamp‖value`, its changelog the value alone in a record of that timestamp, byte for byte as Kafka Streams.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kstreams_repl.serdes import Serde

_TIMESTAMP = struct.Struct(">q")


class Codec:
    """Object <-> stored bytes <-> changelog record of one store's values."""

    __slots__ = ("timestamped", "serde", "encode", "decode", "log_value", "log_timestamp", "deferrable", "size_of")

    def __init__(self, serde: Serde, *, timestamped: bool) -> None:
        self.timestamped = timestamped
        self.serde = serde
        self.deferrable = serde.immutable
        self.encode: Callable[[Any], bytes | None]
        self.decode: Callable[[bytes], Any]
        self.log_value: Callable[[bytes], bytes]
        self.log_timestamp: Callable[[bytes, int], int]
        if timestamped:
            self._use_timestamps(serde)
        else:
            self.encode = serde.serialize
            self.decode = serde.deserialize
            self.log_value = _same
            self.log_timestamp = _of_the_record
        size_of = serde.size_of
        self.size_of: Callable[[Any], int] = (lambda cell: 8 + size_of(cell[0])) if timestamped else size_of

    def _use_timestamps(self, serde: Serde) -> None:
        serialize, deserialize = serde.serialize, serde.deserialize
        pack, unpack_from = _TIMESTAMP.pack, _TIMESTAMP.unpack_from

        def encode(cell: Any) -> bytes | None:
            if cell is None:
                return None
            value, timestamp = cell
            data = serialize(value)
            return None if data is None else pack(timestamp) + data

        def decode(data: bytes) -> tuple[Any, int]:
            return deserialize(data[8:]), unpack_from(data)[0]

        self.encode = encode
        self.decode = decode
        self.log_value = lambda data: data[8:]
        self.log_timestamp = lambda data, record_timestamp: unpack_from(data)[0]


def _same(data: bytes) -> bytes:
    return data


def _of_the_record(data: bytes, record_timestamp: int) -> int:
    return record_timestamp
