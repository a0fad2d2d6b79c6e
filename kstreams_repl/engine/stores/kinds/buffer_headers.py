"""Values of a suppress buffer with headers (Kafka Streams 4.4): in memory each is a row as a store with headers has it. The changelog has
plain values, and what was in front of the old and the prior one in the headers ``vh.old`` and ``vh.prior`` of its record.
"""

from __future__ import annotations

from kstreams_repl.engine.serdes.change import read_varint
from kstreams_repl.engine.stores.kinds.buffer_value import BufferValue, encoded
from kstreams_repl.engine.stores.kinds.typed_store import LONG
from kstreams_repl.engine.stores.layers.header_rows import pack_headers
from kstreams_repl.system.types import Headers

PRIOR, OLD = "vh.prior", "vh.old"


def packed(headers: Headers, timestamp: int) -> bytes:
    """Return what stands in front of a value."""
    return pack_headers(headers) + LONG.pack(timestamp)


NO_HEADERS_NO_TIME = packed([], -1)


def _cut(row: bytes) -> int:
    size, position = read_varint(row)
    return position + size + LONG.size


def front_of(row: bytes) -> bytes:
    """Return headers and time of a row."""
    return row[: _cut(row)]


def value_of(row: bytes | None) -> bytes | None:
    """Return the value of a row."""
    return None if row is None else row[_cut(row) :]


def logged(value: BufferValue) -> bytes:
    """Return the bytes of a buffered record for the changelog."""
    return encoded(value.context, value_of(value.prior), value_of(value.old), value_of(value.new))


def fronts(value: BufferValue) -> Headers:
    """Return the headers of the changelog's record."""
    found: Headers = []
    if value.prior is not None and value.prior != value.old:
        found.append((PRIOR, front_of(value.prior)))
    if value.old is not None:
        found.append((OLD, front_of(value.old)))
    return found


def restored(data: bytes, headers: Headers) -> bytes:
    """Return the bytes of a buffered record from those of the changelog. A value without headers there, of an earlier version or of the
    other format, gets the time of the record that is buffered.
    """
    value, given = BufferValue.decode(data), dict(headers)
    _, _, _, timestamp, own = value.context

    def row(plain: bytes | None, front: bytes | None) -> bytes | None:
        return None if plain is None else (packed([], timestamp) if front is None else front) + plain

    old = row(value.old, given.get(OLD))
    prior = old if value.prior == value.old and PRIOR not in given else row(value.prior, given.get(PRIOR))
    new = None if value.new is None else packed(own, timestamp) + value.new
    return encoded(value.context, prior, old, new) + data[-LONG.size :]
