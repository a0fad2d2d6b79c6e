"""Writes since the last commit, on top of the committed rows: a dict, sorted by the first range read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from sortedcontainers import SortedList

_SAMPLE = 64


class Overlay:
    """Uncommitted rows by key; None marks a deletion. `rows` is live; write through `put`."""

    __slots__ = ("rows", "put", "_index", "_fresh")

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes | None] = {}
        self._index: SortedList | None = None
        self._fresh: list[bytes] = []
        self.put: Callable[[bytes, bytes | None], None] = self._make_put()

    def _make_put(self) -> Callable[[bytes, bytes | None], None]:
        rows, fresh = self.rows, self._fresh

        def put(key: bytes, value: bytes | None) -> None:
            if self._index is not None and key not in rows:
                fresh.append(key)
            rows[key] = value

        return put

    @property
    def size(self) -> int:
        """Return the approximate size of all values in bytes, extrapolated from the last one."""
        last = [len(value or b"") for value in islice(reversed(self.rows.values()), _SAMPLE)]
        return len(self.rows) * sum(last) // len(last) if last else 0

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        rows = self.rows
        if self._index is not None:
            self._fresh.extend(dict.fromkeys(key for key in keys if key not in rows))
        rows.update(zip(keys, values, strict=True))

    def range(self, low: bytes | None, high: bytes | None, reverse: bool) -> list[tuple[bytes, bytes | None]]:
        """Return rows with low <= key < high, deletions included."""
        rows = self.rows
        if not rows:
            return []
        if self._index is None:
            self._index = SortedList(rows)
        elif self._fresh:
            self._index.update(self._fresh)
        self._fresh.clear()
        return [(key, rows[key]) for key in self._index.irange(low, high, inclusive=(True, False), reverse=reverse)]

    def discard_range(self, low: bytes, high: bytes) -> None:
        """Discard the uncommitted rows of a range that is deleted as a whole."""
        for key in [key for key in self.rows if low <= key < high]:
            del self.rows[key]
        self._index = None
        self._fresh.clear()

    def clear(self) -> None:
        self.rows.clear()
        self._index = None
        self._fresh.clear()
