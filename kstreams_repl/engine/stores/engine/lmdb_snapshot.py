"""A read-only snapshot of an environment, readable from any process while its task writes.

A reader pins the pages of its snapshot, so it copies rows out and ends: every read here is one short transaction with a limit on
rows and on seconds. Reads never block the writer and need no cooperation from it.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import lmdb

from kstreams_repl.engine.stores.engine.environment import Row
from kstreams_repl.engine.stores.engine.failures import storage_error
from kstreams_repl.engine.stores.engine.lmdb import _OPEN, ENGINE_PREFIX, META, copy_environment, open_database
from kstreams_repl.engine.stores.engine.lmdb_engine import LmdbTree
from kstreams_repl.engine.stores.engine.long_keys import BUCKET_SIZE
from kstreams_repl.engine.stores.engine.read_only import open_read_only
from kstreams_repl.engine.stores.engine.write_lock import within
from kstreams_repl.system.errors import InvalidStateStoreError

_LONG = struct.Struct(">q")
DEFAULT_SECONDS = 5.0
_CHUNK = 20_000
_LOCK_SECONDS = 5.0


class LmdbSnapshot:
    """The committed state in a directory; `transaction()` gives one consistent view of all stores.

    Inside the process that has the environment open, its handle is shared, because LMDB forbids a second one.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)
        shared = self._shared = _OPEN.get(self.path)
        self._owned = None if shared is not None else open_read_only(self.path)
        self._env = shared._env if shared is not None else self._owned.env  # type: ignore[union-attr]
        self._trees: dict[str, LmdbTree] = {}
        self._meta: lmdb._Database | None = None

    @contextmanager
    def transaction(self) -> Iterator[SnapshotView]:
        """A view of the last commit; end it soon, because it pins pages."""
        with self._begin() as transaction:
            yield SnapshotView(self, transaction)

    def _begin(self) -> lmdb.Transaction[bytes]:
        try:
            return self._env.begin()
        except lmdb.MapResizedError:
            self._env.set_mapsize(0)
            return self._env.begin()
        except lmdb.Error as error:
            raise storage_error(error, self.path, "reading") from error

    def _database(self, name: bytes) -> lmdb._Database:
        if self._owned is None:
            return within(_LOCK_SECONDS, self.path, lambda: open_database(self._env, name, create=False))
        return self._env.open_db(name, create=False)

    def names(self) -> list[str]:
        """Return the names of the engines."""
        prefix = ENGINE_PREFIX.encode()
        with self._begin() as transaction:
            return [key[len(prefix) :].decode() for key, _ in transaction.cursor() if key.startswith(prefix)]

    def copy_to(self, path: str) -> None:
        """Write a compacted copy of the last commit into a directory, as `LmdbEnvironment.copy_to`."""
        copy_environment(self._env, path)

    def tree(self, name: str) -> LmdbTree:
        """Return the engine with this name.

        Raises:
            InvalidStateStoreError: nothing was ever written to it.
        """
        tree = self._trees.get(name)
        if tree is None:
            try:
                tree = self._trees[name] = LmdbTree(self._database((ENGINE_PREFIX + name).encode()), self.meta(), name)
            except lmdb.NotFoundError:
                raise InvalidStateStoreError(f"no store {name!r} in {self.path}", store=name, path=self.path) from None
        return tree

    def meta(self) -> lmdb._Database:
        if self._meta is None:
            try:
                self._meta = self._database(META)
            except lmdb.NotFoundError:
                raise InvalidStateStoreError(f"no commit yet in {self.path}", path=self.path) from None
        return self._meta

    def read(
        self,
        name: str,
        low: bytes | None = None,
        high: bytes | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        seconds: float = DEFAULT_SECONDS,
    ) -> tuple[list[Row], bool]:
        """Return (rows with low <= key < high, whether these are all) as of now; fewer rows when `limit` or `seconds` is reached."""
        self.tree(name)
        with self.transaction() as view:
            return view.read(name, low, high, reverse=reverse, limit=limit, seconds=seconds)

    @property
    def commit_id(self) -> int:
        self.meta()
        with self.transaction() as view:
            return view.commit_id

    @property
    def positions(self) -> dict[str, int]:
        self.meta()
        with self.transaction() as view:
            return view.positions

    def close(self) -> None:
        if self._owned is not None:
            self._owned.release()
            self._owned = None

    @property
    def outdated(self) -> bool:
        """Whether its files were closed or replaced since: another snapshot must be opened."""
        if self._shared is not None:
            return self._shared.closed or self._shared.failed is not None
        return self._owned is None or self._owned.outdated

    def begin(self) -> lmdb.Transaction[bytes]:
        """Return a read transaction at the last commit; its end is that of the last reference to it."""
        return self._begin()

    def __enter__(self) -> LmdbSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SnapshotView:
    """All stores of a task as of one commit."""

    def __init__(self, snapshot: LmdbSnapshot, transaction: lmdb.Transaction[bytes]) -> None:
        self._snapshot = snapshot
        self._transaction = transaction
        self._present: set[str] = set()

    def _tree(self, name: str) -> LmdbTree:
        """Return an engine that this transaction contains; LMDB refuses a handle of one that was created since it began.

        Raises:
            InvalidStateStoreError: nothing was written to it as of this view's commit.
        """
        tree = self._snapshot.tree(name)
        if name not in self._present:
            if not self._transaction.cursor().set_key((ENGINE_PREFIX + name).encode()):
                raise InvalidStateStoreError(f"no store {name!r} in {self._snapshot.path} yet", store=name, path=self._snapshot.path)
            self._present.add(name)
        return tree

    def _meta_value(self, key: bytes) -> bytes | None:
        return self._transaction.get(key, None, self._snapshot.meta())

    @property
    def commit_id(self) -> int:
        data = self._meta_value(b"commit")
        return -1 if data is None else int(_LONG.unpack(data)[0])

    @property
    def commit_time_ms(self) -> int | None:
        """Time of the commit in epoch milliseconds, by the clock of its machine; None if written by a release that did not record it."""
        data = self._meta_value(b"time")
        return None if data is None else int(_LONG.unpack(data)[0])

    @property
    def closed_in_order(self) -> bool:
        """Whether the owner has closed the environment cleanly since."""
        return self._meta_value(b"clean") == b"1"

    @property
    def owner(self) -> str | None:
        """The owner's token; None if the environment has no owner."""
        data = self._meta_value(b"owner")
        return None if data is None else data.decode()

    @property
    def positions(self) -> dict[str, int]:
        meta = dict(self._transaction.cursor(db=self._snapshot.meta()))
        return {key[2:].decode(): _LONG.unpack(value)[0] for key, value in meta.items() if key[:2] == b"p:"}

    def attribute(self, name: str) -> bytes | None:
        return self._meta_value(b"a:" + name.encode())

    def get(self, name: str, key: bytes) -> bytes | None:
        return self._tree(name).get(self._transaction, key)

    def count(self, name: str) -> int:
        return self._tree(name).count(self._transaction)

    def columns(
        self, name: str, *, limit: int | None = None, seconds: float = DEFAULT_SECONDS
    ) -> tuple[Sequence[bytes], Sequence[bytes], bool]:
        """Return (keys, values, whether these are all): `read` in columns, which is several times faster for large stores."""
        tree = self._tree(name)
        if limit is None or tree.count(self._transaction) < limit:
            cursor = self._transaction.cursor(db=tree.database)
            keys: list[bytes] = list(cursor.iternext(True, False))
            if tree.get(self._transaction, b"") is None and max(map(len, keys), default=0) < BUCKET_SIZE:
                return keys, list(self._transaction.cursor(db=tree.database).iternext(False, True)), True
        rows, complete = self.read(name, limit=limit, seconds=seconds)
        return [key for key, _ in rows], [value for _, value in rows], complete

    def read(
        self,
        name: str,
        low: bytes | None = None,
        high: bytes | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        seconds: float = DEFAULT_SECONDS,
    ) -> tuple[list[Row], bool]:
        rows = self._tree(name).range(self._transaction, low, high, reverse)
        collected: list[Row] = []
        deadline = time.monotonic() + seconds
        while True:
            size = _CHUNK if limit is None else min(_CHUNK, limit - len(collected))
            chunk = list(islice(rows, size))
            collected += chunk
            if len(chunk) < size:
                return collected, True
            if (limit is not None and len(collected) >= limit) or time.monotonic() > deadline:
                return collected, next(rows, None) is None
