"""Waiting for an environment's write lock with a bound.

The lock is freed when its holder dies, but a holder that is *stopped* inside a write transaction keeps it for ever. The wait happens on
a thread of its own, because LMDB's has no time-out; a wait that is given up goes on there, and its environment must neither be used nor
closed any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from kstreams_repl.errors import StateStoreError

T = TypeVar("T")

OnLocked = Callable[[str | None], bool]
"""Given the owner's token when the lock was not free in time; True when the holder was ended and another wait is worth it."""


class LockedError(StateStoreError):
    """The write lock of an environment was not free in time: its holder is stopped inside a transaction.

    Kill that process (the lock is then free), or begin with a fresh directory. Fields: ``path``.
    """


def within(timeout: float | None, path: str, work: Callable[[], T], ended: Callable[[], bool] | None = None) -> T:
    """Do `work`, which waits for the write lock, for `timeout` seconds at most.

    Args:
        ended: asked after the time is over; True gives the same wait as much time again, once.

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
        except BaseException as error:  # handed to the caller below
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
            hint="its holder is stopped inside a transaction: kill that process, or begin with a fresh directory",
            path=path,
        )
    return results[0]
