"""Close open sessions when the process ends, before the things they use end by themselves.

Exit handlers run in reverse order of registration, and the broker registers its own when it starts. So ours is registered again
after each such start.
"""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Protocol

from kstreams_repl.system.errors import KStreamsError


class Closable(Protocol):
    def close(self) -> None: ...


_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def close_at_exit(session: Closable) -> None:
    """Close this session at exit, unless it is closed before."""
    _open.add(session)
    close_first()


def close_first() -> None:
    """Register the exit handler again after a start, so that sessions close before what was started ends."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for session in list(_open):
        try:
            session.close()
        except KStreamsError as error:
            print(f"while closing: {error.message}", file=sys.stderr)


def end_all(steps: Iterable[Callable[[], object]]) -> None:
    """Call all of them, even if one raises; raise the first error at the end."""
    errors: list[Exception] = []
    for end in steps:
        try:
            end()
        except Exception as error:  # the remaining steps must run too
            errors.append(error)
    if errors:
        raise errors[0]



def meanwhile(steps: Iterable[Callable[[], object]], other: Callable[[], object]) -> Callable[[], None]:
    """Return a call that makes the steps in a thread, as `end_all` does, and the other call at the same time; it ends when both have."""

    def end() -> None:
        errors: list[Exception] = []

        def make_steps() -> None:
            try:
                end_all(steps)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=make_steps, name="end-session", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # Python starts no more threads while it exits
            make_steps()
        try:
            other()
        finally:
            if thread.ident is not None:
                thread.join()
        if errors:
            raise errors[0]

    return end
