"""The rows of an asynchronous node's store: records that entered the node and whose results have not left it at the commit.

A row is a head (attempt, when to try again, number, flags, length of the cause), the cause and its trace as text, the record in the
layout of `engine.stores.kinds.buffer_value`, and the source record's own key and value if they are not the ones that were stored.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kstreams_repl.engine.processor.record_context import ContextSnapshot
from kstreams_repl.engine.serdes.serde import wrong_bytes
from kstreams_repl.engine.stores.kinds.buffer_value import BufferValue, encoded
from kstreams_repl.system.types import Headers

_HEAD = struct.Struct(">Biqqiqi")
_FORMAT = 1
_INT = struct.Struct(">i")
_CUT = "\0"
"""Between cause and trace."""


class PendingRow(NamedTuple):
    """One waiting record.

    Attributes:
        key, value: of the record at the node, serialized.
        timestamp, headers: of the record at the node.
        at: coordinates of the source record.
        raw_key, raw_value: the source record's own bytes.
        number: among the node's records of this source record.
        attempt: 1 for the first try.
        due: when to try it (ms); 0 = at once.
        cause, trace: why the last try failed, and where; empty for the first.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    at: ContextSnapshot
    raw_key: bytes | None
    raw_value: bytes | None
    number: int
    attempt: int = 1
    due: int = 0
    cause: str = ""
    trace: str = ""

    def encode(self) -> bytes:
        """Return the row as bytes."""
        cause = f"{self.cause}{_CUT}{self.trace}".encode("utf-8", "backslashreplace") if self.cause else b""
        same = self.raw_key == self.key and self.raw_value == self.value
        head = _HEAD.pack(_FORMAT, self.attempt, self.due, self.timestamp, self.number, int(same), len(cause))
        record = encoded((*self.at[:4], self.headers), self.key, None, self.value)
        raw = b"" if same else encoded((None, -1, -1, -1, []), self.raw_key, None, self.raw_value)
        return b"".join((head, cause, _INT.pack(len(record)), record, raw))

    @classmethod
    def decode(cls, data: bytes) -> PendingRow:
        """Read a row.

        Raises:
            SerializationError: it is not one.
        """
        try:
            return cls._decode(data)
        except (struct.error, ValueError) as cause:
            raise wrong_bytes("pending record", data, f"a record that waits in an asynchronous node ({cause})") from cause

    @classmethod
    def _decode(cls, data: bytes) -> PendingRow:
        form, attempt, due, timestamp, number, same, size = _HEAD.unpack_from(data)
        position = _HEAD.size + size
        if form != _FORMAT or not 0 <= size <= len(data) - _HEAD.size:
            raise ValueError(f"format {form}, a cause of {size} bytes")
        cause, _, trace = data[_HEAD.size : position].decode().partition(_CUT)
        length = _INT.unpack_from(data, position)[0]
        position += _INT.size
        if not 0 <= length <= len(data) - position:
            raise ValueError(f"a record of {length} bytes")
        record = BufferValue.decode(data[position : position + length], ContextSnapshot)
        context: ContextSnapshot = record.context  # type: ignore[assignment]
        raw = record if same else BufferValue.decode(data[position + length :])
        return cls(
            record.prior, record.new, timestamp, context.headers, context, raw.prior, raw.new, number, attempt, due, cause, trace
        )
