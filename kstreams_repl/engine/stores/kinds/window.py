"""Window stores as a processor uses them: values by key and window start, plain or timestamped, with or without duplicates.

Store key: `key‖int64 start‖int32 sequence`; the sequence is 0 unless duplicates are retained. Time bounds are inclusive on both ends.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Column
from operator import itemgetter
from typing import Any, NamedTuple

from kstreams_repl.engine.serdes import Serde, time_windowed
from kstreams_repl.engine.stores.cache.cache_entry import CacheEntry
from kstreams_repl.engine.stores.cache.write_back_cache import WriteBackCache
from kstreams_repl.engine.stores.engine.environment import Environment, after
from kstreams_repl.engine.stores.kinds.typed_store import LONG, MAX_LONG
from kstreams_repl.engine.stores.kinds.window_reads import NO_SEQUENCE, WindowReads
from kstreams_repl.engine.stores.layers.indexed_store import SegmentedStore, make_windowed
from kstreams_repl.engine.stores.layers.object_store import StoredObjects, WriteBackObjects
from kstreams_repl.engine.stores.layers.segments import PREFIX_SIZE, SegmentedRows
from kstreams_repl.engine.stores.state_store import FindOutlet, FindRowLoop, FlushListener
from kstreams_repl.system.types import Headers, Windowed

_SUFFIX = struct.Struct(">qi")
SUFFIX_SIZE = 12
_WINDOWED_KEY: Callable[[bytes], bytes] = itemgetter(slice(PREFIX_SIZE, -4))
"""The part of a physical key with the key and the window's start: the form in which windowed keys are written to topics."""
_PLAIN_KEY: Callable[[bytes], bytes] = itemgetter(slice(PREFIX_SIZE, -SUFFIX_SIZE))
_START: Callable[[bytes], bytes] = itemgetter(slice(-SUFFIX_SIZE, -4))
_KNOWN_WINDOWS = 256


class WindowEnds(NamedTuple):
    """What precedes and follows the key in the physical keys of one window.

    Attributes:
        load: returns a new slot for a physical key that the cache does not have: without reading, if the window began after every row of
            the store and the cache has dropped no slot since; None if reads hide the window's rows.
    """

    head: bytes
    tail: bytes
    load: Callable[[bytes], CacheEntry] | None


class Sequence:
    """The sequence number that distinguishes duplicates; committed with the rows, so a restart never reuses one."""

    def __init__(self, environment: Environment, name: str) -> None:
        self._environment = environment
        self._attribute = f"{name}/sequence"
        self.value = 0
        self._load()
        environment.before_commit(self._save)
        environment.after_rollback(self._load)

    def _load(self) -> None:
        kept = self._environment.attribute(self._attribute)
        self.value = 0 if kept is None else int.from_bytes(kept, "big")

    def _save(self) -> None:
        if self.value:
            self._environment.set_attribute(self._attribute, self.value.to_bytes(4, "big"))

    def next(self) -> int:
        self.value = (self.value + 1) & 0x7FFFFFFF
        return self.value


class WindowStore(WindowReads, SegmentedStore):
    """A window store over segmented rows."""

    last_suffix = _SUFFIX.pack(MAX_LONG, 0x7FFFFFFF)

    def __init__(
        self,
        name: str,
        objects: StoredObjects,
        rows: SegmentedRows,
        key_serde: Serde,
        value_serde: Serde,
        *,
        window_size_ms: int,
        timestamped: bool,
        persistent: bool,
        sequence: Sequence | None = None,
        log_null: Callable[[bytes], None] | None = None,
    ) -> None:
        super().__init__(
            name, objects, rows, key_serde, window_size_ms=window_size_ms, timestamped=timestamped, persistent=persistent
        )
        self._value = value_serde
        self._read_shown = objects.get_any if isinstance(objects, WriteBackObjects) else objects.get
        """Reads a row that is known not to be hidden."""
        self._sequence = sequence
        self._log_null = log_null
        self.cached: WriteBackCache | None = objects if isinstance(objects, WriteBackCache) else None
        """The write-back cache, for operators that use its slots directly (`WriteBackCache.find`)."""
        self.known_ends: dict[int, WindowEnds] = rows.known_ends
        """Parts of physical keys by window start."""
        if self.cached is not None:
            self.cached.dropped = rows.known_ends.clear
        self.fetch_raw, self.put_raw = self._make_access()

    def _make_access(self) -> tuple[Callable[[bytes, int], object], Callable[[bytes, object, int], None]]:
        """Return functions that read and write one window by serialized key. They cache the window's part of the key, because consecutive
        records mostly fall into the same window."""
        if self._sequence is not None:
            return self._make_duplicates(self._sequence)
        if isinstance(self._objects, WriteBackObjects):
            return self._make_unchecked(self._objects)
        read, write, interval, pack = self._objects.get, self._objects.put, self._rows.interval_ms, LONG.pack
        cached_segments, rows, noting, retention = self.cached_segments, self._rows, self.cached is not None, self._rows.retention_ms
        last, head, tail, noted = -1, b"", b"", -1
        read_key, physical = b"", b""

        def fetch_raw(key: bytes, start: int) -> object:
            nonlocal last, head, tail, read_key, physical
            if noting and start <= rows.noted_time - retention:
                return None
            if start != last:
                last, head, tail = start, pack(start // interval), pack(start) + NO_SEQUENCE
            read_key, physical = key, head + key + tail
            return read(physical)

        def put_raw(key: bytes, item: object, start: int) -> None:
            nonlocal last, head, tail, noted, read_key, physical
            if start != last or key is not read_key:
                last, head, tail = start, pack(start // interval), pack(start) + NO_SEQUENCE
                read_key, physical = key, head + key + tail
            if start != noted and cached_segments is not None:
                noted = start
                cached_segments.add(start // interval)
            if noting and start > rows.noted_time:
                rows.noted_time = start
            write(physical, item)
            if self._index is not None:
                self._index.note(key, tail, item)

        return fetch_raw, put_raw

    def ends_of(self, start: int) -> WindowEnds:
        """Return the parts of the physical keys of one window, for a caller that may put rows of it into the cache, and keep them in
        `known_ends`. The caller must not use them for windows that its own stream time has expired.
        """
        assert self.cached is not None
        rows, ends_by_start = self._rows, self.known_ends
        if len(ends_by_start) >= _KNOWN_WINDOWS:
            ends_by_start.clear()
        latest = max(rows.noted_time, rows.observed_time)
        load = None if start <= latest - rows.retention_ms else self.cached.load if start <= latest else self.cached.make
        segment = start // rows.interval_ms
        if self.cached_segments is not None:
            self.cached_segments.add(segment)
        rows.note_time(start)
        ends_by_start[start] = ends = WindowEnds(LONG.pack(segment), LONG.pack(start) + NO_SEQUENCE, load)
        return ends

    def _make_unchecked(self, objects: WriteBackObjects) -> tuple[Callable[[bytes, int], object], Callable[[bytes, object, int], None]]:
        """Return the functions of `_make_access` for write-back objects. They check that a segment accepts writes once per
        window instead of once per record, and check again when observed time or the live segments change."""
        read, write, rows, pack = objects.get_any, objects.put_any, self._rows, LONG.pack
        interval, retention = rows.interval_ms, rows.retention_ms
        last, head, tail = -1, b"", b""
        ends_by_start: dict[int, tuple[bytes, bytes]] = {}
        admitted: set[int] = set()
        admitted_at, admitted_among = -1, rows.segments
        read_key, physical = b"", b""

        def turn_to(start: int) -> None:
            nonlocal last, head, tail
            parts = ends_by_start.get(start)
            if parts is None:
                if len(ends_by_start) >= _KNOWN_WINDOWS:
                    ends_by_start.clear()
                parts = ends_by_start[start] = pack(start // interval), pack(start) + NO_SEQUENCE
            head, tail = parts
            last = start

        def fetch_raw(key: bytes, start: int) -> object:
            nonlocal read_key, physical
            if start <= rows.observed_time - retention:
                return None
            if start != last:
                turn_to(start)
            read_key, physical = key, head + key + tail
            return read(physical)

        def put_raw(key: bytes, item: object, start: int) -> None:
            nonlocal admitted_at, admitted_among, read_key, physical
            if start not in admitted or rows.observed_time != admitted_at or rows.segments is not admitted_among:
                if not rows.admit_time(start):
                    return
                if rows.observed_time != admitted_at or rows.segments is not admitted_among:
                    admitted.clear()
                    admitted_at, admitted_among = rows.observed_time, rows.segments
                admitted.add(start)
            if start != last or key is not read_key:
                turn_to(start)
                read_key, physical = key, head + key + tail
            write(physical, item)
            if self._index is not None:
                self._index.note(key, tail, item)

        return fetch_raw, put_raw

    def _make_duplicates(self, sequence: Sequence) -> tuple[Callable[[bytes, int], object], Callable[[bytes, object, int], None]]:
        objects, rows, pack, log_null = self._objects, self._rows, LONG.pack, self._log_null
        interval, admit, read, write = rows.interval_ms, None, objects.get, objects.put
        if isinstance(objects, WriteBackObjects):
            write, admit = objects.put_any, rows.admit_time
        segment, prefix = -1, b""

        def fetch_raw(key: bytes, start: int) -> object:
            return read(pack(start // interval) + key + pack(start) + NO_SEQUENCE)

        def put_duplicate(key: bytes, item: object, start: int) -> None:
            nonlocal segment, prefix
            suffix = _SUFFIX.pack(start, sequence.next())
            if start // interval != segment:
                segment = start // interval
                prefix = pack(segment)
            if item is not None:
                if admit is None or admit(start):
                    write(prefix + key + suffix, item)
                if self._index is not None:
                    self._index.added(key, suffix)
            elif log_null is not None:
                log_null(key + suffix)

        return fetch_raw, put_duplicate

    def fetch_key_raw(self, key: bytes, time_from: int, time_to: int, reverse: bool = False) -> Iterator[tuple[int, Any]]:
        """Iterate over (window start, item) of one serialized key with time_from <= start <= time_to."""
        if not self._indexing:
            return self._scan_key(key, time_from, time_to, reverse)
        return iter(self._read_indexed(key, time_from, time_to, reverse))

    def _read_indexed(self, key: bytes, time_from: int, time_to: int, reverse: bool) -> list[tuple[int, object]]:
        suffixes = self._suffixes_of(key)
        if not suffixes or time_to < 0:
            return []
        rows, read, interval = self._rows, self._read_shown, self._rows.interval_ms
        first = bisect_left(suffixes, LONG.pack(max(time_from, rows.hidden_up_to() + 1, 0)))
        last = bisect_left(suffixes, LONG.pack(time_to + 1), first) if time_to < MAX_LONG else len(suffixes)
        found = []
        for suffix in suffixes[first:last]:
            start = LONG.unpack_from(suffix)[0]
            item = read(LONG.pack(start // interval) + key + suffix)
            if item is not None:
                found.append((start, item))
        if reverse:
            found.reverse()
        return found

    def _scan_key(self, key: bytes, time_from: int, time_to: int, reverse: bool) -> Iterator[tuple[int, object]]:
        time_from = max(time_from, 0)
        size, unpack_from = PREFIX_SIZE + len(key) + SUFFIX_SIZE, LONG.unpack_from
        position = PREFIX_SIZE + len(key)
        low, high = key + LONG.pack(time_from) if time_to >= 0 else key, key + _SUFFIX.pack(max(time_to, 0), 0x7FFFFFFF)
        if time_to < time_from:
            return
        read: Callable[..., Iterator[tuple[bytes, object]]] = self._objects.range
        backward = reverse and getattr(self._objects, "exact", False)
        for segment in self._segments(time_from, time_to, reverse):
            prefix = LONG.pack(segment)
            more: tuple[bytes, ...] = ()
            if backward:  # Kafka Streams reads its cache back to the beginning of the segment
                more = (prefix + key + LONG.pack(segment * self._rows.interval_ms),)
            for physical, item in read(prefix + low, after(prefix + high), reverse, *more):
                # The range may also contain longer keys that begin with this one.
                if len(physical) == size:
                    yield unpack_from(physical, position)[0], item

    def range_raw(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, int, Any]]:
        """Iterate over (serialized key, window start, item) in physical order: by segment, then by key, then by time."""
        if time_to < time_from or (low is not None and high is not None and low > high):
            return
        unpack_from = LONG.unpack_from
        for key, suffix, item in self._scan(low, high, time_from, time_to, reverse):
            start = unpack_from(suffix)[0]
            if time_from <= start <= time_to:
                yield key, start, item

    def _windows_of(self, keys: Column[bytes]) -> list[Windowed]:
        """Return the windowed keys of physical keys."""
        starts = struct.unpack(f">{len(keys)}q", b"".join(map(_START, keys)))
        size, last = self.window_size_ms, MAX_LONG - self.window_size_ms
        ends = [start + size if start < last else MAX_LONG for start in starts]
        plain = map(self._key.deserialize, map(_PLAIN_KEY, keys))
        return list(map(make_windowed, zip(plain, starts, ends, strict=True)))

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        windowed, timestamped, unpack_from = self._windowed, self.timestamped, LONG.unpack_from

        def entry_leaves(physical: bytes, new: Any, old: Any, timestamp: int, headers: object) -> None:
            end = len(physical) - SUFFIX_SIZE
            key = windowed(physical[PREFIX_SIZE:end], unpack_from(physical, end)[0])
            if timestamped:
                if new is not None:
                    new, timestamp = new
                if old is not None:
                    old = old[0]
            listener(key, new, old, timestamp, headers)

        return self._objects.set_flush_listener(entry_leaves, send_old_values)

    def set_outlet(self, find: FindOutlet, find_loop: FindRowLoop) -> None:
        """Send flushed rows in their stored bytes where `find` returns an outlet for them, otherwise together if there is a loop."""
        if not self.timestamped or self.cached is None:
            return
        outlet = find(time_windowed(self._key, self.window_size_ms), self._value)
        if outlet is None:
            if (loop := find_loop()) is not None:
                self.cached.set_row_loop(self._windows_of, loop)
            return

        def leave(
            physical: Column[bytes], values: Column[bytes | None], timestamps: Column[int], headers: Column[Headers] | None
        ) -> None:
            outlet(list(map(_WINDOWED_KEY, physical)), values, timestamps, headers)

        self.cached.set_outlet(leave)
