"""Durations as arguments: a `timedelta`, a text such as "30 s", or a number.

A number is milliseconds where Kafka Streams counts in them (windows, retention, punctuation, names that end in `_ms`), and seconds where
a call waits in wall-clock time (`timeout`, pauses and rates of calls). Both functions here give a plain number of that unit.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from numbers import Integral, Real

from kstreams_repl.system.errors import CallError, KStreamsError, TopologyError

Millis = int | str | timedelta
Seconds = float | str | timedelta
_UNITS = {
    "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
    "millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000,
}  # fmt: skip
_TEXT = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:(ms|s|min|m|h|d)|(millisecond|second|minute|hour|day)s?)", re.ASCII)


def as_millis(value: object, what: str, *, least: int | None = 0, error: type[KStreamsError] = TopologyError, **where: object) -> int:
    """Return a duration in milliseconds; a number is milliseconds.

    Args:
        value: a timedelta, a text with a unit, or a whole number.
        what: the name of the argument.
        least: the shortest duration; None: it may be negative.
        error: what is raised.
        where: fields of the error.

    Raises:
        KStreamsError: the value is not a duration, not a whole number of milliseconds, or too short.

    Example:
        >>> as_millis("1.5 s", "grace"), as_millis(timedelta(seconds=1.5), "grace"), as_millis(1500, "grace")
        (1500, 1500, 1500)
    """
    found = _milliseconds(value, 1) if isinstance(value, str | timedelta | Integral) else None
    if found is None or found.denominator != 1 or (least is not None and found < least):
        expected = "whole milliseconds" if least is None else f"whole milliseconds, {least} or more"
        raise error(
            f"{what} must be a duration of {expected}, got {value!r}",
            hint=f'give {what}="30 s", timedelta(seconds=30), or a number of milliseconds',
            **where,
        )
    return int(found)


def as_seconds(value: object, what: str, *, above: bool = False, error: type[KStreamsError] = CallError) -> float:
    """Return a duration in seconds, 0 or more; a number is seconds.

    Args:
        value: a timedelta, a text with a unit, or a number.
        what: the name of the argument.
        above: whether it must be longer than 0.
        error: what is raised.

    Raises:
        KStreamsError: the value is not a duration, or too short.

    Example:
        >>> as_seconds("500 ms", "timeout"), as_seconds(timedelta(milliseconds=500), "timeout"), as_seconds(0.5, "timeout")
        (0.5, 0.5, 0.5)
    """
    if type(value) is float and (0 < value < math.inf or (value == 0 and not above)):
        return value  # of each query: a fraction takes longer than the read
    found = _milliseconds(value, 1_000)
    if found is None or found < 0 or (above and not found):
        raise error(
            f"{what} must be a duration {'above' if above else 'of at least'} 0 s, got {value!r}",
            hint=f'give {what}="30 s", timedelta(seconds=30), or a number of seconds',
            argument=what,
        )
    return float(found / 1_000)


def _milliseconds(value: object, unit: int) -> Fraction | None:
    """Return a duration in milliseconds, exactly; a number counts in units of so many. None: it is not a duration."""
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1), 1_000)
    if isinstance(value, str):
        text = _TEXT.fullmatch(value.strip())
        return None if text is None else Fraction(text[1]) * _UNITS[text[2] or text[3]]
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        return None
    return Fraction(float(value) if not isinstance(value, Integral) else int(value)) * unit
