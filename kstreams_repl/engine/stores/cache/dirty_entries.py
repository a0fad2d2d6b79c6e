"""The dirty entries of a write-back cache: their order, their keys in byte order for range reads, and their estimated size."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedList

from kstreams_repl.engine.stores.cache.cache_entry import CacheEntry, EntryState, headers_length, length
from kstreams_repl.engine.stores.cache.record_cache import ENTRY_OVERHEAD, RecordCache
from kstreams_repl.engine.stores.layers.codec import NO_TYPES, TEXTS, Codec

_FIRST_COMPACTION = 131_072
_VALUE_SIZE = 24
_SAMPLE = 64
_FEW = 8


class DirtyEntries:
    """The entries written since the last flush, in the order of the writes.

    A write appends the entry to `order`, so an entry may be in it several times; its last position counts. `order` is always the same
    list, because generated code holds it.
    """

    __slots__ = ("order", "_compact_at", "_index", "_indexed", "_indexed_to")

    def __init__(self) -> None:
        self.order: list[CacheEntry] = []
        self._compact_at = _FIRST_COMPACTION
        self._index: SortedList | None = None
        self._indexed: set[bytes] = set()
        self._indexed_to = 0

    def take(self) -> list[CacheEntry]:
        """Return each dirty entry once, in the order of the last writes, and mark them as clean; `order` stays."""
        entries: list[CacheEntry] = []
        found_one, clean, dirty = entries.append, EntryState.CLEAN, EntryState.DIRTY
        for slot in reversed(self.order):
            if slot.state is dirty:
                slot.state = clean
                found_one(slot)
        entries.reverse()
        return entries

    def compact(self) -> None:
        """Drop all but the last position of each entry."""
        order = self.take()
        for slot in order:
            slot.state = EntryState.DIRTY
        self.clear()
        self.order += order
        self._compact_at = 2 * len(order) + _FIRST_COMPACTION

    @property
    def is_long(self) -> bool:
        """Whether there may be so many repeated writes that a compaction pays."""
        return len(self.order) >= self._compact_at

    def clear(self) -> None:
        self.order.clear()
        self._compact_at = _FIRST_COMPACTION
        self._index, self._indexed, self._indexed_to = None, set(), 0

    def keys(self, low: bytes | None, high: bytes | None, reverse: bool) -> Iterator[bytes]:
        """Iterate over the dirty keys with low <= key < high; each call updates the index, so that writes need not."""
        fresh = {slot.key for slot in self.order[self._indexed_to :]} - self._indexed
        if self._index is None:
            self._index = SortedList(fresh)
        elif len(fresh) < _FEW:
            for key in fresh:
                self._index.add(key)
        else:
            self._index.update(fresh)
        self._indexed |= fresh
        self._indexed_to = len(self.order)
        keys: Iterator[bytes] = self._index.irange(low, high, inclusive=(True, False), reverse=reverse)
        return keys


class DirtyBytes:
    """The estimated size of a store's dirty entries, which counts towards the task's budget.

    It is estimated from the latest entries; values without a fixed layout are counted as they are written instead.

    Attributes:
        texts: types whose values can be long.
        written: bytes of long objects and serialized values since the last flush, repeated writes included, and the value at which to check
            the budget again.
    """

    __slots__ = ("texts", "variable", "written", "_shared", "_size", "_check_after")

    def __init__(self, shared: RecordCache, codec: Codec) -> None:
        self._shared = shared
        self._size = 0
        self._check_after = shared.max_bytes >> 4
        self.variable = codec.serde.layout is None
        self.texts = TEXTS & codec.deferrable if self.variable else NO_TYPES
        self.written = [0, self._check_after]

    def exceed_budget(self, order: list[CacheEntry]) -> bool:
        """Estimate the size and return whether the task's caches exceed their budget."""
        sample, variable = order[-_SAMPLE:], self.variable
        weight = sum(len(slot.key) + _VALUE_SIZE + headers_length(slot.headers) for slot in sample)
        if not variable:
            weight += sum(length(slot.value) for slot in sample)
        self._account(len(order) * (ENTRY_OVERHEAD + weight // max(len(sample), 1)) + (self.written[0] if variable else 0))
        self.written[1] = self.written[0] + self._check_after
        return self._shared.size > self._shared.max_bytes

    def recount(self, order: list[CacheEntry]) -> None:
        """Count the values of entries without repeated writes."""
        self.written[0] = sum(length(slot.value) for slot in order) if self.variable else 0

    def clear(self) -> None:
        self.written[:] = 0, self._check_after
        self._account(0)

    def _account(self, size: int) -> None:
        self._shared.size += size - self._size
        self._size = size
