"""The LMDB environment of one task: named engines, positions, commit id and owner token in one file that commits atomically.

Rules, each backed by an experiment (docs: guarantees):
- `writemap=False`: a full disk raises an error instead of SIGBUS. `sync=False`: the changelog is the durable truth; a changed boot
  id without a clean-close mark reveals a crash of the *machine*, and then nothing here is trusted.
- A large sparse map from the start: growing it would break readers in other processes.
- One environment per process and path, never across a fork.
- Every write transaction compares the owner token: a task that lost its stores commits nothing.
- After a failed commit the environment refuses to work until it is reopened, so a position never moves past missing rows.
"""

from __future__ import annotations

import os
import struct
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import lmdb

from kstreams_repl.engine.stores.engine.environment import Engine, Hooks
from kstreams_repl.engine.stores.engine.failures import corrupted, storage_error
from kstreams_repl.engine.stores.engine.lmdb_engine import LmdbEngine, LmdbTree
from kstreams_repl.engine.stores.engine.memory import MemoryEngine
from kstreams_repl.engine.stores.engine.page_checksums import PageSeal, check
from kstreams_repl.engine.stores.engine.read_only import MAX_DATABASES, MAX_READERS, close_read_only
from kstreams_repl.engine.stores.engine.write_lock import LockedError, OnLocked, within
from kstreams_repl.system.errors import InvalidStateStoreError, StateStoreError, TaskMigratedError
from kstreams_repl.system.forks import when_forked
from kstreams_repl.system.process_info import boot_id

FORMAT = b"1"
META = b"meta"
ENGINE_PREFIX = "store:"
DEFAULT_MAP_BYTES = 64 << 30
_SMALLEST_MAP_BYTES = 64 << 20

T = TypeVar("T")
_LONG = struct.Struct(">q")
_OPEN: weakref.WeakValueDictionary[str, LmdbEnvironment] = weakref.WeakValueDictionary()
_OPEN_LOCK = threading.Lock()


class LmdbEnvironment(Hooks):
    """Open or create the environment in a directory.

    Args:
        path: the directory; created if missing.
        map_bytes: address space to reserve, in bytes; halved until the system grants it.
        lock_timeout: seconds to wait for the write lock when opening and when taking ownership; None waits forever.
        on_locked: called with the owner's token after a timeout; may end the owner's process and return True to wait once more.

    Raises:
        TaskCorruptedError: the file is damaged, has another format, or was left open by a crash of the machine.
        LockedError: the write lock was not free in time.
        StateStoreError: already open in this process, or the disk failed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        map_bytes: int = DEFAULT_MAP_BYTES,
        lock_timeout: float | None = None,
        on_locked: OnLocked | None = None,
    ) -> None:
        super().__init__()
        self.path: str | None = os.path.realpath(path)
        self.closed = False
        self._where: str = self.path
        self._pid = os.getpid()
        self._engines: dict[str, LmdbEngine] = {}
        self._memory: dict[str, MemoryEngine] = {}
        self._changed_attributes: dict[str, bytes | None] = {}
        self._token: str | None = None
        self._failure: StateStoreError | None = None
        self._reading: lmdb.Transaction[bytes] | None = None
        self._marked = False
        self._abandoned = False
        self._lock_timeout = lock_timeout
        self._ended = None if on_locked is None else lambda: on_locked(self._peek_owner())
        with _OPEN_LOCK:
            if (there := _OPEN.get(self._where)) is not None:
                how = "still being closed" if there.closed else "already open"
                hint = "close the other environment first"
                raise StateStoreError(f"{self._where} is {how} in this process", hint=hint, path=self._where)
            os.makedirs(self._where, mode=0o700, exist_ok=True)
            close_read_only(self._where)
            check(self._where)
            self._env = _open_map(self._where, map_bytes)
            try:
                # Opening a named database takes the write lock, which a suspended process may hold.
                self._meta = within(lock_timeout, self._where, lambda: open_database(self._env, META), self._ended)
                self._load(check=True)
            except LockedError:
                raise  # the abandoned thread still uses the handle
            except BaseException as error:
                self._env.close()
                if isinstance(error, lmdb.Error):
                    raise storage_error(error, self._where, "opening") from error
                raise
            self._seal = PageSeal(self._where)
            _OPEN[self._where] = when_forked(self, LmdbEnvironment._leave)

    # ---- committed state -----------------------------------------------------------------------------------------------------------

    def _load(self, *, check: bool = False) -> None:
        with self._env.begin(db=self._meta) as transaction:
            meta = dict(transaction.cursor())
        if check and meta and meta.get(b"format") != FORMAT:
            raise corrupted(self._where, f"expected format {FORMAT!r}, got {meta.get(b'format')!r}")
        if check and meta and meta.get(b"clean") != b"1" and meta.get(b"boot") != boot_id():
            raise corrupted(self._where, "the machine crashed while the environment was open")
        self._positions = {key[2:].decode(): _LONG.unpack(value)[0] for key, value in meta.items() if key[:2] == b"p:"}
        self._attributes = {key[2:].decode(): value for key, value in meta.items() if key[:2] == b"a:"}
        self._commit_id: int = _LONG.unpack(meta.get(b"commit", _LONG.pack(-1)))[0]

    @property
    def positions(self) -> Mapping[str, int]:
        return self._positions

    @property
    def commit_id(self) -> int:
        return self._commit_id

    @property
    def owner(self) -> str | None:
        """The token of the last owner; read from the file on each access."""
        self._check_usable()
        try:
            with self._env.begin(db=self._meta) as transaction:
                token = transaction.get(b"owner")
        except lmdb.Error as error:
            raise storage_error(error, self._where, "reading the owner of") from error
        return None if token is None else token.decode()

    def _peek_owner(self) -> str | None:
        """Return the owner's token without taking the write lock."""
        try:
            with self._env.begin() as transaction:
                token = transaction.get(b"owner", db=self._env.open_db(META, txn=transaction, create=False))
        except lmdb.Error:
            return None
        return None if token is None else token.decode()

    @property
    def closed_in_order(self) -> bool:
        """Whether the last owner closed the environment cleanly, or it was never written; read from the file on each access."""
        with self._env.begin(db=self._meta) as transaction:
            return bool(transaction.get(b"clean", b"1") == b"1")

    # ---- engines -------------------------------------------------------------------------------------------------------------------

    def engine(self, name: str, *, persistent: bool = True) -> Engine:
        self._check_usable()
        if not persistent:
            return self._memory.setdefault(name, MemoryEngine(name))
        engine = self._engines.get(name)
        if engine is None:
            self._end_reading()
            try:
                database = self._bounded(lambda: open_database(self._env, (ENGINE_PREFIX + name).encode()))
            except lmdb.Error as error:
                raise storage_error(error, self._where, f"opening store {name} in") from error
            self._seal.follow()
            engine = self._engines[name] = LmdbEngine(name, LmdbTree(database, self._meta, name), self._read, self._broken)
        return engine

    def _read(self) -> lmdb.Transaction[bytes]:
        """Return the read transaction since the last commit, begun if necessary."""
        reading = self._reading
        if reading is None:
            self._check_usable()
            try:
                reading = self._reading = self._env.begin()
            except lmdb.ReadersFullError as error:
                raise storage_error(error, self._where, "reading from") from error
        return reading

    def _broken(self, error: Exception) -> StateStoreError:
        """Return the error of a read that failed; the environment must be reopened, which checks the file."""
        self._failure = failure = storage_error(error, self._where, "reading from")
        return failure

    def _end_reading(self) -> None:
        # The last reference ends the transaction: ours, or that of an iterator's cursor, which keeps reading its own snapshot.
        self._reading = None

    def attribute(self, name: str) -> bytes | None:
        if name in self._changed_attributes:
            return self._changed_attributes[name]
        return self._attributes.get(name)

    def set_attribute(self, name: str, value: bytes | None) -> None:
        if self._attributes.get(name) != value or name in self._changed_attributes:
            self._changed_attributes[name] = value

    # ---- writing -------------------------------------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[str, int], commit_id: int) -> None:
        """Write all uncommitted rows, the attributes, the positions and the commit id in one transaction, if still the owner.

        Raises:
            TaskMigratedError: another owner took the stores; nothing was written.
            StateStoreError: the disk failed; nothing was written and the environment must be reopened.
        """
        self._check_usable()
        for callback in self._before_commit:
            callback()
        unfinished = {}
        with self._writing("committing to") as transaction:
            for engine in self._engines.values():
                if engine.dirty:
                    unfinished[engine.name] = engine.write(transaction)
            self._write_meta(transaction, positions, commit_id)
        self._seal.follow()
        for name, left in unfinished.items():
            self._engines[name].committed(left)
        for memory in self._memory.values():
            memory.commit()
        self._remember(positions, commit_id)

    def _write_meta(self, transaction: lmdb.Transaction[bytes], positions: Mapping[str, int], commit_id: int | None) -> None:
        put, delete, meta = transaction.put, transaction.delete, self._meta
        numbers = {b"p:" + topic_partition.encode(): position for topic_partition, position in positions.items()}
        if commit_id is not None:
            numbers |= {b"commit": commit_id, b"time": int(time.time() * 1000)}  # the time is informational
        for key, number in numbers.items():
            put(key, _LONG.pack(number), db=meta)
        for name, value in self._changed_attributes.items():
            key = b"a:" + name.encode()
            delete(key, db=meta) if value is None else put(key, value, db=meta)

    def _remember(self, positions: Mapping[str, int], commit_id: int | None) -> None:
        self._positions.update(positions)
        for name, value in self._changed_attributes.items():
            if value is None:
                self._attributes.pop(name, None)
            else:
                self._attributes[name] = value
        self._changed_attributes.clear()
        if commit_id is not None:
            self._commit_id = commit_id

    def put_off(self) -> None:
        for memory in self._memory.values():
            memory.commit()

    @property
    def unwritten(self) -> tuple[int, int]:
        """The number of rows that wait for the next commit, and the approximate size of their values in bytes."""
        waiting = [engine.overlay for engine in self._engines.values()]
        return sum(len(overlay.rows) for overlay in waiting), sum(overlay.size for overlay in waiting)

    def rollback(self) -> None:
        for engine in self._engines.values():
            engine.rollback()
        for memory in self._memory.values():
            memory.rollback()
        self._changed_attributes.clear()
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
        engine, reached = self.engine(name, persistent=persistent), positions or {}
        if isinstance(engine, MemoryEngine):
            engine.put_many(keys, values)
            engine.commit()
            if not self._changed_attributes:
                return
        with self._writing("restoring into") as transaction:
            if isinstance(engine, LmdbEngine):
                engine.restore(transaction, dict(zip(keys, values, strict=True)))
            self._write_meta(transaction, reached, None)
        self._seal.forget()
        self._remember(reached, None)

    @contextmanager
    def _writing(self, doing: str) -> Iterator[lmdb.Transaction[bytes]]:
        """One write transaction under the owner's token; a failure makes the environment unusable."""
        self._check_usable()
        self._end_reading()
        try:
            with self._env.begin(write=True) as transaction:
                owner = transaction.get(b"owner", db=self._meta)
                if owner is not None and owner != (self._token or "").encode():
                    raise TaskMigratedError(
                        f"the stores in {self._where} were taken over by another owner; nothing was committed", path=self._where
                    )
                self._mark_open(transaction)
                yield transaction
        except TaskMigratedError as error:
            self._failure = StateStoreError(error.message, path=self._where)
            raise
        except (lmdb.Error, OSError) as error:
            self._failure = storage_error(error, self._where, doing)
            raise self._failure from error
        self._marked = True

    def _mark_open(self, transaction: lmdb.Transaction[bytes]) -> None:
        if not self._marked:
            put = transaction.put
            put(b"format", FORMAT, db=self._meta)
            put(b"boot", boot_id(), db=self._meta)
            put(b"clean", b"0", db=self._meta)

    def take_ownership(self, token: str, *, unless: Callable[[str, bool], bool] | None = None) -> None:
        """Make `token` the owner; from then on commits of the former owner fail.

        Args:
            unless: called inside the transaction with the current owner and whether it closed the environment cleanly; True cancels.

        Raises:
            TaskMigratedError: `unless` returned True.
            LockedError: the write lock was not free within `lock_timeout` seconds.
        """
        self._end_reading()
        self._bounded(lambda: self._take_ownership(token, unless))

    def _bounded(self, work: Callable[[], T]) -> T:
        """Wait for the write lock for at most `lock_timeout` seconds; after that the waiting thread keeps the handle."""
        try:
            return within(self._lock_timeout, self._where, work, self._ended)
        except LockedError as error:
            self._failure = error
            self._abandoned = True
            raise

    def _take_ownership(self, token: str, unless: Callable[[str, bool], bool] | None) -> None:
        self._check_usable()
        try:
            with self._env.begin(write=True) as transaction:
                owner = transaction.get(b"owner", db=self._meta)
                closed = transaction.get(b"clean", db=self._meta) == b"1"
                if unless is not None and owner is not None and unless(owner.decode(), closed):
                    raise TaskMigratedError(f"the stores in {self._where} are in use by their owner", path=self._where)
                transaction.put(b"owner", token.encode(), db=self._meta)
                self._mark_open(transaction)
        except lmdb.Error as error:
            self._failure = storage_error(error, self._where, "taking ownership of")
            raise self._failure from error
        self._seal.follow()
        self._marked = True
        self._token = token
        self._load()  # the former owner may have committed since this environment was opened

    # ---- maintenance ---------------------------------------------------------------------------------------------------------------

    def reader_check(self) -> int:
        """Free the reader slots of dead processes, which pin pages, and return how many. Call it at open and regularly."""
        self._check_usable()
        return int(self._env.reader_check())

    def recycle(self) -> None:
        """Discard what the stores of the previous task left in memory (uncommitted writes, callbacks, in-memory rows)."""
        self._before_commit.clear()
        self._after_rollback.clear()
        self.rollback()
        self._end_reading()
        self._engines.clear()
        self._memory.clear()

    def begin_anew(self, drop: Collection[str]) -> None:
        """Forget all positions, and the rows of some stores: another task is to begin with the
        others.

        Args:
            drop: names of engines.
        """
        self._engines.clear()
        with self._writing("clearing") as transaction:
            for name in drop:
                database = self._env.open_db((ENGINE_PREFIX + name).encode(), txn=transaction, create=False)
                transaction.drop(database)
                transaction.delete(b"e:" + name.encode(), db=self._meta)
            for name in self._positions:
                transaction.delete(b"p:" + name.encode(), db=self._meta)
        self._seal.forget()
        self._positions = {}

    def copy_to(self, path: str) -> None:
        """Write a compacted copy of the last commit into an empty directory, without an owner and cleanly closed. Another thread may
        keep committing to this environment during the copy.
        """
        copy_environment(self._env, path)

    @property
    def pages(self) -> int:
        """The number of pages of the file, free ones included."""
        return int(self._env.info()["last_pgno"]) + 1

    def size_on_disk(self) -> int:
        return self.pages * int(self._env.stat()["psize"])

    def close(self) -> None:
        """Sync, mark the environment as cleanly closed, and close it; idempotent. Uncommitted writes are lost."""
        if self.closed:
            return
        self.closed = True
        if self._pid != os.getpid() or self._abandoned:
            self._forget()
            self._seal.close()
            return  # opened by another process, or a thread is still waiting for the lock inside LMDB
        self._end_reading()
        mine = False
        try:
            if self._failure is None:
                mine = self._mark_closed()
        except (lmdb.Error, OSError):
            pass  # Without the mark, the next open after a crash of the machine rebuilds the state, which is safe.
        finally:
            try:
                self._env.close()
                self._seal.close(finish=mine)
            finally:
                self._forget()

    def _leave(self) -> None:
        """Fail in a forked child, where LMDB cannot use it, and allow this path to be opened there again."""
        what, hint = f"{self._where} was opened before a fork", "open stores in the process that uses them"
        self._reading, self._failure = None, StateStoreError(what, hint=hint, path=self._where)
        _OPEN.pop(self._where, None)

    def _forget(self) -> None:
        """Allow this process to open the path again."""
        with _OPEN_LOCK:
            _OPEN.pop(self._where, None)

    def _mark_closed(self) -> bool:
        """Record that everything is on the disk; return False if another owner has taken the stores."""
        with self._env.begin(db=self._meta) as transaction:
            owner = transaction.get(b"owner")
        if owner is not None and owner != (self._token or "").encode():
            return False
        if self._marked:
            self._env.sync(True)
            with self._env.begin(write=True) as transaction:
                if transaction.get(b"owner", db=self._meta) != owner:
                    return False
                transaction.put(b"clean", b"1", db=self._meta)
            self._env.sync(True)
        return True

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise StateStoreError(self._failure.message, hint=self._failure.hint, **self._failure.fields) from self._failure
        if self.closed:
            raise InvalidStateStoreError(f"the stores in {self._where} are closed", path=self._where)

    @property
    def failed(self) -> StateStoreError | None:
        """The failure after which the environment must be reopened, or None."""
        return self._failure


def copy_environment(env: lmdb.Environment, path: str) -> None:
    """Write a compacted copy of an environment's last commit into a directory, without an owner and cleanly closed. The environment may be
    one that another process writes to.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    try:
        env.copy(path, compact=True)
        with _open_map(path, os.path.getsize(os.path.join(path, "data.mdb")) + _SMALLEST_MAP_BYTES) as copy:
            meta = open_database(copy, META)
            with copy.begin(write=True, db=meta) as transaction:
                transaction.delete(b"owner")
                if transaction.get(b"format") is not None:
                    transaction.put(b"clean", b"1")
            copy.sync(True)
    except lmdb.Error as error:
        raise storage_error(error, path, "copying to") from error


def open_database(env: lmdb.Environment, name: bytes, *, create: bool = True) -> lmdb._Database:
    """Return a named database of a writable environment. `open_db` alone would wait for the write lock while holding the GIL."""
    with env.begin(write=True) as transaction:
        return env.open_db(name, txn=transaction, create=create)


def _open_map(path: str, map_bytes: int) -> lmdb.Environment:
    """Open LMDB's environment with as much of the requested address space as the system grants."""
    while True:
        try:
            return lmdb.open(
                path,
                map_size=map_bytes,
                subdir=True,
                metasync=False,
                sync=False,
                writemap=False,
                meminit=False,
                readahead=False,
                max_dbs=MAX_DATABASES,
                max_readers=MAX_READERS,
                max_spare_txns=2,
            )
        except lmdb.Error as error:
            if isinstance(error, lmdb.MemoryError) or "Cannot allocate memory" in str(error) or "File too large" in str(error):
                if map_bytes // 2 >= _SMALLEST_MAP_BYTES:
                    map_bytes //= 2
                    continue
            raise storage_error(error, path, "opening") from error


def is_open_here(path: str | os.PathLike[str]) -> bool:
    """Return whether this process has the environment open."""
    with _OPEN_LOCK:
        return os.path.realpath(path) in _OPEN
