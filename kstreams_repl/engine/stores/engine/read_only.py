"""Read-only handles of LMDB environments, one for each file and process: LMDB allows no second one.

Each reader of an environment takes a share of its handle. A handle is closed with its last share, and before this process opens the
same environment for writing; what still reads from it then fails, and has to open the environment again.
"""

from __future__ import annotations

import os
import threading

import lmdb

from kstreams_repl.engine.stores.engine.failures import storage_error
from kstreams_repl.engine.stores.engine.page_checksums import check_head
from kstreams_repl.system.errors import InvalidStateStoreError

MAX_DATABASES = 512
MAX_READERS = 256
_SPARE_TRANSACTIONS = 16
_HANDLES: dict[str, ReadOnlyHandle] = {}
_LOCK = threading.RLock()
"""Reentrant: garbage may be collected while it is held, and its readers give their shares back in the same thread."""


class ReadOnlyHandle:
    """The handle of one environment.

    Attributes:
        env: LMDB's environment.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._shares = 0
        self._closed = False
        self._file = _file(path)
        if self._file is None:
            raise InvalidStateStoreError(f"no local state in {path}", path=path)
        try:
            check_head(path)
            self.env: lmdb.Environment = lmdb.open(
                path,
                readonly=True,
                create=False,
                max_dbs=MAX_DATABASES,
                max_readers=MAX_READERS,
                readahead=False,
                max_spare_txns=_SPARE_TRANSACTIONS,
            )
        except lmdb.Error as error:
            raise storage_error(error, path, "opening") from error

    @property
    def outdated(self) -> bool:
        """Whether it is closed, or the file was replaced or deleted since."""
        return self._closed or _file(self.path) != self._file

    def release(self) -> None:
        """Give a share back."""
        with _LOCK:
            self._shares -= 1
            if self._shares == 0 and not self._closed:
                self._close()

    def _close(self) -> None:
        self._closed = True
        if _HANDLES.get(self.path) is self:
            del _HANDLES[self.path]
        self.env.close()


def open_read_only(path: str) -> ReadOnlyHandle:
    """Return a share of the handle of an environment.

    Raises:
        InvalidStateStoreError: there is none.
        StateStoreError: it cannot be read.
    """
    with _LOCK:
        handle = _HANDLES.get(path)
        if handle is not None:
            handle._shares += 1  # before the next statements, in which garbage's shares of it may be given back
            if not handle.outdated:
                return handle
            handle.release()
        handle = ReadOnlyHandle(path)
        handle._shares = 1
        _HANDLES[path] = handle
        return handle


def close_read_only(path: str) -> None:
    """Close this process' handle of an environment, because it is going to be opened for writing."""
    with _LOCK:
        handle = _HANDLES.get(path)
        if handle is not None:
            handle._close()


def _file(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(os.path.join(path, "data.mdb"))
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _forget_after_fork() -> None:
    for handle in _HANDLES.values():
        handle._closed = True
    _HANDLES.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
