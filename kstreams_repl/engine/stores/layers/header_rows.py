"""The rows of stores that keep headers, in the bytes of Kafka Streams 4.3 (KIP-1271), and the layers that read and write them.

A row is `size of the headers‖headers‖int64 timestamp‖value`, in a session store without the timestamp. The headers are `count`, then of
each `length‖name‖length‖value`; without headers the size is 0 and nothing follows it. Sizes, counts and lengths are Kafka's variable-length
integers; the length of a null value is -1. The changelog has only the value, in a record with that timestamp and these headers, so a row
can be restored in either format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.serdes.change import read_varint, varint
from kstreams_repl.engine.stores.layers.codec import NO_TYPES, Codec
from kstreams_repl.engine.stores.layers.object_store import EntryListener, StoredObjects
from kstreams_repl.system.types import AggregationWithHeaders, Deserialize, Headers, RecordBatch, ValueTimestampHeaders

_NO_HEADERS = b"\x00"
_NULL = b"\x01"
"""The length -1."""


def pack_headers(headers: Headers | None) -> bytes:
    """Return the front of a row: the size of the headers, and the headers."""
    if not headers:
        return _NO_HEADERS
    packed = bytearray(varint(len(headers)))
    for name, value in headers:
        data = name.encode()
        packed += varint(len(data)) + data + (_NULL if value is None else varint(len(value)) + value)
    return varint(len(packed)) + bytes(packed)


def without_headers(row: bytes) -> bytes:
    """Return the row as a store without headers has it."""
    if row[0] == 0:
        return row[1:]
    size, position = read_varint(row)
    return row[position + size :]


def headers_of(row: bytes) -> Headers:
    """Return the headers of a row."""
    headers: Headers = []
    if row[0] == 0:
        return headers
    _, position = read_varint(row)
    count, position = read_varint(row, position)
    for _ in range(count):
        size, position = read_varint(row, position)
        name, position = row[position : position + size].decode(), position + size
        if row[position : position + 1] == _NULL:
            headers.append((name, None))
            position += 1
        else:
            size, position = read_varint(row, position)
            headers.append((name, row[position : position + size]))
            position += size
    return headers


def with_headers(batch: RecordBatch, rows: Sequence[bytes | None]) -> list[bytes | None]:
    """Return rows, one of each record of a changelog, with the headers of the records in front."""
    headers = batch.headers or [None] * len(rows)
    return [None if row is None else pack_headers(own) + row for row, own in zip(rows, headers, strict=True)]


class HeaderCodec(Codec):
    """The codec of a store with headers: its objects are `ValueTimestampHeaders` (a pair has no headers), in a session store
    `AggregationWithHeaders`.

    Args:
        record_context: of the task; a deletion is logged with the headers of the current record.
    """

    __slots__ = ()

    def __init__(self, serde: Serde, *, timestamped: bool, record_context: RecordContext) -> None:
        super().__init__(serde, timestamped=timestamped)
        self.deferrable = NO_TYPES
        encode, decode, log_value, log_timestamp = self.encode, self.decode, self.log_value, self.log_timestamp

        def encode_row(item: Any) -> bytes | None:
            if item is None:
                return None
            data, headers = (encode(item[:2]), item[2:]) if timestamped else (encode(item[0]), item[1:])
            return None if data is None else pack_headers(headers[0] if headers else None) + data

        def decode_row(row: bytes) -> object:
            item, headers = decode(without_headers(row)), headers_of(row)
            return ValueTimestampHeaders(item[0], item[1], headers) if timestamped else AggregationWithHeaders(item, headers)

        self.encode, self.decode = encode_row, decode_row
        self.log_value = lambda row: log_value(without_headers(row))
        self.log_timestamp = lambda row, timestamp: log_timestamp(without_headers(row), timestamp)
        self.log_headers = lambda row: list(record_context.headers) if row is None else headers_of(row)


class PlainObjects:
    """The objects of a store with headers as the operators of the DSL see them: without headers, which are lost when they write.

    Kafka Streams' operators write no headers either; they are kept where a processor, or a serde, has put them.

    Attributes:
        cached_segments: of the store with headers.
    """

    def __init__(self, objects: StoredObjects, *, timestamped: bool, cached_segments: set[int] | None = None) -> None:
        self._objects = objects
        self.cached_segments = cached_segments
        self.exact = getattr(objects, "exact", False)
        read, write = objects.get, objects.put
        self._plain: Callable[[Any], Any] = (lambda item: item[:2]) if timestamped else (lambda item: item[0])
        plain = self._plain

        def get(key: bytes) -> object:
            item = read(key)
            return None if item is None else plain(item)

        self.get: Deserialize = get
        self.put: Callable[[bytes, object], None] = write
        if not timestamped:
            self.put = lambda key, item: write(key, None if item is None else (item,))
        self.flush, self.clear = objects.flush, objects.clear

    def range(self, low: bytes | None, high: bytes | None, reverse: bool = False, *back_to: bytes) -> Iterator[tuple[bytes, Any]]:
        plain = self._plain
        return ((key, plain(item)) for key, item in self._objects.range(low, high, reverse, *back_to))

    def set_flush_listener(self, listener: EntryListener, send_old_values: bool) -> bool:
        def entry_leaves(key: bytes, new: object, old: object, timestamp: int, headers: object) -> None:
            listener(key, None if new is None else plain(new), None if old is None else plain(old), timestamp, headers)

        plain = self._plain
        return self._objects.set_flush_listener(entry_leaves, send_old_values)
