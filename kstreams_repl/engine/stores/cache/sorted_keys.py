"""The keys of a dict in byte order, maintained lazily.

The first range read sorts the keys; later keys wait in a list until the next range read. Invariant: every key of the dict is in
the index or in `_fresh`; keys removed from the dict may still be in the index (`_stale`), so a reader looks up each key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sortedcontainers import SortedList

_FEW = 8


class SortedKeys:
    """The keys of `rows` in byte order; the owner reports which keys are added and removed."""

    __slots__ = ("_rows", "_index", "_fresh", "_stale")

    def __init__(self, rows: Mapping[bytes, object]) -> None:
        self._rows = rows
        self._index: SortedList | None = None
        self._fresh: list[bytes] = []
        self._stale: set[bytes] = set()

    def added(self, key: bytes) -> None:
        """Record that a key that was not in the dict has been added."""
        if self._index is not None:
            if key in self._stale:
                self._stale.discard(key)
            else:
                self._fresh.append(key)

    def removed(self, key: bytes) -> None:
        """Record that a key has been removed from the dict."""
        if self._index is not None:
            self._stale.add(key)

    def reset(self) -> None:
        """Discard the index, because the dict was cleared or replaced."""
        self._index = None
        self._fresh.clear()
        self._stale.clear()

    def range(self, low: bytes | None, high: bytes | None, reverse: bool) -> Iterator[bytes]:
        """Iterate over keys with low <= key < high; some may no longer be in the dict."""
        index, fresh = self._index, self._fresh
        if index is None or len(self._stale) > 1000 + len(self._rows):
            self.reset()
            index = self._index = SortedList(self._rows)
        elif fresh:
            if len(fresh) < _FEW:
                for key in fresh:
                    index.add(key)
            else:
                index.update(fresh)
            fresh.clear()
        keys: Iterator[bytes] = index.irange(low, high, inclusive=(True, False), reverse=reverse)
        return keys
