"""The changelog records that give a store its rows: the opposite of a restore (`changelog_restore`)."""

from __future__ import annotations

from kstreams_repl.engine.stores.kinds.time_ordered_window import physical_key as time_ordered_key
from kstreams_repl.engine.stores.kinds.typed_store import LONG
from kstreams_repl.engine.stores.layers.header_rows import headers_of, without_headers
from kstreams_repl.engine.stores.layers.segments import segment_interval_ms
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.types import Headers

_DAY_MS = 86_400_000
_TIME_AT = {StoreKind.WINDOW: 12, StoreKind.TIMESTAMPED_WINDOW: 12, StoreKind.SESSION: 16}
_TIMESTAMPED = frozenset({StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.SUBSCRIPTION, StoreKind.TIMESTAMPED_WINDOW})
_SUPPRESS_HEADERS: Headers = [("v", b"\x03")]
_NO_TIME = bytes(8)


def row_key(builder: StoreBuilder, key: bytes) -> bytes:
    """Return the key of a row on disk, given that of its changelog record."""
    if builder.kind is StoreKind.TIME_ORDERED_WINDOW:
        return time_ordered_key(key)
    time_at = _TIME_AT.get(builder.kind)
    if time_at is None:
        return key
    interval = segment_interval_ms(_DAY_MS if builder.retention_ms is None else builder.retention_ms)
    segment: int = LONG.unpack_from(key, len(key) - time_at)[0] // interval
    return LONG.pack(segment) + key


def logged_row(builder: StoreBuilder, row: bytes) -> tuple[bytes, int, Headers]:
    """Return value, timestamp (ms; 0 where a restore reads none) and headers of the changelog record of a row. Not for versioned stores,
    of which a row holds several records.
    """
    headers: Headers = []
    if builder.headers:
        headers, row = headers_of(row), without_headers(row)
    timestamped = builder.kind in _TIMESTAMPED or (
        builder.kind is StoreKind.TIME_ORDERED_WINDOW and bool(builder.options.get("timestamped", True))
    )
    if timestamped:
        time: int = LONG.unpack_from(row)[0]
        return row[LONG.size :], time, headers
    if builder.kind is StoreKind.JOIN_GRACE_BUFFER:
        return row + _NO_TIME, 0, headers
    if builder.kind is StoreKind.SUPPRESS_BUFFER:
        return row, 0, list(_SUPPRESS_HEADERS)
    return row, 0, headers
