"""In-memory engines: a dict with an index that the first range read builds, and an undo log instead of an overlay.

Point reads and writes are dict operations; a store that is never iterated pays nothing for ordering. The index is updated lazily:
new keys wait in a list, deleted keys stay in the index as *stale* until there are many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from sortedcontainers import SortedList

from kstreams_repl.engine.stores.engine.environment import Hooks, Row
from kstreams_repl.system.errors import InvalidStateStoreError, TaskMigratedError


class MemoryEngine:
    """One ordered map in memory. `rows` is the live dict; write only through `put`."""

    __slots__ = ("name", "rows", "get", "put", "_undo", "_undo_columns", "_index", "_fresh", "_stale")

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[bytes, bytes] = {}
        self._undo: dict[bytes, bytes | None] = {}
        self._undo_columns: list[tuple[Sequence[bytes], Sequence[bytes | None]]] = []
        self._index: SortedList | None = None
        self._fresh: list[bytes] = []
        self._stale: set[bytes] = set()
        self.get: Callable[[bytes], bytes | None] = self.rows.get
        self.put: Callable[[bytes, bytes | None], None] = self._make_put()

    def _make_put(self) -> Callable[[bytes, bytes | None], None]:
        rows, undo, fresh, stale = self.rows, self._undo, self._fresh, self._stale
        get, pop = rows.get, rows.pop

        def put(key: bytes, value: bytes | None) -> None:
            if key not in undo:
                undo[key] = get(key)
            if value is None:
                if pop(key, None) is not None and self._index is not None:
                    stale.add(key)
            else:
                if self._index is not None and key not in rows:
                    if key in stale:
                        stale.discard(key)
                    else:
                        fresh.append(key)
                rows[key] = value

        return put

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        if self._index is not None or None in values:
            put = self.put
            for key, value in zip(keys, values, strict=True):
                put(key, value)
            return
        self._begin_column()
        self._undo_columns.append((keys, list(map(self.rows.get, keys))))
        self.rows.update(zip(keys, values, strict=True))  # type: ignore[arg-type]

    def _begin_column(self) -> None:
        """Move the undo entries of single writes into the column log before the next column, so that the order is kept."""
        undo = self._undo
        if undo:
            self._undo_columns.append((list(undo), list(undo.values())))
            undo.clear()

    def _sorted(self) -> SortedList:
        index = self._index
        if index is None or len(self._stale) > 1000 + len(self.rows):
            index = self._index = SortedList(self.rows)
            self._fresh.clear()
            self._stale.clear()
        elif self._fresh:
            if len(self._fresh) < 8:
                for key in self._fresh:
                    index.add(key)
            else:
                index.update(self._fresh)
            self._fresh.clear()
        return index

    def range(
        self, low: bytes | None = None, high: bytes | None = None, reverse: bool = False, limit: int | None = None
    ) -> Iterator[Row]:
        get = self.rows.get
        keys = self._sorted().irange(low, high, inclusive=(True, False), reverse=reverse)
        rows = ((key, value) for key in keys if (value := get(key)) is not None)
        return iter(list(rows if limit is None else islice(rows, limit)))

    def delete_range(self, low: bytes, high: bytes) -> None:
        put = self.put
        if self._index is None:
            doomed = [key for key in self.rows if low <= key < high]
        else:
            doomed = list(self._sorted().irange(low, high, inclusive=(True, False)))
        for key in doomed:
            put(key, None)

    def approximate_count(self) -> int:
        return len(self.rows)

    def commit(self) -> None:
        self._undo.clear()
        self._undo_columns.clear()

    def rollback(self) -> None:
        put = self.put
        self._begin_column()
        for keys, before in reversed(self._undo_columns):
            for key, value in zip(keys, before, strict=True):
                put(key, value)
        self.commit()


class MemoryEnvironment(Hooks):
    """The in-memory engines of one task: used by the test driver and for stores that are not persistent."""

    path: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self._engines: dict[str, MemoryEngine] = {}
        self._attributes: dict[str, bytes] = {}
        self._committed_attributes: dict[str, bytes] = {}
        self._positions: dict[str, int] = {}
        self._commit_id = -1
        self._owner: str | None = None
        self._token: str | None = None

    @property
    def positions(self) -> Mapping[str, int]:
        return self._positions

    @property
    def commit_id(self) -> int:
        return self._commit_id

    def engine(self, name: str, *, persistent: bool = True) -> MemoryEngine:
        self._check_open()
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = MemoryEngine(name)
        return engine

    def attribute(self, name: str) -> bytes | None:
        return self._attributes.get(name)

    def set_attribute(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._attributes.pop(name, None)
        else:
            self._attributes[name] = value

    def commit(self, positions: Mapping[str, int], commit_id: int) -> None:
        self._check_open()
        if self._token != self._owner:
            raise TaskMigratedError("these stores were taken over by another owner; nothing was committed")
        for callback in self._before_commit:
            callback()
        for engine in self._engines.values():
            engine.commit()
        self._committed_attributes = dict(self._attributes)
        self._positions.update(positions)
        self._commit_id = commit_id

    def put_off(self) -> None:
        for engine in self._engines.values():
            engine.commit()

    def rollback(self) -> None:
        for engine in self._engines.values():
            engine.rollback()
        self._attributes = dict(self._committed_attributes)
        for callback in self._after_rollback:
            callback()

    def restore(
        self,
        name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        *,
        positions: Mapping[str, int] | None = None,
        persistent: bool = True,
    ) -> None:
        engine = self.engine(name, persistent=persistent)
        put = engine.put
        for key, value in zip(keys, values, strict=True):
            put(key, value)
        engine.commit()
        self._committed_attributes = dict(self._attributes)
        if positions:
            self._positions.update(positions)

    def recycle(self) -> None:
        self._before_commit.clear()
        self._after_rollback.clear()
        self.rollback()
        self._engines.clear()

    def take_ownership(self, token: str) -> None:
        self._owner = self._token = token

    def reader_check(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidStateStoreError("the stores of this task are closed")
