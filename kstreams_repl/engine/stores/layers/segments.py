"""Window and session rows in time segments, laid out as Kafka Streams does over RocksDB.

A physical key is `int64 segment id‖store key` with segment id = timestamp // segment interval, so iteration is by segment, then by
key. A segment expires as a whole, once it lies entirely before observed time − retention. Two different limits follow: a *put* is
rejected only if its segment has expired, a *read* hides every row with timestamp < observed − retention + 1. Observed time is the
largest timestamp put so far; it is committed with the rows, so a restart changes no result. A put into a deployed task's cache
affects reads immediately (`noted_time`) and not only when it is flushed, so commits change no result either.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from kstreams_repl.engine.stores.engine.environment import Engine, Environment, Row
from kstreams_repl.engine.stores.kinds.typed_store import LONG
from kstreams_repl.engine.stores.layers.observed_time import ObservedTime

MIN_SEGMENT_INTERVAL_MS = 60_000
PREFIX_SIZE = 8


def segment_interval_ms(retention_ms: int) -> int:
    """Return half the retention, but at least one minute."""
    return max(retention_ms // 2, MIN_SEGMENT_INTERVAL_MS)


class SegmentedRows(ObservedTime):
    """The physical rows of one window or session store.

    Args:
        timestamp_at: offset of the timestamp (int64) from the end of a key: 12 in window keys, 16 in session keys.
        on_expired: called for each rejected put.
        time_first: the store is read by time (emit on window close); it then shows one more millisecond, as in Kafka Streams.
    """

    def __init__(
        self,
        environment: Environment,
        engine: Engine,
        name: str,
        *,
        retention_ms: int,
        timestamp_at: int,
        on_expired: Callable[[], None],
        time_first: bool = False,
    ) -> None:
        self._engine = engine
        self._timestamp_at = timestamp_at
        self._time_of: Callable[[bytes], bytes] = itemgetter(slice(-timestamp_at, 8 - timestamp_at))
        self._on_expired = on_expired
        self.retention_ms = retention_ms
        self.log_key: Callable[[bytes], bytes] | None = _without_prefix
        self._span = retention_ms + 1 if time_first else retention_ms
        self.interval_ms = segment_interval_ms(retention_ms)
        self.noted_time = -1
        """The largest timestamp put into a cache over these rows: determines what reads hide, but not which writes are rejected."""
        self._first_live = b""
        self.known_ends: dict[int, Any] = {}
        """What a store keeps of its windows' keys, by start; forgotten at a rollback."""
        self.segments: list[int] = []
        self.get: Callable[[bytes], bytes | None] = self._make_get()
        self.put: Callable[[bytes, bytes | None], None] = self._put
        self.approximate_count = engine.approximate_count
        super().__init__(environment, name)

    def _load(self) -> None:
        super()._load()
        self.noted_time = self.observed_time
        self.known_ends.clear()
        self.segments = find_segments(self._engine)
        self._first_live = b""

    def save(self) -> None:
        self.observed_time = max(self.observed_time, self.noted_time)
        super().save()

    def prefix(self, timestamp: int) -> bytes:
        """Return the physical prefix of keys with this timestamp."""
        return LONG.pack(timestamp // self.interval_ms)

    def hidden_up_to(self) -> int:
        """Return the largest timestamp that reads hide."""
        return max(self.observed_time, self.noted_time) - self._span

    def note_time(self, timestamp: int) -> None:
        """Record that a row with this timestamp was put into the cache."""
        if timestamp > self.noted_time:
            self.noted_time = timestamp

    def _make_get(self) -> Callable[[bytes], bytes | None]:
        read, position, unpack_from, span = self._engine.get, self._timestamp_at, LONG.unpack_from, self._span

        def get(key: bytes) -> bytes | None:
            if unpack_from(key, len(key) - position)[0] <= self.observed_time - span:
                return None
            return read(key)

        return get

    def visible(self, key: bytes) -> bool:
        """Return False for a key that a read must hide."""
        timestamp: int = LONG.unpack_from(key, len(key) - self._timestamp_at)[0]
        return timestamp > self.hidden_up_to()

    def admit(self, key: bytes) -> bool:
        """Advance observed time to this key's; return False, and count the drop, if its segment has expired."""
        timestamp = LONG.unpack_from(key, len(key) - self._timestamp_at)[0]
        return self.admit_time(timestamp)

    def admit_time(self, timestamp: int) -> bool:
        if timestamp > self.observed_time:
            self.observed_time = timestamp
        segment = timestamp // self.interval_ms
        live = max(self.observed_time - self.retention_ms, 0) // self.interval_ms
        segments = self.segments
        if segment < live:
            self._on_expired()
            return False
        if not segments or segment != segments[-1]:
            index = bisect_left(segments, segment)
            if index == len(segments) or segments[index] != segment:
                insort(segments, segment)
        if segments[0] < live:
            self._drop_before(live)
        return True

    def _drop_before(self, live: int) -> None:
        at = bisect_left(self.segments, live)
        self._first_live = LONG.pack(live)
        self._engine.delete_range(LONG.pack(0), self._first_live)
        del self.segments[:at]

    def _put(self, key: bytes, value: bytes | None) -> None:
        if self.admit(key):
            self._engine.put(key, value)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Put columns, equivalent to one `put` after the other; if no row's segment has expired at the end, each time is admitted once
        and all rows are written together."""
        times = sorted(LONG.unpack(time)[0] for time in set(map(self._time_of, keys)))
        live = max(max(self.observed_time, times[-1]) - self.retention_ms, 0) // self.interval_ms
        if times[0] // self.interval_ms >= live:
            for time in times:
                self.admit_time(time)
            self._engine.put_many(keys, values)
        else:
            for key, value in zip(keys, values, strict=True):
                self._put(key, value)

    def put_admitted(self, key: bytes, value: bytes | None) -> None:
        """Write a row that was admitted earlier; if its segment has expired since, write and count nothing."""
        if key >= self._first_live:
            self._engine.put(key, value)

    def remove(self, key: bytes) -> None:
        """Delete a row; unlike a put of None, creates and drops no segment."""
        timestamp = LONG.unpack_from(key, len(key) - self._timestamp_at)[0]
        if timestamp > self.observed_time:
            self.observed_time = timestamp
        self._engine.put(key, None)

    def range(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[Row]:
        """Iterate over rows that are not hidden, by physical key."""
        position, hidden, unpack_from = self._timestamp_at, self.hidden_up_to(), LONG.unpack_from
        rows = self._engine.range(low, high, reverse)
        if hidden < 0:
            return rows
        return (row for row in rows if unpack_from(row[0], len(row[0]) - position)[0] > hidden)

    def segment_ids(self, time_from: int, time_to: int) -> list[int]:
        """Return live segments that may hold timestamps in [time_from, time_to], ascending."""
        low = bisect_left(self.segments, max(time_from, 0) // self.interval_ms)
        high = bisect_right(self.segments, time_to // self.interval_ms)
        return self.segments[low:high]


_without_prefix: Callable[[bytes], bytes] = itemgetter(slice(PREFIX_SIZE, None))


def find_segments(engine: Engine) -> list[int]:
    """Return the segment ids present in an engine, by seeking from one to the next."""
    segments: list[int] = []
    low: bytes | None = None
    if engine.approximate_count() == 0:
        return segments
    while True:
        row = next(engine.range(low, None, False, 1), None)
        if row is None:
            return segments
        segment = LONG.unpack_from(row[0])[0]
        segments.append(segment)
        low = LONG.pack(segment + 1)

