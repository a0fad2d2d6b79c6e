"""One task's stores as of a commit, for reading: the project's own store classes over a read transaction of LMDB.

A `TaskReader` belongs to one state directory; it hands out `TaskView`s, each for one thread at a time. A view that is used again sees the
last commit; its stores load what they keep in memory only if something was committed since.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kstreams_repl.engine.stores.engine.environment import Row
from kstreams_repl.engine.stores.engine.lmdb_engine import LmdbTree
from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.stores.layers.row_format import have_headers, row_format
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.state.environment_attributes import INPUT
from kstreams_repl.serving.queries.position import Position
from kstreams_repl.system.errors import InvalidStateStoreError, StateStoreMigratedError
from kstreams_repl.system.types import TaskId, TopicPartition

_IDLE_VIEWS = 16
CHECK_SECONDS = 0.05
"""How often a reader looks whether its files were replaced."""
Defaults = tuple[object, object]
"""The application's default (key serde, value serde)."""


class _NoRecord:
    """The record context of a store that is only read."""

    timestamp = -1
    headers = None


class ReadEngine:
    """The rows of one engine as of a view's commit."""

    def __init__(self, name: str, view: TaskView) -> None:
        self.name = name
        self._view = view
        self._found: LmdbTree | None = None

    def _tree(self) -> LmdbTree | None:
        if self._found is None:
            self._found = self._view.tree(self.name)
        return self._found

    def get(self, key: bytes) -> bytes | None:
        tree = self._found or self._tree()
        value = None if tree is None else tree.get(self._view.transaction, key)
        if value is not None and self._view.counts_bytes:
            self._view.bytes_read += len(key) + len(value)
        return value

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        tree = self._tree()
        values = [None] * len(keys) if tree is None else tree.get_many(self._view.transaction, keys)
        if self._view.counts_bytes:
            self._view.bytes_read += sum(len(key) + len(row) for key, row in zip(keys, values, strict=True) if row is not None)
        return values

    def range(
        self, low: bytes | None = None, high: bytes | None = None, reverse: bool = False, limit: int | None = None
    ) -> Iterator[Row]:
        tree = self._tree()
        if tree is None:
            return iter(())
        rows = tree.range(self._view.transaction, low, high, reverse)
        return self._counted(rows) if self._view.counts_bytes else rows

    def _counted(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            self._view.bytes_read += len(row[0]) + len(row[1])
            yield row

    def approximate_count(self) -> int:
        tree = self._tree()
        return 0 if tree is None else tree.count(self._view.transaction)

    def put(self, key: bytes, value: bytes | None) -> None:
        raise read_only(self.name)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        raise read_only(self.name)

    def delete_range(self, low: bytes, high: bytes) -> None:
        raise read_only(self.name)


def read_only(store: str) -> InvalidStateStoreError:
    """Return the error for a write to a store that is open for reading."""
    return InvalidStateStoreError(f"store {store!r} is open for reading only", hint="processors write stores", store=store)


class TaskView:
    """One commit of a task; the read-only `Environment` of its stores. Used by one thread at a time."""

    closed = False
    counts_bytes = False
    """Whether `bytes_read` counts now."""

    def __init__(self, reader: TaskReader) -> None:
        self.bytes_read = 0
        self.reader = reader
        self.path = reader.snapshot.path
        self.transaction: Any = None
        self._seen = -1
        self._lacks = False
        """Whether an engine was missing at the last commit."""
        self._stores: dict[str, Any] = {}
        self._with_headers: dict[str, Any] = {}
        self._engines: dict[str, ReadEngine] = {}
        self._reload: list[Callable[[], None]] = []
        self._positions: dict[str, int] | None = None
        self._position: Position | None = None

    def begin(self) -> None:
        """Move to the last commit."""
        transaction = self.transaction = self.reader.snapshot.begin()
        number = transaction.id()
        if number != self._seen:
            if self._lacks:  # a transaction sees the engines that were opened before it
                self._lacks = False
                self.reader.open_engines()
                transaction = self.transaction = self.reader.snapshot.begin()
                number = transaction.id()
            self._positions = self._position = None
            for load in self._reload:
                load()
            self._seen = number

    def end(self) -> None:
        self.transaction = None
        self.counts_bytes = False

    def count_bytes(self) -> None:
        """Count the keys and values that are read from now on, in `bytes_read`."""
        self.counts_bytes, self.bytes_read = True, 0

    # ---- as an environment

    def engine(self, name: str, *, persistent: bool = True) -> ReadEngine:
        engine = self._engines[name] = ReadEngine(name, self)
        return engine

    def attribute(self, name: str) -> bytes | None:
        return self._meta(b"a:" + name.encode())

    def before_commit(self, callback: Callable[[], None]) -> None:
        """Do nothing: there is none."""

    def after_rollback(self, callback: Callable[[], None]) -> None:
        """Call it when the rows have changed, as after a rollback."""
        self._reload.append(callback)

    def _meta(self, key: bytes) -> bytes | None:
        value: bytes | None = self.transaction.get(key, None, self.reader.meta)
        return value

    # ---- what a query reads

    def tree(self, name: str) -> LmdbTree | None:
        """Return an engine's rows; None while nothing was written to it."""
        engine = self.reader.engines.get(name)
        self._lacks = self._lacks or engine is None
        return engine

    def store(self, builder: StoreBuilder, *, headers: bool = False) -> Any:
        """Return a store, opened at its first use. Call it after `begin`.

        Args:
            headers: a store that keeps headers shows them.

        Raises:
            InvalidStateStoreError: headers are wanted, and the rows here have none yet.
        """
        opened = self._stores.get(builder.name)
        return self._opened(builder, headers) if opened is None or builder.headers else opened

    def _opened(self, builder: StoreBuilder, headers: bool) -> Any:
        """Return a store in the format that its rows have: it may be that of an earlier version of the topology."""
        name, has_headers = builder.name, have_headers(self.attribute(row_format(builder.name)))
        if name not in self._stores or (name in self._with_headers) is not has_headers:
            kind = StoreKind.KEY_VALUE if builder.kind is StoreKind.LRU else builder.kind  # reading must not change the order of use
            read = replace(builder, kind=kind, caching=False, persistent=True, headers=has_headers)
            opened: Any = open_store(read, self, record_context=_NoRecord, defaults=self.reader.defaults)  # type: ignore[arg-type]
            self._stores[name] = opened.plain if has_headers else opened
            self._with_headers.pop(name, None)
            if has_headers:
                self._with_headers[name] = opened
        if headers and not has_headers:
            raise InvalidStateStoreError(
                f"the rows of store {name!r} on this host have no headers yet",
                hint="start the application once with this version: it converts them",
                store=name,
                retriable=True,
            )
        return self._with_headers[name] if headers else self._stores[name]

    def approximate_count(self, builder: StoreBuilder) -> int:
        """Return the number of a store's rows: keys, or windows, sessions and records of a join; of a versioned store its keys."""
        self.store(builder)
        return self._engines[builder.name].approximate_count()

    def get_many(self, builder: StoreBuilder, keys: Sequence[object], *, headers: bool = False) -> list[Any]:
        """Return what `get` returns for each key, for stores that have it; with timestamps as plain (value, timestamp) pairs."""
        store = self.store(builder, headers=headers)
        if builder.kind is StoreKind.VERSIONED:
            return list(map(store.get, keys))
        data = list(map(store.serialize_key, keys))
        if None in data:
            store.get(None)  # raises
        decode = store.decode
        return [None if row is None else decode(row) for row in self._engines[builder.name].get_many(data)]

    @property
    def positions(self) -> Mapping[str, int]:
        """The committed offsets: of changelogs, and of inputs (`INPUT`)."""
        if self._positions is None:
            rows = self.transaction.cursor(db=self.reader.meta)
            self._positions = {key[2:].decode(): int.from_bytes(data, "big", signed=True) for key, data in rows if key[:2] == b"p:"}
        return self._positions

    @property
    def position(self) -> Position:
        """The offset of the last record of each input that this commit reflects."""
        if self._position is None:
            self._position = Position.of(
                (_partition(name[len(INPUT) :]), offset - 1)
                for name, offset in self.positions.items()
                if name.startswith(INPUT) and offset > 0
            )
        return self._position

    @property
    def is_active(self) -> bool:
        """Whether the rows are those of a commit of the task; else they are those of a standby task, or are being restored."""
        return not any(offset < 0 for name, offset in self.positions.items() if name.startswith(INPUT)) and (
            self.commit_id >= 0 or not self.positions
        )

    @property
    def commit_id(self) -> int:
        """Id of the commit; -1 before the first."""
        data = self._meta(b"commit")
        return -1 if data is None else int.from_bytes(data, "big", signed=True)

    @property
    def owner(self) -> str | None:
        """The owner's token."""
        data = self._meta(b"owner")
        return None if data is None else data.decode()

    @property
    def is_closed(self) -> bool:
        """Whether the owner has closed the stores in order."""
        return self._meta(b"clean") == b"1"


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


class TaskReader:
    """The stores of one task in one directory. Thread-safe.

    Raises:
        InvalidStateStoreError: there is no state in it.
    """

    def __init__(self, task: TaskId, path: Path, defaults: Defaults) -> None:
        self.task = task
        self.path = path
        self.defaults = defaults
        self.snapshot = LmdbSnapshot(path)
        self.engines: dict[str, LmdbTree] = {}
        self.closed = False
        self._idle: list[TaskView] = []
        self._lock = threading.Lock()
        self._checked = time.monotonic()
        try:
            self.meta = self.snapshot.meta()
            self.open_engines()
        except BaseException:
            self.snapshot.close()
            raise

    def open_engines(self) -> None:
        """Open the engines that were created since."""
        with self._lock:
            for name in self.snapshot.names():
                self.engines[name] = self.snapshot.tree(name)

    def take(self) -> TaskView:
        """Return a view at the last commit; give it back."""
        if self.closed:
            raise migrated(self.task)
        try:
            view = self._idle.pop()
        except IndexError:
            view = TaskView(self)
        try:
            view.begin()
        except BaseException:
            view.end()
            raise
        return view

    def give(self, view: TaskView) -> None:
        """Take a view back."""
        view.end()
        if len(self._idle) < _IDLE_VIEWS and not self.closed:
            self._idle.append(view)

    @property
    def outdated(self) -> bool:
        """Whether the files were replaced or closed; looked up at most every `CHECK_SECONDS`."""
        now = time.monotonic()
        if not self.closed and now - self._checked > CHECK_SECONDS:
            self._checked = now
            if self.snapshot.outdated:
                self.close()
        return self.closed

    def close(self) -> None:
        """Close the files; views in use fail with `StateStoreMigratedError`."""
        with self._lock:
            if not self.closed:
                self.closed = True
                self._idle.clear()
                self.snapshot.close()


def migrated(task: TaskId) -> StateStoreMigratedError:
    """Return the error for a task whose files were closed or replaced during a read."""
    return StateStoreMigratedError(
        f"task {task} moved while its store was read", hint="ask again with the same handle", task=str(task)
    )
