"""The shared store of a left or outer stream-stream join: records that have found no match yet, by time.

Key: `int64 timestamp‖side‖key`, side 0 = right, 1 = left, so right comes before left at the same time. Value: a list of
`side‖value`, because several records of one key may wait at the same time. Bytes are Kafka Streams' (`TimestampedKeyAndJoinSide`,
`LeftOrRightValue`, `ListSerde`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.serdes.serde import wrong_bytes
from kstreams_repl.engine.stores.engine.environment import Engine, after
from kstreams_repl.engine.stores.kinds.typed_store import LONG, TypedStore
from kstreams_repl.engine.stores.log.changelog import Changelog

_INT = struct.Struct(">i")
_LEFT, _RIGHT = b"\x01", b"\x00"
_VARIABLE_SIZE = b"\x01"
_BATCH = 32


def encode_list(items: list[bytes]) -> bytes:
    """Encode a list of byte arrays like Kafka's ListSerde."""
    parts = [_VARIABLE_SIZE, _INT.pack(len(items))]
    for item in items:
        parts.append(_INT.pack(len(item)))
        parts.append(item)
    return b"".join(parts)


def decode_list(data: bytes) -> list[bytes]:
    """Decode a list of byte arrays.

    Raises:
        SerializationError: it is not one.
    """
    items = []
    position = 5
    try:
        for _ in range(_INT.unpack_from(data, 1)[0]):
            size = _INT.unpack_from(data, position)[0]
            position += 4
            if not 0 < size <= len(data) - position:
                raise wrong_bytes("outer join", data, f"a side and a value of {size} bytes at {position}")
            items.append(data[position : position + size])
            position += size
    except struct.error as cause:
        raise wrong_bytes("outer join", data, f"a list of sides and values ({cause})") from cause
    return items


def side_key(timestamp: int, left: bool, key: bytes) -> bytes:
    return LONG.pack(timestamp) + (_LEFT if left else _RIGHT) + key


class OuterJoin(TypedStore):
    """The buffered records of both sides."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        changelog: Changelog,
        key_serde: Serde,
        left_serde: Serde,
        right_serde: Serde,
        *,
        persistent: bool,
        record_context: RecordContext,
    ) -> None:
        super().__init__(name, changelog, key_serde, persistent=persistent)
        self._engine = engine
        self._changelog = changelog
        self._left = left_serde
        self._right = right_serde
        self._context = record_context

    def put(self, timestamp: int, left: bool, key: object, value: object) -> None:
        """Buffer one record; earlier ones with this time, side and key are kept."""
        data = (self._left if left else self._right).serialize(value)
        side = _LEFT if left else _RIGHT
        physical = side_key(timestamp, left, self._key.serialize(key) or b"")
        before = self._engine.get(physical)
        items = [] if before is None else decode_list(before)
        items.append(side + (data or b""))
        self._write(physical, encode_list(items))

    def remove(self, timestamp: int, left: bool, key: object) -> None:
        """Remove all records with this time, side and key; if there is none, write and log nothing."""
        physical = side_key(timestamp, left, self._key.serialize(key) or b"")
        if self._engine.get(physical) is not None:
            self._write(physical, None)

    def _write(self, physical: bytes, data: bytes | None) -> None:
        self._engine.put(physical, data)
        self._changelog.log(physical, data, self._context.timestamp)

    def all(self) -> Iterator[tuple[int, bool, Any, Any]]:
        """Iterate over (timestamp, is left, key, value) by time, right before left, key bytes, then order of arrival.

        Reads in batches, because the join stops at the first record whose window is open: rows removed meanwhile may be missing.
        """
        from_bytes, left_value, right_value = self._key.deserialize, self._left.deserialize, self._right.deserialize
        low: bytes | None = None
        while True:
            rows = list(self._engine.range(low, None, False, _BATCH))
            for physical, data in rows:
                timestamp = LONG.unpack_from(physical)[0]
                left = physical[8:9] == _LEFT
                key = from_bytes(physical[9:])
                for item in decode_list(data):
                    yield timestamp, left, key, (left_value if left else right_value)(item[1:])
            if len(rows) < _BATCH:
                return
            low = after(rows[-1][0])

    def approximate_num_entries(self) -> int:
        return self._engine.approximate_count()

    def _rows_held(self) -> str:
        return f"~{self._engine.approximate_count()} rows"
