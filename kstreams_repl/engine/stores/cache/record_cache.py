"""The record cache: Kafka Streams' ThreadCache and NamedCache; one `RecordCache` per task, shared by its cached stores.

Invariants, as in Kafka Streams: dirty entries are flushed in last-write order; evicting a dirty entry flushes all dirty entries of
its store, the evicted one first; a store evicts only its own entries when the shared budget is exceeded; a flushed entry stays as
a clean one, except a tombstone. Reads count as use, those of ranges entry by entry as they are read; the deployed host has its own
cache that leaves that out (`write_back_cache`), because its flushes depend on wall-clock time anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstreams_repl.engine.stores.cache.sorted_keys import SortedKeys

ENTRY_OVERHEAD = 8 + 8 + 8 + 1 + 8 + 8 + 4
"""Three references of a node, the dirty flag, and timestamp, offset, partition of the entry's context; in bytes."""

Entry = tuple[int, Any, bytes | None, str | None, int, int, int, Any]
"""(size in bytes, item, bytes if serialized, topic, partition, offset, timestamp, headers). A tombstone has neither item nor bytes."""

SIZE, ITEM, STORED, TOPIC, PARTITION, OFFSET, TIMESTAMP, HEADERS = range(8)

__all__ = [
    "ITEM",
    "ENTRY_OVERHEAD",
    "HEADERS",
    "OFFSET",
    "PARTITION",
    "SIZE",
    "STORED",
    "TIMESTAMP",
    "TOPIC",
    "Entry",
    "NamedCache",
    "RecordCache",
]


class RecordCache:
    """The budget in bytes that a task's cached stores share (``statestore.cache.max.bytes``)."""

    __slots__ = ("max_bytes", "size", "exact", "caches")

    def __init__(self, max_bytes: int, *, exact: bool = True) -> None:
        self.max_bytes = max_bytes
        self.size = 0
        self.exact = exact
        self.caches: list[Any] = []
        """The caches that share the budget; each has `dirty`."""

    @property
    def dirty(self) -> bool:
        """Whether any store has entries that were not flushed."""
        return any(cache.dirty for cache in self.caches)


class NamedCache:
    """One store's entries, eldest first, and which of them are dirty, in last-write order."""

    __slots__ = ("entries", "dirty", "size", "_shared", "_on_flush", "_keys")

    def __init__(self, shared: RecordCache, on_flush: Callable[[list[tuple[bytes, Entry]]], None]) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.dirty: dict[bytes, None] = {}
        self.size = 0
        self._shared = shared
        self._on_flush = on_flush
        self._keys = SortedKeys(self.entries)
        shared.caches.append(self)

    def put(self, key: bytes, entry: Entry, is_dirty: bool) -> None:
        entries, shared = self.entries, self._shared
        size = entry[0]
        before = entries.pop(key, None)
        entries[key] = entry
        if before is not None:
            size -= before[0]
        else:
            self._keys.added(key)
        if is_dirty:
            dirty = self.dirty
            dirty.pop(key, None)
            dirty[key] = None
        self.size += size
        shared.size += size
        if shared.size > shared.max_bytes:
            self._evict()

    def _evict(self) -> None:
        entries, shared = self.entries, self._shared
        while shared.size > shared.max_bytes and entries:
            before = self.size
            key = next(iter(entries))
            entry = entries.pop(key)
            self._keys.removed(key)
            self.size -= entry[0]
            if key in self.dirty:
                del self.dirty[key]
                self._flush([(key, entry)])
            shared.size += self.size - before  # entries that a forward puts into the same cache count twice, as in Kafka Streams

    def flush(self) -> None:
        if self.dirty:
            before = self.size
            self._flush([])
            self._shared.size += self.size - before

    def _flush(self, leaving: list[tuple[bytes, Entry]]) -> None:
        entries = self.entries
        deleted = []
        for key in self.dirty:
            entry = entries[key]
            leaving.append((key, entry))
            if entry[ITEM] is None and entry[STORED] is None:
                deleted.append(key)
        self.dirty.clear()
        self._on_flush(leaving)
        for key in deleted:
            # A forward during the flush may have written the key again; that entry stays.
            if key not in self.dirty and (gone := entries.pop(key, None)) is not None:
                self.size -= gone[0]
                self._keys.removed(key)

    def range(self, low: bytes | None, high: bytes | None, reverse: bool) -> list[tuple[bytes, Entry]]:
        """Return entries with low <= key < high, tombstones included."""
        entries = self.entries
        if not entries:
            return []
        find = entries.get
        return [(key, entry) for key in self._keys.range(low, high, reverse) if (entry := find(key)) is not None]

    def use(self, key: bytes) -> Entry | None:
        """Return the current entry and mark it as the youngest; None if it is no longer in the cache."""
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.entries[key] = entry
        return entry

    def clear(self) -> None:
        self._shared.size -= self.size
        self.size = 0
        self.entries.clear()
        self.dirty.clear()
        self._keys.reset()
