"""The serialized value of a suppress or join-grace buffer: the record's context, then prior, old and new value.
The layout is Kafka Streams' (`ProcessorRecordContext`, `BufferValue`), version 3 of the suppress changelog.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from kstreams_repl.engine.serdes.serde import wrong_bytes
from kstreams_repl.system.types import Headers

_CONTEXT = struct.Struct(">qqi")
_INT = struct.Struct(">i")
_NULL = -1
_SAME_AS_PRIOR = -2

Context = tuple[str | None, int, int, int, Headers]
"""(topic, partition, offset, timestamp, headers): `ContextSnapshot`, or any tuple of the same shape."""


@dataclass(slots=True)
class BufferValue:
    """One buffered record; `prior` is the key's value before it was buffered."""

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    context: Context

    def size(self) -> int:
        """Return Kafka Streams' estimate of the memory used, in bytes, for limits in bytes."""
        total = len(self.prior or b"") + len(self.new or b"")
        if self.old is not None and self.old != self.prior:
            total += len(self.old)
        topic, _, _, _, headers = self.context
        total += 8 + 8 + 4 + len(topic or "")
        for name, value in headers:
            total += len(name) + len(value or b"")
        return total

    def encode(self) -> bytes:
        return encoded(self.context, self.prior, self.old, self.new)

    @classmethod
    def decode(cls, data: bytes, context_type: Callable[..., Context] | None = None) -> BufferValue:
        """Decode the buffered record at the start of `data`; trailing bytes are ignored.

        Raises:
            SerializationError: it is not one.
        """
        try:
            context, position = _decode_context(data)
            prior, position = _read_sized(data, position)
            if _INT.unpack_from(data, position)[0] == _SAME_AS_PRIOR:
                old, position = prior, position + 4
            else:
                old, position = _read_sized(data, position)
            new, position = _read_sized(data, position)
        except (struct.error, ValueError) as cause:
            raise wrong_bytes("buffer", data, f"a buffered record ({cause})") from cause
        return cls(prior, old, new, context if context_type is None else context_type(*context))


def encoded(context: Context, prior: bytes | None, old: bytes | None, new: bytes | None) -> bytes:
    """Return the bytes of a buffered record."""
    same = old is not None and old == prior
    return b"".join((_encode_context(context), _sized(prior), _INT.pack(_SAME_AS_PRIOR) if same else _sized(old), _sized(new)))


def _sized(data: bytes | None) -> bytes:
    return _INT.pack(_NULL) if data is None else _INT.pack(len(data)) + data


def _read_sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    size = _INT.unpack_from(data, position)[0]
    position += 4
    if position + size > len(data):
        raise ValueError(f"{size} bytes at {position} of {len(data)}")
    return (None, position) if size < 0 else (data[position : position + size], position + size)


def _encode_context(context: Context) -> bytes:
    topic, partition, offset, timestamp, headers = context
    name = (topic or "").encode()
    parts = [_CONTEXT.pack(timestamp, offset, len(name)), name, _INT.pack(partition), _INT.pack(len(headers))]
    for key, value in headers:
        data = key.encode()
        parts += [_INT.pack(len(data)), data, _sized(value)]
    return b"".join(parts)


def _decode_context(data: bytes) -> tuple[Context, int]:
    timestamp, offset, size = _CONTEXT.unpack_from(data)
    position = _CONTEXT.size + size
    if not 0 <= size <= len(data) - _CONTEXT.size:
        raise ValueError(f"a topic of {size} bytes")
    topic = data[_CONTEXT.size : position].decode() or None
    partition = _INT.unpack_from(data, position)[0]
    count = _INT.unpack_from(data, position + 4)[0]
    position += 8
    headers: Headers = []
    for _ in range(max(count, 0)):
        key, position = _read_sized(data, position)
        value, position = _read_sized(data, position)
        headers.append(((key or b"").decode(), value))
    return (topic, partition, offset, timestamp, headers), position
