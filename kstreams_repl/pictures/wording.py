"""Counts and moments as text: "1 row", "2,000 rows", "2013-01-01 05:15:00 UTC"."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def counted(number: int, word: str, plural: str | None = None) -> str:
    """Return a number and its noun, in the form that goes with it.

    Args:
        plural: plural form of a word that does not take an s; None: the word with an s.

    Example:
        >>> counted(1, "row"), counted(2000, "row"), counted(2, "topology", "topologies")
        ('1 row', '2,000 rows', '2 topologies')
    """
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def moment(seconds: float) -> str:
    """Return a time in UTC, the zone of every time that is shown.

    Args:
        seconds: since 1970.

    Example:
        >>> moment(0)
        '1970-01-01 00:00:00 UTC'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def time_text(milliseconds: int) -> str:
    """Return a timestamp in UTC to the millisecond; the number itself if it exceeds the calendar."""
    try:
        return (datetime(1970, 1, 1) + timedelta(milliseconds=milliseconds)).isoformat(" ", "milliseconds")
    except OverflowError:
        return str(milliseconds)


def duration(milliseconds: int) -> str:
    """Return a duration in the largest unit in which it is a whole number: ``2 h``, ``90 s``."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"
