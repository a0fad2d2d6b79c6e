"""What belongs to the process that made it. A child that is forked from it has copies: it must neither use nor end what is its parent's.

Each owner says with `when_forked` what its copy in a child does before anything else runs there: close its end of a pipe, forget, refuse
further calls. Exit handlers and finalizers of the copies then find nothing to end.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from kstreams_repl.system.errors import ForkedProcessError

T = TypeVar("T")

_owners: dict[int, tuple[weakref.ref[object], Callable[[Any], object]]] = {}


def when_forked(owner: T, leave: Callable[[T], object]) -> T:
    """Call ``leave(owner)`` in each child that is forked while the owner lives, and return the owner."""
    key = id(owner)
    _owners[key] = weakref.ref(owner, lambda _: _owners.pop(key, None)), leave
    return owner


def undying_when_forked(native: T) -> T:
    """Never destroy a native client's copy in a forked child, and return the client: its threads are not there, and it would wait for
    them or crash."""
    return when_forked(native, lambda copy: ctypes.pythonapi.Py_IncRef(ctypes.py_object(copy)))


def finalizer_of(owner: object, call: Callable[..., object], *arguments: object) -> weakref.finalize[..., object]:
    """Return a finalizer that runs when the owner or this process ends, and never in a forked child."""
    finalizer = weakref.finalize(owner, call, *arguments)
    when_forked(owner, lambda _: finalizer.detach())
    return finalizer


class OwnLock:
    """A lock that may be taken again by the thread that holds it. In a forked child, taking it raises: another thread of the parent may
    have held it, and what it protects is the parent's.

    Args:
        what: what it protects, for the error.
    """

    def __init__(self, what: str) -> None:
        self._lock, self._what, self._pid = threading.RLock(), what, os.getpid()

    @property
    def is_own(self) -> bool:
        """Whether this process made it."""
        return self._pid == os.getpid()

    def __enter__(self) -> None:
        if not self.is_own:
            raise forked_error(self._what, self._pid)
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def forked_error(what: str, owner: int) -> ForkedProcessError:
    """Return the error for a call in a child on what belongs to its parent, the process `owner`."""
    return ForkedProcessError(
        f"{what} belongs to process {owner}, from which this process ({os.getpid()}) was forked",
        hint="use it there, or open an own session in the child: kstreams_repl.connect(...)",
        pid=owner,
    )


def _leave_to_the_parent() -> None:
    for reference, leave in list(_owners.values()):
        owner = reference()
        if owner is not None:
            leave(owner)
    _owners.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)
