"""Session stores as a processor uses them: one aggregate per key and session `[start, end]`.

Store key: `key‖int64 end‖int64 start`; a session's time is its end. Rows of one key are ordered by end, then start.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.stores.cache.write_back_cache import WriteBackCache
from kstreams_repl.engine.stores.engine.environment import after
from kstreams_repl.engine.stores.kinds.typed_store import LONG, MAX_LONG
from kstreams_repl.engine.stores.layers.indexed_store import SegmentedStore, make_windowed
from kstreams_repl.engine.stores.layers.object_store import StoredObjects
from kstreams_repl.engine.stores.layers.segments import PREFIX_SIZE, SegmentedRows
from kstreams_repl.engine.stores.state_store import FlushListener
from kstreams_repl.system.types import Headers, RowLoop, Windowed

_SUFFIX = struct.Struct(">qq")
SUFFIX_SIZE = 16


class SessionStore(SegmentedStore):
    """A session store; `find_closed` is for emit on window close."""

    forgets_headers = False
    """Whether sessions leave the cache without the headers of their last record: those of a store with headers do, as in Kafka Streams."""
    last_suffix = _SUFFIX.pack(MAX_LONG, MAX_LONG)

    def __init__(self, name: str, objects: StoredObjects, rows: SegmentedRows, key_serde: Serde, *, persistent: bool) -> None:
        super().__init__(name, objects, rows, key_serde, persistent=persistent)
        self._cached = objects if isinstance(objects, WriteBackCache) else None
        self._notes_times = self._cached is not None

    def put(self, session_key: Windowed, aggregate: object) -> None:
        self.put_raw(self._bytes(session_key[0]), session_key[1], session_key[2], aggregate)

    def put_raw(self, key: bytes, start: int, end: int, aggregate: object) -> None:
        if self.cached_segments is not None:
            self.cached_segments.add(end // self._rows.interval_ms)
            if self._notes_times:
                self._rows.note_time(end)
        suffix = _SUFFIX.pack(end, start)
        self._objects.put(self._rows.prefix(end) + key + suffix, aggregate)
        if self._index is not None:
            self._index.note(key, suffix, aggregate)

    def remove(self, session_key: Windowed) -> None:
        self.put_raw(self._bytes(session_key[0]), session_key[1], session_key[2], None)

    def fetch_session(self, key: object, start: int, end: int) -> Any:
        data = self._bytes(key)
        if self._notes_times and end <= self._rows.hidden_up_to():
            return None
        return self._objects.get(self._rows.prefix(end) + data + _SUFFIX.pack(end, start))

    def find_sessions(self, key: object, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_key(key, earliest_end, latest_start, False)

    def backward_find_sessions(self, key: object, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_key(key, earliest_end, latest_start, True)

    def find_sessions_range(self, from_key: object, to_key: object, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(from_key, to_key, earliest_end, latest_start, False)

    def backward_find_sessions_range(
        self, from_key: object, to_key: object, earliest_end: int, latest_start: int
    ) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(from_key, to_key, earliest_end, latest_start, True)

    def fetch(self, key: object) -> Iterator[tuple[Windowed, Any]]:
        return self._of_key(key, 0, MAX_LONG, False)

    def backward_fetch(self, key: object) -> Iterator[tuple[Windowed, Any]]:
        return self._of_key(key, 0, MAX_LONG, True)

    def fetch_range(self, from_key: object = None, to_key: object = None) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(from_key, to_key, 0, MAX_LONG, False)

    def backward_fetch_range(self, from_key: object = None, to_key: object = None) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(from_key, to_key, 0, MAX_LONG, True)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(None, None, 0, MAX_LONG, False)

    def find_closed(self, earliest_end: int, latest_end: int) -> Iterator[tuple[Windowed, Any]]:
        """Iterate over sessions of all keys with earliest_end <= end <= latest_end, by end, start, then key bytes."""
        sessions = [
            (end, start, key, item)
            for key, start, end, item in self._sessions(None, None, earliest_end, latest_end, MAX_LONG, False)
            if end <= latest_end
        ]
        sessions.sort(key=lambda row: row[:3])
        from_bytes = self._key.deserialize
        return ((Windowed(from_bytes(key), start, end), item) for end, start, key, item in sessions)

    def find_raw(self, key: bytes, earliest_end: int, latest_start: int, reverse: bool = False) -> list[tuple[int, int, Any]]:
        """Return (start, end, item) of one serialized key with end >= earliest_end and start <= latest_start."""
        if not self._indexing:
            return self._scan_key(key, earliest_end, latest_start, reverse)
        return self._find_indexed(self._suffixes_of(key), key, earliest_end, latest_start, reverse)

    def _find_indexed(
        self, suffixes: list[bytes], key: bytes, earliest_end: int, latest_start: int, reverse: bool
    ) -> list[tuple[int, int, Any]]:
        read, prefix, unpack = self._objects.get, self._rows.prefix, _SUFFIX.unpack
        sessions = []
        for suffix in suffixes[bisect_left(suffixes, max(LONG.pack(max(earliest_end, 0)), self._first_shown())) :]:
            end, start = unpack(suffix)
            if start <= latest_start:
                item = read(prefix(end) + key + suffix)
                if item is not None:
                    sessions.append((start, end, item))
        return sessions[::-1] if reverse else sessions

    def _scan_key(self, key: bytes, earliest_end: int, latest_start: int, reverse: bool) -> list[tuple[int, int, Any]]:
        sessions = []
        position, size, unpack_from = PREFIX_SIZE + len(key), PREFIX_SIZE + len(key) + SUFFIX_SIZE, _SUFFIX.unpack_from
        low, high = key + _SUFFIX.pack(max(earliest_end, 0), 0), key + _SUFFIX.pack(MAX_LONG, max(latest_start, 0))
        for segment in self._segments(earliest_end, MAX_LONG, reverse):
            prefix = LONG.pack(segment)
            for physical, item in self._objects.range(prefix + low, after(prefix + high), reverse):
                if len(physical) == size:
                    end, start = unpack_from(physical, position)
                    if end >= earliest_end and start <= latest_start:
                        sessions.append((start, end, item))
        return sessions

    def _of_key(self, key: object, earliest_end: int, latest_start: int, reverse: bool) -> Iterator[tuple[Windowed, object]]:
        sessions = self.find_raw(self._bytes(key), earliest_end, latest_start, reverse)
        return iter([(Windowed(key, start, end), item) for start, end, item in sessions])

    def _of_keys(
        self, from_key: object, to_key: object, earliest_end: int, latest_start: int, reverse: bool
    ) -> Iterator[tuple[Windowed, object]]:
        low, high = self._optional_bytes(from_key), self._optional_bytes(to_key)
        rows = list(self._sessions(low, high, earliest_end, MAX_LONG, latest_start, reverse))
        from_bytes = self._key.deserialize
        return ((Windowed(from_bytes(key), start, end), item) for key, start, end, item in rows)

    def _sessions(
        self, low: bytes | None, high: bytes | None, earliest_end: int, latest_end: int, latest_start: int, reverse: bool
    ) -> Iterator[tuple[bytes, int, int, object]]:
        """Iterate over (serialized key, start, end, item)."""
        unpack = _SUFFIX.unpack
        for key, suffix, item in self._scan(low, high, earliest_end, latest_end, reverse):
            end, start = unpack(suffix)
            if end >= earliest_end and start <= latest_start:
                yield key, start, end, item

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        from_bytes, unpack_from = self._key.deserialize, _SUFFIX.unpack_from

        def entry_leaves(physical: bytes, new: object, old: object, timestamp: int, headers: object) -> None:
            position = len(physical) - SUFFIX_SIZE
            end, start = unpack_from(physical, position)
            listener(Windowed(from_bytes(physical[PREFIX_SIZE:position]), start, end), new, old, end, headers)

        return self._objects.set_flush_listener(entry_leaves, send_old_values)

    def set_row_loop(self, loop: RowLoop) -> None:
        """Forward flushed sessions together, if the store is cached: with the times of their ends, as the listener does."""
        forgets = self.forgets_headers

        def forward(
            keys: Sequence[Windowed],
            values: Sequence[object],
            timestamps: Sequence[int],
            headers: Sequence[Headers],
            entries: Sequence[object],
        ) -> bool:
            return loop(keys, values, [key[2] for key in keys], [[] for _ in keys] if forgets else headers, entries)

        if self._cached is not None:
            self._cached.set_row_loop(self._windows_of, forward)

    def _windows_of(self, keys: Sequence[bytes]) -> list[Windowed]:
        """Return the windowed keys of physical keys."""
        from_bytes, unpack, size = self._key.deserialize, _SUFFIX.unpack, SUFFIX_SIZE
        times = [unpack(key[-size:]) for key in keys]
        plain = [from_bytes(key[PREFIX_SIZE:-size]) for key in keys]
        return [make_windowed((key, start, end)) for key, (end, start) in zip(plain, times, strict=True)]
