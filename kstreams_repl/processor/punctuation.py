"""Which clock drives a punctuation, and what a processor may ask of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from kstreams_repl.errors import KStreamsError


class PunctuationType(StrEnum):
    """STREAM_TIME advances with the records of the task; WALL_CLOCK_TIME with the clock (mocked in the test driver)."""

    STREAM_TIME = "STREAM_TIME"
    WALL_CLOCK_TIME = "WALL_CLOCK_TIME"


def checked_schedule(
    interval: timedelta | int,
    punctuation: PunctuationType | str,
    callback: Callable[[int], None],
    start: datetime | int | None,
    node: str | None = None,
) -> tuple[int, PunctuationType, int | None]:
    """What `schedule` was asked for: the interval in ms, the clock, the start in ms.

    Raises:
        KStreamsError: an interval below 1 ms, an unknown clock, a callback that cannot be called, a start that is no time.
    """
    every = round(interval.total_seconds() * 1000) if isinstance(interval, timedelta) else interval
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise KStreamsError(
            f"a punctuation interval must be at least 1 ms, not {interval!r}", hint="give whole milliseconds or a timedelta", node=node
        )
    try:
        clock = PunctuationType(punctuation)
    except ValueError:
        raise KStreamsError(
            f"there is no punctuation type {punctuation!r}",
            hint="PunctuationType.STREAM_TIME or PunctuationType.WALL_CLOCK_TIME",
            node=node,
        ) from None
    if not callable(callback):
        raise KStreamsError(f"a punctuation calls a function, not {callback!r}", hint="schedule(interval, type, function)", node=node)
    return every, clock, _start(start, node)


def _start(start: Any, node: str | None) -> int | None:
    if isinstance(start, datetime):
        aware = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
        raise KStreamsError(
            f"a punctuation cannot start at {start!r}", hint="give milliseconds since 1970 or a datetime (a naive one is UTC)", node=node
        )
    return start
