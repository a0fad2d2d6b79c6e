"""Rows as a server sends them, with the columns of their kind of store, and the (key, value) that a read on this host returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.types import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders, VersionedRecord, Windowed

KEY_VALUE = frozenset({StoreKind.KEY_VALUE, StoreKind.LRU, StoreKind.TIMESTAMPED_KEY_VALUE})
WINDOWS = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW})
StoreRow = dict[str, Any]
"""A row of a store by its columns: key, value, and timestamp, window, validity or headers where the store has them."""


def is_timestamped(store: StoreBuilder) -> bool:
    """Return whether the values of a store carry timestamps."""
    if store.kind is StoreKind.TIME_ORDERED_WINDOW:
        return bool(store.options.get("timestamped", True))
    return store.kind in (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW)


def row_maker(builder: StoreBuilder, *, headers: bool = False) -> Callable[[Any, Any], StoreRow]:
    """Return the function that makes a row of (key, value): the reverse of `pair`.

    Args:
        headers: the values are those of a store with headers.
    """
    if headers:
        plain, of_session = row_maker(builder), builder.kind is StoreKind.SESSION
        return lambda key, kept: {**plain(key, kept[0] if of_session else kept[:2]), "headers": kept.headers}
    stamped = is_timestamped(builder)
    if builder.kind is StoreKind.VERSIONED:
        return lambda key, record: {"key": key, "value": record[0], "timestamp": record[1], "valid_to": record[2]}
    if builder.kind not in WINDOWS and builder.kind is not StoreKind.SESSION:
        return _stamped if stamped else lambda key, value: {"key": key, "value": value}

    def window(key: Windowed, value: Any) -> StoreRow:
        row = {"key": key.key, "window_start": key.start, "window_end": key.end, "value": value[0] if stamped else value}
        return {**row, "timestamp": value[1]} if stamped else row

    return window


def _stamped(key: object, pair: tuple[object, int]) -> StoreRow:
    return {"key": key, "value": pair[0], "timestamp": pair[1]}


def value_of(row: StoreRow) -> object:
    """Return the value of a row as a local read returns it.

    Example:
        >>> value_of({"key": "a", "value": 2, "timestamp": 7})
        ValueAndTimestamp(value=2, timestamp=7)
    """
    if "headers" in row:
        value, headers = row["value"], row["headers"]
        return ValueTimestampHeaders(value, row["timestamp"], headers) if "timestamp" in row else AggregationWithHeaders(value, headers)
    if "valid_to" in row:
        return VersionedRecord(row["value"], row["timestamp"], row["valid_to"])
    return ValueAndTimestamp(row["value"], row["timestamp"]) if "timestamp" in row else row["value"]


def pair(row: StoreRow) -> tuple[object, object]:
    """Return the (key, value) of a row as a local read returns it."""
    key = Windowed(row["key"], row["window_start"], row["window_end"]) if "window_start" in row else row["key"]
    return key, value_of(row)
