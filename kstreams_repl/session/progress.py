"""Words on what takes longer than a moment: one line when it begins, one when it is done. A notebook puts its own reporter in."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str], None]
"""Takes one line; called on the thread of the user's own call only."""


def to_stderr(line: str) -> None:
    """The default: a line on standard error."""
    print(line, file=sys.stderr, flush=True)


class _Default:
    report: Report = staticmethod(to_stderr)


def report_to(report: Report) -> None:
    """Where sessions report that were connected without a `report` of their own; a notebook says `print`."""
    _Default.report = staticmethod(report)


def default_report(line: str) -> None:
    """Reports where `report_to` said last."""
    _Default.report(line)


@contextmanager
def step(report: Report, doing: str, done: Callable[[], str]) -> Iterator[None]:
    """Says what is being done, then what came of it and how long it took."""
    report(f"{doing} …")
    started = time.monotonic()
    yield
    report(f"{done()} ({time.monotonic() - started:.1f} s)")


class Patience:
    """The same two lines for something that is looked at again and again, and only when it takes longer than a second."""

    def __init__(self, report: Report, doing: str, done: str) -> None:
        self._report, self._doing, self._done = report, doing, done
        self._began = time.monotonic()
        self._told = False

    def look(self, busy: bool) -> None:
        seconds = time.monotonic() - self._began
        if busy and not self._told and seconds > 1:
            self._told = True
            self._report(f"{self._doing} …")
        elif self._told and not busy:
            self._told = False
            self._report(f"{self._done} ({seconds:.1f} s)")
