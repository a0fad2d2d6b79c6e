"""Window and session stores: rows with a time that expire, and an optional index of the times of each key.

`IndexedStore` is any of them; `SegmentedStore` is one whose physical keys begin with a segment id (`segments`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Protocol

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.stores.engine.environment import Environment, after
from kstreams_repl.engine.stores.kinds.typed_store import LONG, MAX_LONG, TypedStore
from kstreams_repl.engine.stores.layers.key_index import KeyIndex, Suffix
from kstreams_repl.engine.stores.layers.object_store import StoredObjects
from kstreams_repl.engine.stores.layers.segments import PREFIX_SIZE, SegmentedRows
from kstreams_repl.system.types import Windowed

make_windowed: Callable[[tuple[Any, int, int]], Windowed] = partial(tuple.__new__, Windowed)


class ExpiringRows(Protocol):
    @property
    def environment(self) -> Environment: ...

    def approximate_count(self) -> int: ...

    def hidden_up_to(self) -> int: ...


class IndexedStore(TypedStore):
    """A store whose rows of one key are read by time."""

    _objects: StoredObjects
    indexable = True
    """False if the store has a second form, whose writes the index would not see."""

    def __init__(self, name: str, objects: StoredObjects, rows: ExpiringRows, key_serde: Serde, *, persistent: bool) -> None:
        super().__init__(name, objects, key_serde, persistent=persistent)
        self._objects = objects
        self._expiring = rows
        self._exact: bool = getattr(objects, "exact", False)
        self._index: KeyIndex | None = None
        self._indexing = False

    def index_by_key(self) -> None:
        """Index each key's times in memory from its first read on, for operators that read by key with every record."""
        self._indexing = self.indexable and (self._index is not None or not self._exact)

    def _suffixes_of(self, key: bytes) -> list[Suffix]:
        """Return a key's suffixes from the index, ascending; some may have expired."""
        index = self._index
        if index is None:
            index = self._index = KeyIndex(self._suffixes, self._expiring.approximate_count, self._first_shown)
            self._expiring.environment.after_rollback(index.reset)
        return index.of(key)

    def _suffixes(self, key: bytes | None) -> Iterator[tuple[bytes, Suffix]]:
        """Iterate over (serialized key, suffix) for the index, of one key or, with None, of all."""
        raise NotImplementedError

    def _first_shown(self) -> bytes:
        return LONG.pack(max(self._expiring.hidden_up_to() + 1, 0))

    def _rows_held(self) -> str:
        return f"~{self._expiring.approximate_count()} rows"


class SegmentedStore(IndexedStore):
    """A store with segments.

    Attributes:
        last_suffix: the largest part of a physical key after the key.
    """

    last_suffix: ClassVar[bytes]

    def __init__(self, name: str, objects: StoredObjects, rows: SegmentedRows, key_serde: Serde, *, persistent: bool) -> None:
        super().__init__(name, objects, rows, key_serde, persistent=persistent)
        self._rows = rows
        shared: set[int] | None = getattr(objects, "cached_segments", None)
        self.cached_segments: set[int] | None = shared if shared is not None else set() if hasattr(objects, "cache") else None

    def _segments(self, time_from: int, time_to: int, reverse: bool) -> list[int]:
        """Return the segments of the rows and, if the store is cached, of the cached entries."""
        ids = self._rows.segment_ids(time_from, time_to)
        cached = self.cached_segments
        if cached:
            interval = self._rows.interval_ms
            first, last = max(time_from, 0) // interval, time_to // interval
            ids = sorted({*ids, *(segment for segment in cached if first <= segment <= last)})
        return ids[::-1] if reverse else ids

    def _suffixes(self, key: bytes | None) -> Iterator[tuple[bytes, Suffix]]:
        size = len(self.last_suffix)
        for segment in self._segments(0, MAX_LONG, False):
            prefix = LONG.pack(segment)
            low = prefix if key is None else prefix + key
            high = LONG.pack(segment + 1) if key is None else after(prefix + key + self.last_suffix)
            for physical, _ in self._objects.range(low, high):
                if key is None or len(physical) == PREFIX_SIZE + len(key) + size:
                    yield physical[PREFIX_SIZE:-size], physical[-size:]

    def _scan(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool
    ) -> Iterator[tuple[bytes, Suffix, object]]:
        """Iterate over (serialized key, suffix, item) of the segments that may hold these times, with low <= key <= high."""
        size = len(self.last_suffix)
        for segment in self._segments(time_from, time_to, reverse):
            prefix = LONG.pack(segment)
            for physical, item in self._objects.range(prefix + (low or b""), LONG.pack(segment + 1), reverse):
                key = physical[PREFIX_SIZE:-size]
                if (low is None or key >= low) and (high is None or key <= high):
                    yield key, physical[-size:], item
