"""A store's rows as columns, readable from any process: a snapshot of its environment with physical keys and values split into fields.

Raw columns are bytes and ints and cost one slice per row (well under a second for a million rows); `decoded` applies the serdes.
Expired window and session rows are left out, as in the store itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from kstreams_repl.errors import InvalidStateStoreError
from kstreams_repl.serdes import resolve
from kstreams_repl.stores.buffer_value import BufferValue
from kstreams_repl.stores.engine.base import Row
from kstreams_repl.stores.engine.snapshot import DEFAULT_SECONDS, LmdbSnapshot, SnapshotView
from kstreams_repl.stores.outer_join import decode_list
from kstreams_repl.stores.typed_store import LONG, MAX_LONG
from kstreams_repl.topology.stores import StoreBuilder, StoreKind

_TWO_LONGS = struct.Struct(">qq")
_DAY_MS = 86_400_000
_TIMESTAMPED = {StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.SUBSCRIPTION, StoreKind.TIMESTAMPED_WINDOW, StoreKind.VERSIONED}
_WINDOWS = {StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW}


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of one store, one list per column; None for a column that the store's kind does not have.

    Attributes:
        timestamps: of the value, in ms; for versions, the time from which they are valid.
        starts, ends: of the window or session, in ms.
        sides: of buffered join records: True = left.
        complete: whether these are all rows.
        commit_id: the commit that the rows are read from.
    """

    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Sequence[int] | None = None
    starts: Sequence[int] | None = None
    ends: Sequence[int] | None = None
    sides: Sequence[bool] | None = None
    complete: bool = True
    commit_id: int = -1

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over (key, [start, end,] value[, timestamp]), one tuple per row."""
        columns = [column for column in (self.keys, self.sides, self.starts, self.ends, self.values, self.timestamps) if column is not None]
        return zip(*columns, strict=True)


class StoreView:
    """One store in a snapshot.

    Args:
        builder: provides kind, serdes and windows.
        snapshot: of the task's environment.
        defaults: the application's default (key serde, value serde).
    """

    def __init__(self, builder: StoreBuilder, snapshot: LmdbSnapshot, defaults: tuple[Any, Any] = (None, None)) -> None:
        self.builder = builder
        self._snapshot = snapshot
        self._key = resolve(builder.key_serde, defaults[0])
        self._value = resolve(builder.value_serde, defaults[1])

    def columns(self, *, limit: int | None = None, seconds: float = DEFAULT_SECONDS, raw: bool = False) -> Columns:
        """Return the rows in physical order as of the last commit; reads at most `limit` rows, for at most `seconds` seconds."""
        self._snapshot.tree(self.builder.name)
        with self._snapshot.transaction() as view:
            columns = self.columns_in(view, limit=limit, seconds=seconds)
        return columns if raw else self.decoded(columns)

    def columns_in(self, view: SnapshotView, *, limit: int | None = None, seconds: float = DEFAULT_SECONDS) -> Columns:
        """Return raw columns inside an open transaction, so that several stores show the same commit."""
        rows, complete = view.read(self.builder.name, limit=limit, seconds=seconds)
        observed = view.attribute(f"{self.builder.name}/observed-time")
        hidden = -1 if observed is None else LONG.unpack(observed)[0] - self._retention()
        return replace(split(self.builder, rows, hidden_up_to=hidden), complete=complete, commit_id=view.commit_id)

    def _retention(self) -> int:
        return self.builder.retention_ms if self.builder.retention_ms is not None else _DAY_MS

    def decoded(self, columns: Columns) -> Columns:
        """Return the same columns with keys and values deserialized by the store's serdes."""
        key, value = self._key.deserialize, self._value.deserialize
        return replace(columns, keys=[key(data) for data in columns.keys], values=[value(data) for data in columns.values])

    def get(self, key: Any) -> Any:
        """Return the value of one key of a key-value store; `(value, timestamp)` for a timestamped or versioned store."""
        if self.builder.kind not in {StoreKind.KEY_VALUE, StoreKind.LRU, *_TIMESTAMPED} or self.builder.kind in _WINDOWS:
            raise InvalidStateStoreError(f"store {self.builder.name} has no single row per key", store=self.builder.name)
        data = self._key.serialize(key) or b""
        self._snapshot.tree(self.builder.name)
        with self._snapshot.transaction() as view:
            stored = view.get(self.builder.name, data)
        if stored is None:
            return None
        if self.builder.kind in _TIMESTAMPED:
            return self._value.deserialize(stored[8:]), LONG.unpack_from(stored)[0]
        return self._value.deserialize(stored)


def split(builder: StoreBuilder, rows: Sequence[Row], *, hidden_up_to: int = -1) -> Columns:
    """Split physical rows into raw columns.

    Args:
        hidden_up_to: the largest window start or session end, in ms, that has expired.
    """
    kind = builder.kind
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    timestamps = None
    if kind in _TIMESTAMPED or (kind is StoreKind.TIME_ORDERED_WINDOW and builder.options.get("timestamped", True)):
        timestamps = _longs(values, 0)
        values = [value[8:] for value in values]
    if kind in _WINDOWS:
        starts = _longs(keys, -12)
        columns = Columns([key[8:-12] for key in keys], values, timestamps, starts, _ends(starts, builder))
        return _shown(columns, starts, hidden_up_to)
    if kind is StoreKind.TIME_ORDERED_WINDOW:
        starts = _longs(keys, 0)
        columns = Columns([key[8:-4] for key in keys], values, timestamps, starts, _ends(starts, builder))
        return _shown(columns, starts, hidden_up_to - 1)
    if kind is StoreKind.SESSION:
        bounds = list(_TWO_LONGS.iter_unpack(b"".join([key[-16:] for key in keys])))
        ends = [end for end, _ in bounds]
        columns = Columns([key[8:-16] for key in keys], values, None, [start for _, start in bounds], ends)
        return _shown(columns, ends, hidden_up_to - bool(builder.options.get("time_ordered")))
    if kind is StoreKind.OUTER_JOIN:
        return _parked(rows)
    if kind is StoreKind.SUPPRESS_BUFFER:
        buffered = [BufferValue.decode(value) for value in values]
        return Columns(keys, [entry.new for entry in buffered], [LONG.unpack_from(value, len(value) - 8)[0] for value in values])
    if kind is StoreKind.JOIN_GRACE_BUFFER:
        return Columns([key[9:-4] for key in keys], [BufferValue.decode(value).new for value in values], _longs(keys, 1))
    return Columns(keys, values, timestamps)


def _longs(data: list[bytes], at: int) -> list[int]:
    """Unpack the int64 at an offset (from the end when negative) of each item, in one operation."""
    end = at + 8
    return [number for (number,) in LONG.iter_unpack(b"".join([item[at:end] for item in data]))]


def _ends(starts: list[int], builder: StoreBuilder) -> list[int]:
    size = builder.window_size_ms or 0
    return [min(start + size, MAX_LONG) for start in starts]


def _shown(columns: Columns, times: list[int], hidden_up_to: int) -> Columns:
    if hidden_up_to < 0 or not times or min(times) > hidden_up_to:
        return columns
    shown = [index for index, time in enumerate(times) if time > hidden_up_to]

    def pick(column: Sequence[Any] | None) -> list[Any] | None:
        return None if column is None else [column[index] for index in shown]

    return Columns(
        pick(columns.keys) or [], pick(columns.values) or [], pick(columns.timestamps), pick(columns.starts), pick(columns.ends)
    )


def _parked(rows: Sequence[Row]) -> Columns:
    items = list(chain.from_iterable(((key, item) for item in decode_list(data)) for key, data in rows))
    return Columns(
        [key[9:] for key, _ in items],
        [item[1:] for _, item in items],
        [LONG.unpack_from(key)[0] for key, _ in items],
        sides=[key[8:9] == b"\x01" for key, _ in items],
    )
