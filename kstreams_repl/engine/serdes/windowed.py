"""Windowed keys as bytes: `key‖start` for time windows (their size is not serialized), `key‖end‖start` for sessions."""

from __future__ import annotations

import struct

from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes, wrong_type
from kstreams_repl.system.durations import Millis, as_millis
from kstreams_repl.system.errors import CallError
from kstreams_repl.system.types import Windowed

_LONG = struct.Struct(">q")
_TWO_LONGS = struct.Struct(">qq")
MAX_LONG = 2**63 - 1


def _resolved(inner: Serde | str) -> Serde:
    from kstreams_repl.engine.serdes import resolve

    return resolve(inner)


def time_windowed(inner: Serde | str, size_ms: Millis) -> Serde:
    """Return the serde of keys of time windows of one size, as Kafka Streams' `TimeWindowedSerde`.

    The end of a window is not serialized: it is start + `size_ms` (ms, a timedelta, or "30 s"), capped at the largest long. `inner` is a
    serde or its name.

    Raises:
        CallError: the size is not a duration, or negative.
    """
    inner, size = _resolved(inner), as_millis(size_ms, "size_ms", error=CallError)
    key_to_bytes, key_from_bytes = inner.serialize, inner.deserialize
    pack, unpack_from = _LONG.pack, _LONG.unpack_from

    def serialize(windowed: Windowed) -> bytes:
        try:
            return key_to_bytes(windowed.key) + pack(windowed.start)  # type: ignore[operator]
        except (AttributeError, TypeError, struct.error):
            raise wrong_type("time-windowed", windowed, "Windowed(key, start, end)") from None

    def deserialize(data: bytes) -> Windowed:
        if len(data) < 8:
            raise wrong_bytes("time-windowed", data, "a key followed by 8 bytes of window start")
        start = unpack_from(data, len(data) - 8)[0]
        return Windowed(key_from_bytes(data[:-8]), start, min(start + size, MAX_LONG))

    return Serde(
        serialize,
        deserialize,
        name=f"time-windowed({inner.name}, {size})",
        base_key_suffix=8,
        recipe=(time_windowed, (inner, size)),
        reads_header_ids=inner.reads_header_ids,
        header_id_size=inner.header_id_size,
    )


def session_windowed(inner: Serde | str) -> Serde:
    """Return the serde of keys of session windows, as Kafka Streams' `SessionWindowedSerde`. `inner` is a serde or its name."""
    inner = _resolved(inner)
    key_to_bytes, key_from_bytes = inner.serialize, inner.deserialize
    pack, unpack_from = _TWO_LONGS.pack, _TWO_LONGS.unpack_from

    def serialize(windowed: Windowed) -> bytes:
        try:
            return key_to_bytes(windowed.key) + pack(windowed.end, windowed.start)  # type: ignore[operator]
        except (AttributeError, TypeError, struct.error):
            raise wrong_type("session-windowed", windowed, "Windowed(key, start, end)") from None

    def deserialize(data: bytes) -> object:
        if len(data) < 16:
            raise wrong_bytes("session-windowed", data, "a key followed by 16 bytes of window end and start")
        end, start = unpack_from(data, len(data) - 16)
        return Windowed(key_from_bytes(data[:-16]), start, end)

    return Serde(
        serialize,
        deserialize,
        name=f"session-windowed({inner.name})",
        base_key_suffix=16,
        recipe=(session_windowed, (inner,)),
        reads_header_ids=inner.reads_header_ids,
        header_id_size=inner.header_id_size,
    )
