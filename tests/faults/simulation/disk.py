"""LMDB's interface over dictionaries: atomic commits, snapshots for readers, one write lock per file that a stopped process keeps.

The project's own environment code runs on it unchanged. Faults: a crash inside a commit (nothing of it is there), an I/O error, and a
crash of the *machine*, after which a file that was not synced may hold any mixture of its last versions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lmdb

from tests.faults.simulation.world import Actor, World

Tree = dict[bytes, bytes]


class File:
    """One data file: named trees that are replaced by a commit, never changed."""

    def __init__(self) -> None:
        self.trees: dict[bytes, Tree] = {}
        self.before: list[dict[bytes, Tree]] = []
        self.synced = 0
        self.holder: Actor | None = None
        self.owner_actor: Actor | None = None

    def replace(self, trees: dict[bytes, Tree]) -> None:
        self.before = [*self.before[-3:], self.trees]
        self.trees = trees


class Disk:
    """All files, and what stands in for the module `lmdb`."""

    def __init__(self, world: World, *, trouble: float) -> None:
        self.world = world
        self.trouble = trouble
        self.files: dict[str, File] = {}
        self.boot = b"boot-1"
        self.deadlines: dict[Actor, float] = {}

    def open(self, path: str, **_: Any) -> Environment:
        self.world.pause(0.0003, "opening a store")
        return Environment(self, path)

    def __getattr__(self, name: str) -> Any:
        return getattr(lmdb, name)

    def discard(self, path: Any) -> None:
        self.world.check_alive()
        self.files.pop(str(path), None)

    def power_cut(self) -> None:
        """The machine restarts: what was not synced is any mixture of the last versions, tree by tree."""
        self.boot = b"boot-%d" % (int(self.boot.split(b"-")[1]) + 1)
        random = self.world.random
        for file in self.files.values():
            versions = [file.trees, *file.before]
            names = {name for version in versions for name in version}
            file.trees = {
                name: random.choice([version[name] for version in versions if name in version])
                if name != b"meta"
                else file.trees[name]
                for name in sorted(names)
            }
            file.holder = None

    @contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """Bound the waits for a write lock that this actor makes inside."""
        actor = self.world.current
        if actor is None or seconds is None:
            yield
            return
        self.deadlines[actor] = self.world.now + seconds
        try:
            yield
        finally:
            self.deadlines.pop(actor, None)


class LockWaited(Exception):
    """The write lock was not free in time."""


class Environment:
    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self._path = path
        self.file = disk.files.setdefault(path, File())

    def begin(self, db: Any = None, write: bool = False) -> Transaction:
        self.disk.world.check_alive()
        if write:
            self._lock()
        return Transaction(self, db, write)

    def _lock(self) -> None:
        world, actor, file = self.disk.world, self.disk.world.current, self.file
        while file.holder is not None and file.holder.alive:
            if world.now >= self.disk.deadlines.get(actor, float("inf")):  # type: ignore[arg-type]
                raise LockWaited
            world.pause(0.05, "waiting for a write lock", fragile=False)
        file.holder = actor
        if actor is not None:
            actor.holds = file

    def unlock(self) -> None:
        actor, self.file.holder = self.file.holder, None
        if actor is not None:
            actor.holds = None

    def open_db(self, name: bytes, txn: Any = None, create: bool = True) -> bytes:
        if name not in txn.trees:
            if not create:
                raise lmdb.NotFoundError("no such database")
            txn.changes[name] = {}
        return name

    def reader_check(self) -> int:
        return 0

    def info(self) -> dict[str, int]:
        return {"last_pgno": 1}

    def stat(self) -> dict[str, int]:
        return {"psize": 4096}

    def sync(self, force: bool = False) -> None:
        self.file.before = []

    def close(self) -> None:
        self.disk.world.check_alive()


class Transaction:
    def __init__(self, environment: Environment, database: Any, write: bool) -> None:
        self._environment = environment
        self._database = database
        self._write = write
        self.trees = environment.file.trees
        self.changes: dict[bytes, dict[bytes, bytes | None]] = {}

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self._write:
            return
        environment = self._environment
        world, disk = environment.disk.world, environment.disk
        try:
            if kind is not None:
                return
            world.pause(0.0005, "inside a store's commit")
            if not world.calm and world.random.random() < disk.trouble:
                world.tell("a store's commit fails")
                raise lmdb.DiskError("mdb_txn_commit: Input/output error")
            trees = dict(self.trees)
            for name, rows in self.changes.items():
                tree = dict(trees.get(name, {}))
                for key, value in rows.items():
                    if value is None:
                        tree.pop(key, None)
                    else:
                        tree[key] = value
                trees[name] = tree
            environment.file.replace(trees)
        finally:
            environment.unlock()
        world.pause(0.0001, "after a store's commit")

    def abort(self) -> None:
        pass

    def get(self, key: bytes, default: Any = None, db: Any = None) -> Any:
        name = db or self._database
        changed = self.changes.get(name)
        if changed is not None and key in changed:
            return changed[key]
        return self.trees.get(name, {}).get(key, default)

    def put(self, key: bytes, value: bytes, db: Any = None) -> None:
        self.changes.setdefault(db or self._database, {})[key] = value

    def delete(self, key: bytes, db: Any = None) -> None:
        self.changes.setdefault(db or self._database, {})[key] = None  # type: ignore[assignment]

    def rows(self, name: Any) -> list[tuple[bytes, bytes]]:
        tree: dict[bytes, bytes | None] = {**self.trees.get(name, {}), **self.changes.get(name, {})}
        return sorted((key, value) for key, value in tree.items() if value is not None)

    def stat(self, db: Any) -> dict[str, int]:
        return {"entries": len(self.rows(db))}

    def cursor(self, db: Any = None) -> Cursor:
        return Cursor(self, db or self._database)


class Cursor:
    def __init__(self, transaction: Transaction, name: Any) -> None:
        self._transaction = transaction
        self._name = name
        self._rows = transaction.rows(name)
        self._at = 0

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._rows)

    def _found(self) -> bool:
        return 0 <= self._at < len(self._rows)

    def first(self) -> bool:
        self._at = 0
        return self._found()

    def last(self) -> bool:
        self._at = len(self._rows) - 1
        return self._found()

    def next(self) -> bool:
        self._at += 1
        return self._found()

    def set_range(self, key: bytes) -> bool:
        self._at = bisect_left(self._rows, (key,))
        return self._found()

    def set_key(self, key: bytes) -> bool:
        return self.set_range(key) and self._rows[self._at][0] == key

    def key(self) -> bytes:
        return self._rows[self._at][0] if self._found() else b""

    def value(self) -> bytes:
        return self._rows[self._at][1] if self._found() else b""

    def delete(self) -> bool:
        self._transaction.delete(self._rows.pop(self._at)[0], db=self._name)
        return True

    def iternext(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        for row in self._rows[self._at :]:
            yield row if keys and values else row[0] if keys else row[1]

    def iterprev(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._rows[self._at :: -1] if self._at >= 0 else [])

    def putmulti(self, rows: list[tuple[bytes, bytes]]) -> None:
        for key, value in rows:
            self._transaction.put(key, value, db=self._name)


def waiting(disk: Disk, locked: Callable[[str, float], Exception]) -> Callable[..., Any]:
    """What stands in for the environment's wait on another thread."""

    def within(timeout: float | None, path: str, work: Callable[[], Any], ended: Callable[[], bool] | None = None) -> Any:
        for again in (False, True):
            try:
                with disk.within(timeout):
                    return work()
            except LockWaited:
                if again or ended is None or not ended():
                    raise locked(path, timeout or 0.0) from None
        raise AssertionError

    return within
