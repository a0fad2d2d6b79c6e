"""Progress messages for slow operations: one line at the start, one at the end. A notebook sets a reporter of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Report = Callable[[str], None]
"""Takes one line; called on the thread of the user's own call only."""


def to_stderr(line: str) -> None:
    """Write a line to standard error: the default reporter."""
    print(line, file=sys.stderr, flush=True)


class ProgressView(Protocol):
    """Shows how far one operation is; called on the thread of the user's own call only."""

    seconds: float
    """Time between two calls."""

    def show(self, done: int, total: int, text: str) -> None:
        """Show the progress; `done` equals `total` at most in the last call."""


class ProgressLines:
    """Reports the progress as lines, without the last one: the result follows."""

    seconds = 2.0

    def __init__(self, report: Report) -> None:
        self._report = report

    def show(self, done: int, total: int, text: str) -> None:
        if done < total:
            self._report(text)


class _Default:
    report: Report = staticmethod(to_stderr)
    view: Callable[[], ProgressView] | None = None


def report_to(report: Report, view: Callable[[], ProgressView] | None = None) -> None:
    """Set the reporter of sessions that were connected without a `report` of their own; a notebook sets `print` and a progress bar."""
    _Default.report = staticmethod(report)
    _Default.view = None if view is None else staticmethod(view)


def progress_view(report: Report) -> ProgressView:
    """Return the view of one operation in a session with this reporter."""
    return _Default.view() if report is default_report and _Default.view is not None else ProgressLines(report)


def default_report(line: str) -> None:
    """Report a line with the function that `report_to` set last."""
    _Default.report(line)


@contextmanager
def step(report: Report, doing: str, done: Callable[[], str]) -> Iterator[None]:
    """Report an operation at its start, then its result and duration."""
    report(f"{doing} …")
    started = time.monotonic()
    yield
    report(f"{done()} ({time.monotonic() - started:.1f} s)")


class PolledStep:
    """The same two lines for an operation that is polled, and only when it takes longer than a second."""

    def __init__(self, report: Report, doing: str, done: str) -> None:
        self._report, self._doing, self._done = report, doing, done
        self._started = time.monotonic()
        self._reported = False

    def update(self, busy: bool) -> None:
        seconds = time.monotonic() - self._started
        if busy and not self._reported and seconds > 1:
            self._reported = True
            self._report(f"{self._doing} …")
        elif self._reported and not busy:
            self._reported = False
            self._report(f"{self._done} ({seconds:.1f} s)")
