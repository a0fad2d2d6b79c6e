"""Waits for an environment's write lock with a timeout.

The lock is freed when its holder dies, but a process *suspended* inside a write transaction keeps it forever. The wait runs on its
own thread, because LMDB's wait has no timeout. After a timeout that thread keeps waiting, so its environment must neither be used
nor closed any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from kstreams_repl.system.errors import StateStoreError

T = TypeVar("T")

OnLocked = Callable[[str | None], bool]
"""Called with the owner's token when the lock was not free in time; returns True if it ended the holder and to wait once more."""


class LockedError(StateStoreError):
    """The write lock of an environment was not free in time: its holder is suspended inside a transaction.

    Kill that process, which frees the lock, or start with a fresh directory. Fields: ``path``.
    """


def within(timeout: float | None, path: str, work: Callable[[], T], ended: Callable[[], bool] | None = None) -> T:
    """Run `work`, which waits for the write lock, for at most `timeout` seconds.

    Args:
        ended: called after the timeout; if it returns True, wait once more for the same time.

    Raises:
        LockedError: the lock was not free in time.
    """
    if timeout is None:
        return work()
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # re-raised to the caller below
            failures.append(error)

    thread = threading.Thread(target=run, name="wait-for-write-lock", daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive() and ended is not None and ended():
        thread.join(timeout)
    if failures:
        raise failures[0]
    if not results:
        raise LockedError(
            f"the write lock of {path} was not free within {timeout} s",
            hint="its holder is suspended inside a transaction: kill that process, or start with a fresh directory",
            path=path,
        )
    return results[0]
