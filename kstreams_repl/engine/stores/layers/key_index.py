"""In-memory index of the times for which each key of a window or session store has rows.

It turns a read of one key's windows or sessions into a bisection and point reads, instead of an engine range, for which all
deferred writes would first have to be serialized. Invariants: the list of an indexed key is complete; while `complete` is True, a
key that is not indexed has no rows. When the lists outgrow the capacity, expired entries are removed; if that is not enough, the
index is cleared and reads its keys one by one on access.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

CAPACITY = 200_000

Suffix = bytes
"""The part of a store key after the key: it begins with the row's time (int64), so the suffixes of one key sort by time."""


class KeyIndex:
    """Sorted suffixes by serialized key.

    Args:
        rows_of: reads the suffixes of one key from the store, ascending; with None, (key, suffix) of all keys.
        count: approximate number of rows in the store.
        first_shown: the suffix below which rows have expired.
        capacity: maximum number of suffixes.
    """

    __slots__ = ("lists", "complete", "size", "_rows_of", "_first_shown", "_capacity", "_count")

    def __init__(
        self,
        rows_of: Callable[[bytes | None], Iterable[tuple[bytes, Suffix]]],
        count: Callable[[], int],
        first_shown: Callable[[], Suffix],
        capacity: int = CAPACITY,
    ) -> None:
        self._rows_of = rows_of
        self._count = count
        self._first_shown = first_shown
        self._capacity = capacity
        self.lists: dict[bytes, list[Suffix]] = {}
        self.complete = False
        self.size = 0
        self.reset()

    def reset(self) -> None:
        """Discard and reload the index, because a rollback removed rows."""
        self.lists.clear()
        self.size = 0
        self.complete = self._count() * 2 <= self._capacity
        if self.complete:
            for key, suffix in self._rows_of(None):
                self.lists.setdefault(key, []).append(suffix)
                self.size += 1
            for suffixes in self.lists.values():
                suffixes.sort()

    def of(self, key: bytes) -> list[Suffix]:
        """Return the key's suffixes, ascending. Do not modify the list; it is stale after the next write."""
        suffixes = self.lists.get(key)
        if suffixes is None:
            if self.complete:
                return []
            suffixes = self.lists[key] = [suffix for _, suffix in self._rows_of(key)]
            self.size += len(suffixes) + 1
            if self.size > self._capacity:
                self._shrink()
        return suffixes

    def added(self, key: bytes, suffix: Suffix) -> None:
        """Record that a row was put (it may have existed before)."""
        suffixes = self.lists.get(key)
        if suffixes is None:
            if not self.complete:
                return
            self.lists[key] = [suffix]
        elif not suffixes or suffix > suffixes[-1]:
            suffixes.append(suffix)
        else:
            index = bisect_left(suffixes, suffix)
            if suffixes[index] == suffix:
                return
            suffixes.insert(index, suffix)
        self.size += 1
        if self.size > self._capacity:
            self._shrink()

    def note(self, key: bytes, suffix: Suffix, item: object) -> None:
        """Record that a row was put, or deleted if `item` is None."""
        if item is None:
            self.removed(key, suffix)
        else:
            self.added(key, suffix)

    def removed(self, key: bytes, suffix: Suffix) -> None:
        """Record that a row was deleted (it may not have existed)."""
        suffixes = self.lists.get(key)
        if suffixes:
            index = bisect_left(suffixes, suffix)
            if index < len(suffixes) and suffixes[index] == suffix:
                del suffixes[index]
                self.size -= 1
                if not suffixes and self.complete:
                    del self.lists[key]

    def _shrink(self) -> None:
        """Remove expired entries; if more than half of the capacity is still used, clear the index and read keys on access from now on."""
        first, complete = self._first_shown(), self.complete
        kept = {}
        for key, suffixes in self.lists.items():
            del suffixes[: bisect_left(suffixes, first)]
            if suffixes or not complete:
                kept[key] = suffixes
        self.lists = kept
        self.size = sum(map(len, kept.values())) + (0 if complete else len(kept))
        if self.size * 2 > self._capacity:
            self.lists = {}
            self.size = 0
            self.complete = False
