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
