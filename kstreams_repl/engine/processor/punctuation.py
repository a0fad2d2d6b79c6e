"""The time that drives a punctuation, and checks of the arguments of `schedule`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from kstreams_repl.system.durations import Millis, as_millis
from kstreams_repl.system.errors import CallError
from kstreams_repl.system.types import is_async


class PunctuationType(StrEnum):
    """STREAM_TIME advances with the records of the task; WALL_CLOCK_TIME with the clock (mocked in the test driver)."""

    STREAM_TIME = "STREAM_TIME"
    WALL_CLOCK_TIME = "WALL_CLOCK_TIME"


def checked_schedule(
    interval: Millis,
    punctuation: PunctuationType | str,
    callback: Callable[[int], None],
    start: datetime | int | None,
    node: str | None = None,
) -> tuple[int, PunctuationType, int | None]:
    """Check the arguments of `schedule`; return the interval in ms, the type, the start in ms.

    Raises:
        CallError: the interval is below 1 ms, the type is unknown, the callback is not callable, or the start is not a time.
    """
    every = as_millis(interval, "interval", least=1, error=CallError, node=node)
    try:
        clock = PunctuationType(punctuation)
    except ValueError:
        raise CallError(
            f"unknown punctuation type {punctuation!r}",
            hint="use PunctuationType.STREAM_TIME or PunctuationType.WALL_CLOCK_TIME",
            node=node,
        ) from None
    if not callable(callback) or is_async(callback):
        raise CallError(
            f"expected a function to call that is not async, got {callback!r}", hint="call schedule(interval, type, function)", node=node
        )
    return every, clock, _start(start, node)


def _start(start: object, node: str | None) -> int | None:
    if isinstance(start, datetime):
        aware = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
        raise CallError(
            f"cannot parse {start!r} as the start of a punctuation", hint="pass epoch milliseconds or a datetime (naive: UTC)", node=node
        )
    return start
