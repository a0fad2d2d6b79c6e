"""The window store for emit on window close: rows by window start, then key.

Physical key: `int64 start‖key‖int32 0`; the changelog has the ordinary window key. Expiry is that of a segmented store: reads hide
starts before observed time − retention, and whole segments are dropped. No window is lost by that, because the operator emits
closed windows *before* it writes the record that closes them.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from kstreams_repl.errors import NullKeyError
from kstreams_repl.serdes import Serde
from kstreams_repl.stores.engine.base import Engine, Environment, Row
from kstreams_repl.stores.key_index import KeyIndex
from kstreams_repl.stores.object_store import Cells
from kstreams_repl.stores.segments import segment_interval_ms
from kstreams_repl.types import ValueAndTimestamp, Windowed

_LONG = struct.Struct(">q")
_NO_SEQUENCE = bytes(4)
MAX_LONG = 2**63 - 1


def log_key(physical: bytes) -> bytes:
    """Return the changelog key of a time-first key."""
    return physical[8:-4] + physical[:8] + physical[-4:]


def physical_key(logged: bytes) -> bytes:
    """Return the time-first key of a changelog key."""
    return logged[-12:-4] + logged[:-12] + logged[-4:]


class TimeOrderedRows:
    """Rows by time that expire by segment; needs no segment id in front, because the time is in front."""

    def __init__(
        self, environment: Environment, engine: Engine, name: str, *, retention_ms: int, on_expired: Callable[[], None]
    ) -> None:
        self.environment = environment
        self._engine = engine
        self._attribute = f"{name}/observed-time"
        self._on_expired = on_expired
        self.retention_ms = retention_ms
        self._interval = segment_interval_ms(retention_ms)
        self.observed_time = -1
        self._first_segment = 0
        self.log_key: Callable[[bytes], bytes] | None = log_key
        self.get: Callable[[bytes], bytes | None] = lambda key: engine.get(key) if self.visible(key) else None
        self.put: Callable[[bytes, bytes | None], None] = self._put
        self.approximate_count = engine.approximate_count
        self._load()
        environment.before_commit(self._save)
        environment.after_rollback(self._load)

    def _load(self) -> None:
        kept = self.environment.attribute(self._attribute)
        self.observed_time = -1 if kept is None else _LONG.unpack(kept)[0]
        self._first_segment = 0

    def _save(self) -> None:
        if self.observed_time >= 0:
            self.environment.set_attribute(self._attribute, _LONG.pack(self.observed_time))

    def visible(self, key: bytes) -> bool:
        start: int = _LONG.unpack_from(key)[0]
        return start >= self.observed_time - self.retention_ms

    def admit(self, key: bytes) -> bool:
        """Advance observed time to this key's and drop expired segments; return False, and count the drop, if its own has expired."""
        start: int = _LONG.unpack_from(key)[0]
        if start > self.observed_time:
            self.observed_time = start
        live = max(self.observed_time - self.retention_ms, 0) // self._interval
        if start // self._interval < live:
            self._on_expired()
            return False
        if live > self._first_segment:
            self._engine.delete_range(_LONG.pack(0), _LONG.pack(live * self._interval))
            self._first_segment = live
        return True

    def _put(self, key: bytes, value: bytes | None) -> None:
        if self.admit(key):
            self._engine.put(key, value)

    def put_admitted(self, key: bytes, value: bytes | None) -> None:
        """Write a row that was admitted earlier; if its segment has expired since, write and count nothing."""
        if _LONG.unpack_from(key)[0] // self._interval >= self._first_segment:
            self._engine.put(key, value)

    def range(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[Row]:
        shown = self.observed_time - self.retention_ms
        if shown > 0:
            first = _LONG.pack(shown)
            low = first if low is None or low < first else low
        return self._engine.range(low, high, reverse)


class TimeOrderedWindow:
    """A window store in time order, timestamped or plain."""

    def __init__(
        self,
        name: str,
        cells: Cells,
        rows: TimeOrderedRows,
        key_serde: Serde,
        *,
        window_size_ms: int,
        timestamped: bool,
        persistent: bool,
    ) -> None:
        self.name = name
        self.persistent = persistent
        self.window_size_ms = window_size_ms
        self.timestamped = timestamped
        self._cells = cells
        self._expiry = rows
        self._index: KeyIndex | None = None
        self._indexing = False
        self._key = key_serde
        self.serialize_key = key_serde.serialize
        read, write, pack = cells.get, cells.put, _LONG.pack

        def fetch_raw(key: bytes, start: int) -> Any:
            return read(pack(start) + key + _NO_SEQUENCE)

        def put_raw(key: bytes, cell: Any, start: int) -> None:
            write(pack(start) + key + _NO_SEQUENCE, cell)
            if self._index is not None:
                self._index.note(key, pack(start), cell)

        self.fetch_raw: Callable[[bytes, int], Any] = fetch_raw
        self.put_raw: Callable[[bytes, Any, int], None] = put_raw

    def _bytes(self, key: Any) -> bytes:
        data = self._key.serialize(key)
        if data is None:
            raise NullKeyError(
                f"store {self.name}: the key must not be null", store=self.name, hint="filter out records without a key first"
            )
        return data

    def put(self, key: Any, value: Any, window_start: int) -> None:
        if self.timestamped and value is not None and value[0] is None:
            value = None
        self.put_raw(self._bytes(key), value, window_start)

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        if time_to is not None:
            return self._of_key(key, time_from, time_to, False)
        cell = self.fetch_raw(self._bytes(key), time_from)
        return None if cell is None else self._present(cell)

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> Iterator[tuple[int, Any]]:
        return self._of_key(key, time_from, time_to, True)

    def fetch_range(self, from_key: Any, to_key: Any, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(self._optional(from_key), self._optional(to_key), time_from, time_to, False)

    def backward_fetch_range(self, from_key: Any, to_key: Any, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(self._optional(from_key), self._optional(to_key), time_from, time_to, True)

    def fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(None, None, time_from, time_to, False)

    def backward_fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(None, None, time_from, time_to, True)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(None, None, 0, MAX_LONG, False)

    def backward_all(self) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(None, None, 0, MAX_LONG, True)

    def _optional(self, key: Any) -> bytes | None:
        return None if key is None else self._bytes(key)

    def _present(self, cell: Any) -> Any:
        return ValueAndTimestamp._make(cell) if self.timestamped else cell

    def _rows(self, time_from: int, time_to: int, reverse: bool) -> Iterator[tuple[bytes, Any]]:
        if time_to < time_from or time_to < 0:
            return iter(())
        high = None if time_to >= MAX_LONG else _LONG.pack(time_to + 1)
        return self._cells.range(_LONG.pack(max(time_from, 0)), high, reverse)

    def index_by_key(self) -> None:
        """Index each key's times in memory from its first read on; without the index, such a read scans all keys of the time range."""
        self._indexing = True

    def _read_indexed(self, key: bytes, time_from: int, time_to: int, reverse: bool) -> list[tuple[int, Any]]:
        index, pack, unpack, read = self._index, _LONG.pack, _LONG.unpack, self._cells.get
        if index is None:
            index = self._index = KeyIndex(self._suffixes, self._expiry.approximate_count, self._first_shown)
            self._expiry.environment.after_rollback(index.reset)
        starts = index.of(key)
        first = bisect_left(starts, max(pack(max(time_from, 0)), self._first_shown()))
        last = 0 if time_to < 0 else bisect_right(starts, pack(time_to), first)
        found = [(start, cell) for start in starts[first:last] if (cell := read(start + key + _NO_SEQUENCE)) is not None]
        return [(unpack(start)[0], self._present(cell)) for start, cell in (reversed(found) if reverse else found)]

    def _suffixes(self, key: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over (serialized key, start) for the index, of one key or, with None, of all."""
        for physical, _ in self._rows(0, MAX_LONG, False):
            if key is None or physical[8:-4] == key:
                yield physical[8:-4], physical[:8]

    def _first_shown(self) -> bytes:
        return _LONG.pack(max(self._expiry.observed_time - self._expiry.retention_ms, 0))

    def _of_key(self, key: Any, time_from: int, time_to: int, reverse: bool) -> Iterator[tuple[int, Any]]:
        if self._indexing:
            return iter(self._read_indexed(self._bytes(key), time_from, time_to, reverse))
        wanted, present, unpack_from = self._bytes(key), self._present, _LONG.unpack_from
        return iter([(unpack_from(row)[0], present(cell)) for row, cell in self._rows(time_from, time_to, reverse) if row[8:-4] == wanted])

    def _of_keys(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool
    ) -> Iterator[tuple[Windowed, Any]]:
        from_bytes, present, size, unpack_from = self._key.deserialize, self._present, self.window_size_ms, _LONG.unpack_from
        rows = self._rows(time_from, time_to, reverse)
        found = [(row, cell) for row, cell in rows if (low is None or row[8:-4] >= low) and (high is None or row[8:-4] <= high)]
        return (
            (Windowed(from_bytes(row[8:-4]), start := unpack_from(row)[0], min(start + size, MAX_LONG)), present(cell))
            for row, cell in found
        )

    def set_flush_listener(self, listener: Any, send_old_values: bool) -> bool:
        return False

    def flush(self) -> None:
        self._cells.flush()

    def close(self) -> None:
        self._cells.clear()

    def __repr__(self) -> str:
        return f"TimeOrderedWindow({self.name!r}, ~{self._expiry.approximate_count()} rows)"
