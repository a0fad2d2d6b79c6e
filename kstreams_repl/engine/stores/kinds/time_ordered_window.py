"""The window store for emit on window close: rows by window start, then key.

Physical key: `int64 start‖key‖int32 0`; the changelog has the ordinary window key. Expiry is that of a segmented store: reads hide
starts before observed time − retention, and whole segments are dropped. No window is lost by that, because the operator emits
closed windows *before* it writes the record that closes them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.stores.engine.environment import Engine, Environment, Row
from kstreams_repl.engine.stores.kinds.typed_store import LONG, MAX_LONG
from kstreams_repl.engine.stores.kinds.window_reads import NO_SEQUENCE, WindowReads
from kstreams_repl.engine.stores.layers.key_index import Suffix
from kstreams_repl.engine.stores.layers.object_store import StoredObjects
from kstreams_repl.engine.stores.layers.observed_time import ObservedTime
from kstreams_repl.engine.stores.layers.segments import segment_interval_ms


def log_key(physical: bytes) -> bytes:
    """Return the changelog key of a time-first key."""
    return physical[8:-4] + physical[:8] + physical[-4:]


def physical_key(logged: bytes) -> bytes:
    """Return the time-first key of a changelog key."""
    return logged[-12:-4] + logged[:-12] + logged[-4:]


class TimeOrderedRows(ObservedTime):
    """Rows by time that expire by segment; needs no segment id in front, because the time is in front."""

    def __init__(
        self, environment: Environment, engine: Engine, name: str, *, retention_ms: int, on_expired: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._on_expired = on_expired
        self.retention_ms = retention_ms
        self._interval = segment_interval_ms(retention_ms)
        self.log_key: Callable[[bytes], bytes] | None = log_key
        self.get: Callable[[bytes], bytes | None] = lambda key: engine.get(key) if self.visible(key) else None
        self.put: Callable[[bytes, bytes | None], None] = self._put
        self.approximate_count = engine.approximate_count
        super().__init__(environment, name)

    def _load(self) -> None:
        super()._load()
        self._first_segment = 0

    def hidden_up_to(self) -> int:
        """Return the largest start that reads hide."""
        return self.observed_time - self.retention_ms - 1

    def visible(self, key: bytes) -> bool:
        start: int = LONG.unpack_from(key)[0]
        return start > self.hidden_up_to()

    def admit(self, key: bytes) -> bool:
        """Advance observed time to this key's and drop expired segments; return False, and count the drop, if its own has expired."""
        start: int = LONG.unpack_from(key)[0]
        if start > self.observed_time:
            self.observed_time = start
        live = max(self.observed_time - self.retention_ms, 0) // self._interval
        if start // self._interval < live:
            self._on_expired()
            return False
        if live > self._first_segment:
            self._engine.delete_range(LONG.pack(0), LONG.pack(live * self._interval))
            self._first_segment = live
        return True

    def _put(self, key: bytes, value: bytes | None) -> None:
        if self.admit(key):
            self._engine.put(key, value)

    def put_admitted(self, key: bytes, value: bytes | None) -> None:
        """Write a row that was admitted earlier; if its segment has expired since, write and count nothing."""
        if LONG.unpack_from(key)[0] // self._interval >= self._first_segment:
            self._engine.put(key, value)

    def range(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[Row]:
        shown = self.observed_time - self.retention_ms
        if shown > 0:
            first = LONG.pack(shown)
            low = first if low is None or low < first else low
        return self._engine.range(low, high, reverse)


class TimeOrderedWindow(WindowReads):
    """A window store in time order."""

    def __init__(
        self,
        name: str,
        objects: StoredObjects,
        rows: TimeOrderedRows,
        key_serde: Serde,
        *,
        window_size_ms: int,
        timestamped: bool,
        persistent: bool,
    ) -> None:
        super().__init__(
            name, objects, rows, key_serde, window_size_ms=window_size_ms, timestamped=timestamped, persistent=persistent
        )
        read, write, pack = objects.get, objects.put, LONG.pack

        def fetch_raw(key: bytes, start: int) -> object:
            return read(pack(start) + key + NO_SEQUENCE)

        def put_raw(key: bytes, item: object, start: int) -> None:
            write(pack(start) + key + NO_SEQUENCE, item)
            if self._index is not None:
                self._index.note(key, pack(start), item)

        self.fetch_raw = fetch_raw
        self.put_raw = put_raw

    def fetch_key_raw(self, key: bytes, time_from: int, time_to: int, reverse: bool = False) -> Iterator[tuple[int, Any]]:
        if self._indexing:
            return self._read_indexed(key, time_from, time_to, reverse)
        return ((start, item) for row_key, start, item in self.range_raw(None, None, time_from, time_to, reverse) if row_key == key)

    def _read_indexed(self, key: bytes, time_from: int, time_to: int, reverse: bool) -> Iterator[tuple[int, object]]:
        starts, pack, unpack, read = self._suffixes_of(key), LONG.pack, LONG.unpack, self._objects.get
        first = bisect_left(starts, max(pack(max(time_from, 0)), self._first_shown()))
        last = 0 if time_to < 0 else bisect_right(starts, pack(time_to), first)
        for start in reversed(starts[first:last]) if reverse else starts[first:last]:
            item = read(start + key + NO_SEQUENCE)
            if item is not None:
                yield unpack(start)[0], item

    def _suffixes(self, key: bytes | None) -> Iterator[tuple[bytes, Suffix]]:
        return ((other, LONG.pack(start)) for other, start, _ in self.range_raw(None, None, 0, MAX_LONG) if key is None or other == key)

    def range_raw(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, int, Any]]:
        if time_to < time_from or time_to < 0:
            return
        unpack_from, end = LONG.unpack_from, None if time_to >= MAX_LONG else LONG.pack(time_to + 1)
        for physical, item in self._objects.range(LONG.pack(max(time_from, 0)), end, reverse):
            key = physical[8:-4]
            if (low is None or key >= low) and (high is None or key <= high):
                yield key, unpack_from(physical)[0], item

    def set_flush_listener(self, listener: object, send_old_values: bool) -> bool:
        return False
