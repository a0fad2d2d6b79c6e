"""Versioned key-value stores (KIP-889): the value of a key as of a time, within the history retention.

The latest version of each key is in one engine and never expires; older ones are in rows per key and time segment, by the time
their validity *ended*, so that whole segments expire. A put older than observed time − retention is rejected. Results, return
values and corner cases (deletions that end no version, equal timestamps) are those of Kafka Streams' RocksDBVersionedStore.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.stores.engine.environment import Engine, Environment, after
from kstreams_repl.engine.stores.kinds.typed_store import LONG, TypedStore
from kstreams_repl.engine.stores.kinds.version_row import VersionRow
from kstreams_repl.engine.stores.layers.observed_time import ObservedTime
from kstreams_repl.engine.stores.layers.segments import find_segments
from kstreams_repl.engine.stores.log.changelog import Changelog
from kstreams_repl.engine.stores.state_store import NOT_PUT
from kstreams_repl.system.types import VersionedRecord


def history_segment_interval_ms(retention_ms: int) -> int:
    """Return Kafka Streams' choice: a third of short histories, a 24th of long ones."""
    if retention_ms <= 60_000:
        return max(retention_ms // 3, 2_000)
    if retention_ms <= 300_000:
        return max(retention_ms // 5, 20_000)
    if retention_ms <= 3_600_000:
        return max(retention_ms // 12, 60_000)
    return max(retention_ms // 24, 300_000)


class VersionedRows(ObservedTime):
    """Versions of serialized values; restore also writes through this class."""

    def __init__(
        self, environment: Environment, name: str, latest: Engine, history: Engine, *, retention_ms: int, follow: bool = True
    ) -> None:
        self._latest = latest
        self._history = history
        self.retention_ms = retention_ms
        self._interval = history_segment_interval_ms(retention_ms)
        self._segments: list[int] = []
        super().__init__(environment, name, follow=follow)

    def _load(self) -> None:
        super()._load()
        self._segments = find_segments(self._history)

    def expired(self, timestamp: int) -> bool:
        return timestamp < self.observed_time - self.retention_ms

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> int | None:
        """Put a version; return the time at which it ends, None if it is the latest, or `NOT_PUT` if it was too old."""
        if self.expired(timestamp):
            return NOT_PUT
        if timestamp > self.observed_time:
            self.observed_time = timestamp
        self._drop_dead_segments()
        latest = self._latest.get(key)
        ends: int | None = None
        if latest is not None:
            latest_timestamp: int = LONG.unpack_from(latest)[0]
            if timestamp >= latest_timestamp:
                if timestamp > latest_timestamp:
                    self._end_in_history(key, latest_timestamp, timestamp, latest[8:])
                self._latest.put(key, None if value is None else LONG.pack(timestamp) + value)
                return None
            ends = latest_timestamp
        done, ends = self._put_into_history(key, value, timestamp, ends)
        if done:
            return ends
        if ends is not None:
            self._finish_in_history(key, value, timestamp, ends)
        elif value is not None:
            self._latest.put(key, LONG.pack(timestamp) + value)
        else:
            self._mark_deletion(key, timestamp)
        return ends

    def _put_into_history(self, key: bytes, value: bytes | None, timestamp: int, ends: int | None) -> tuple[bool, int | None]:
        """Search from the newest segment down for the row whose versions surround `timestamp`, and put the version there."""
        index = bisect_left(self._segments, timestamp // self._interval)
        for segment in reversed(self._segments[index:]):
            row = self._row(segment, key)
            if row is None:
                continue
            if row.next <= timestamp:
                return False, ends
            if row.min <= timestamp:
                return True, self._put_into_row(segment, row, key, value, timestamp)
            if row.min < self.observed_time - self.retention_ms:
                return True, NOT_PUT
            ends = row.min
        return False, ends

    def _put_into_row(self, segment: int, row: VersionRow, key: bytes, value: bytes | None, timestamp: int) -> int:
        index, valid_from, valid_to, before = row.find(timestamp)
        if valid_from == timestamp:
            row.versions[index] = (timestamp, value)
        elif timestamp // self._interval != segment:
            self._end_in_history(key, valid_from, timestamp, before)
            row.versions[index] = (timestamp, value)
        else:
            row.versions.insert(index, (timestamp, value))
        self._write(segment, key, row)
        return valid_to

    def _end_in_history(self, key: bytes, valid_from: int, valid_to: int, value: bytes | None) -> None:
        """Move a version that now ends at `valid_to` into the segment of that time, unless that segment has expired."""
        segment = valid_to // self._interval
        if not self._make_live(segment):
            return
        row = self._row(segment, key)
        if row is None:
            row = VersionRow(valid_to, [(valid_from, value)])
        else:
            row.insert_as_latest(valid_from, valid_to, value)
        self._write(segment, key, row)

    def _finish_in_history(self, key: bytes, value: bytes | None, timestamp: int, ends: int) -> None:
        segment = ends // self._interval
        if not self._make_live(segment):
            return
        row = self._row(segment, key)
        if row is None:
            row = VersionRow(ends, [(timestamp, value)])
        elif row.next <= timestamp:
            row.insert_as_latest(timestamp, ends, value)
        else:
            row.insert_as_earliest(timestamp, value)
        self._write(segment, key, row)

    def _mark_deletion(self, key: bytes, timestamp: int) -> None:
        segment = timestamp // self._interval
        if not self._make_live(segment):
            return
        row = self._row(segment, key)
        if row is None:
            row = VersionRow(timestamp, [(timestamp, None)])
        elif row.next == timestamp:
            return
        else:
            row.insert_as_latest(row.next, timestamp, None)
        self._write(segment, key, row)

    def get(self, key: bytes) -> tuple[bytes, int, int | None] | None:
        """Return (value, valid from, None) of the latest version."""
        latest = self._latest.get(key)
        return None if latest is None else (latest[8:], LONG.unpack_from(latest)[0], None)

    def get_as_of(self, key: bytes, as_of: int) -> tuple[bytes, int, int | None] | None:
        """Return (value, valid from, valid to) of the version at `as_of`; None before the retention unless the latest is that old."""
        latest = self.get(key)
        if latest is not None and latest[1] <= as_of:
            return latest
        if as_of < self.observed_time - self.retention_ms:
            return None
        index = bisect_left(self._segments, as_of // self._interval)
        for segment in reversed(self._segments[index:]):
            row = self._row(segment, key)
            if row is None:
                continue
            if row.next <= as_of:
                return None
            if row.min > as_of:
                continue
            _, valid_from, valid_to, value = row.find(as_of)
            return None if value is None else (value, valid_from, valid_to)
        return None

    def versions(self, key: bytes, first: int, last: int, newest_first: bool) -> Iterator[tuple[bytes, int, int | None]]:
        """Iterate over (value, valid from, valid to) of versions that were valid at some time in [first, last], without deletions.

        As in Kafka Streams, a version that ended in a later time segment than `last` is left out, and the latest is not, whenever it began
        before `last`.
        """
        latest = self.get(key)
        segments: list[int] = []
        if last >= self.observed_time - self.retention_ms:
            segments = self._segments[: bisect_left(self._segments, last // self._interval + 1)]
        versions: list[tuple[bytes, int, int | None]] = [] if latest is None or latest[1] > last else [latest]
        for segment in reversed(segments):
            row = self._row(segment, key)
            if row is None:
                continue
            ends = row.next
            for begins, value in row.versions:
                if value is not None and begins <= last and ends > first:
                    versions.append((value, begins, ends))
                ends = begins
        return iter(versions if newest_first else versions[::-1])

    def range_as_of(
        self, low: bytes | None, high: bytes | None, as_of: int | None, reverse: bool
    ) -> Iterator[tuple[bytes, tuple[bytes, int, int | None]]]:
        """Iterate over (key, (value, valid from, valid to)) as of a time, with low <= key < high, in the order of the keys."""
        keys = {key for key, _ in self._latest.range(low, high)}
        if as_of is not None:
            for segment in self._segments[bisect_left(self._segments, as_of // self._interval) :]:
                prefix = LONG.pack(segment)
                end = LONG.pack(segment + 1) if high is None else prefix + high
                keys.update(key[8:] for key, _ in self._history.range(prefix + (low or b""), end))
        for key in sorted(keys, reverse=reverse):
            version = self.get(key) if as_of is None else self.get_as_of(key, as_of)
            if version is not None:
                yield key, version

    def all_latest(self) -> Iterator[tuple[bytes, bytes, int]]:
        return ((key, data[8:], LONG.unpack_from(data)[0]) for key, data in self._latest.range())

    def _row(self, segment: int, key: bytes) -> VersionRow | None:
        data = self._history.get(LONG.pack(segment) + key)
        return None if data is None else VersionRow.decode(data)

    def _write(self, segment: int, key: bytes, row: VersionRow) -> None:
        self._history.put(LONG.pack(segment) + key, row.encode())

    def _make_live(self, segment: int) -> bool:
        if segment < max(self.observed_time - self.retention_ms, 0) // self._interval:
            return False
        index = bisect_left(self._segments, segment)
        if index == len(self._segments) or self._segments[index] != segment:
            insort(self._segments, segment)
        return True

    def _drop_dead_segments(self) -> None:
        live = max(self.observed_time - self.retention_ms, 0) // self._interval
        if self._segments and self._segments[0] < live:
            at = bisect_left(self._segments, live)
            self._history.delete_range(LONG.pack(0), LONG.pack(live))
            del self._segments[:at]


class Versioned(TypedStore):
    """A versioned store as a processor uses it."""

    def __init__(
        self,
        name: str,
        rows: VersionedRows,
        changelog: Changelog,
        key_serde: Serde,
        value_serde: Serde,
        *,
        persistent: bool,
        on_expired: Callable[[], None],
    ) -> None:
        super().__init__(name, changelog, key_serde, persistent=persistent)
        self._rows = rows
        self._changelog = changelog
        self._value = value_serde
        self._on_expired = on_expired

    def put(self, key: object, value: object, timestamp: int) -> int | None:
        return self.put_raw(self._bytes(key), value, timestamp)

    def put_raw(self, key: bytes, value: object, timestamp: int) -> int | None:
        data = self._value.serialize(value)
        ends = self._rows.put(key, data, timestamp)
        if ends == NOT_PUT:
            self._on_expired()
        self._changelog.log(key, data, timestamp)
        return ends

    def delete(self, key: object, timestamp: int) -> VersionedRecord | None:
        data = self._bytes(key)
        old = None
        if self._rows.expired(timestamp):
            self._on_expired()
        else:
            old = self._record(self._rows.get_as_of(data, timestamp))
            self._rows.put(data, None, timestamp)
        self._changelog.log(data, None, timestamp)
        return old

    def get(self, key: object, as_of: int | None = None) -> VersionedRecord | None:
        return self.get_raw(self._bytes(key), as_of)

    def get_raw(self, key: bytes, as_of: int | None = None) -> VersionedRecord | None:
        return self._record(self._rows.get(key) if as_of is None else self._rows.get_as_of(key, as_of))

    def range(
        self, from_key: object = None, to_key: object = None, as_of: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[Any, VersionedRecord]]:
        """Iterate over (key, version) as of a time (None: the latest), with from_key <= key <= to_key; None leaves that end open."""
        low, high = self._optional_bytes(from_key), self._optional_bytes(to_key)
        from_bytes, deserialize = self._key.deserialize, self._value.deserialize
        rows = self._rows.range_as_of(low, None if high is None else after(high), as_of, reverse)
        return ((from_bytes(key), VersionedRecord(deserialize(version[0]), version[1], version[2])) for key, version in rows)

    def versions(self, key: object, first: int, last: int, newest_first: bool = True) -> Iterator[VersionedRecord]:
        """Iterate over the versions of a key that were valid at some time from `first` to `last`."""
        deserialize = self._value.deserialize
        rows = self._rows.versions(self._bytes(key), first, last, newest_first)
        return (VersionedRecord(deserialize(value), begins, ends) for value, begins, ends in rows)

    def _record(self, version: tuple[bytes, int, int | None] | None) -> VersionedRecord | None:
        return None if version is None else VersionedRecord(self._value.deserialize(version[0]), version[1], version[2])

    def all(self) -> Iterator[tuple[Any, VersionedRecord]]:
        """Iterate over the latest version of every key."""
        from_bytes, deserialize = self._key.deserialize, self._value.deserialize
        return ((from_bytes(key), VersionedRecord(deserialize(value), timestamp)) for key, value, timestamp in self._rows.all_latest())

    def _rows_held(self) -> str:
        return f"history {self._rows.retention_ms} ms"
