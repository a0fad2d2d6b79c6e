"""What happens to open sessions when the process ends: they are closed, before the things they use end by themselves.

Exit handlers run in reverse order of registration, and the broker's own is registered when it starts; so ours is registered again whenever
something has started.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Protocol

from kstreams_repl.errors import KStreamsError


class Closable(Protocol):
    def close(self) -> None: ...


_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def close_at_exit(session: Closable) -> None:
    """Close this session at exit, unless it is closed before."""
    _open.add(session)
    close_first()


def close_first() -> None:
    """Something was started: close sessions before that ends."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for session in list(_open):
        try:
            session.close()
        except KStreamsError as error:
            print(f"while closing: {error.message}", file=sys.stderr)


def end_all(steps: Iterable[Callable[[], object]]) -> None:
    """Do all of them, whatever one raises; the first error is raised at the end."""
    errors: list[Exception] = []
    for end in steps:
        try:
            end()
        except Exception as error:  # the rest must go all the same
            errors.append(error)
    if errors:
        raise errors[0]
