"""Where to start reading an input partition without a committed offset (Kafka Streams' `AutoOffsetReset`, KIP-1106)."""

from __future__ import annotations

import re
from datetime import timedelta

from kstreams_repl.system.durations import Millis, as_millis
from kstreams_repl.system.errors import TopologyError, did_you_mean

EARLIEST, LATEST, NONE = "earliest", "latest", "none"
_BY_DURATION = "by_duration:"
_ISO = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)


class AutoOffsetReset:
    """The policies for ``offset_reset=`` of a source and ``auto.offset.reset``. Each is a string, which can be given directly.

    Example:
        >>> AutoOffsetReset.latest()
        'latest'
        >>> AutoOffsetReset.by_duration(timedelta(hours=36))
        'by_duration:PT129600S'
    """

    @staticmethod
    def earliest() -> str:
        """Start at the first record that the topic still has.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.AutoOffsetReset.earliest()
            'earliest'
        """
        return EARLIEST

    @staticmethod
    def latest() -> str:
        """Start at the end: only records produced from now on.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.AutoOffsetReset.latest()
            'latest'
        """
        return LATEST

    @staticmethod
    def none() -> str:
        """Fail the application.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.AutoOffsetReset.none()
            'none'
        """
        return NONE

    @staticmethod
    def by_duration(duration: Millis) -> str:
        """Start at the first record that is at most this old by its timestamp (by the instance's clock), or at the end if there
        is none.

        Args:
            duration: ms, timedelta or "30 s".

        Raises:
            TopologyError: it is not a duration, or negative.

        Example:
            >>> import kstreams_repl as ks
            >>> from datetime import timedelta
            >>> ks.AutoOffsetReset.by_duration(timedelta(hours=1))
            'by_duration:PT3600S'
        """
        return f"{_BY_DURATION}PT{as_millis(duration, 'duration') / 1000:.3f}".rstrip("0").rstrip(".") + "S"


def duration_ms(policy: str) -> int | None:
    """Return the duration of a ``by_duration:`` policy in ms; None for any other text, or if the duration is not ISO 8601.

    Example:
        >>> duration_ms("by_duration:P1DT30M")
        88200000
    """
    match = _ISO.fullmatch(policy.removeprefix(_BY_DURATION)) if policy.startswith(_BY_DURATION) else None
    if match is None or not any(match.groups()):
        return None
    parts = {name: float(number or 0) for name, number in match.groupdict().items()}
    return round(timedelta(**parts).total_seconds() * 1000)


def checked(policy: object) -> str:
    """Return a policy as a string.

    Raises:
        ValueError: the policy is unknown.
    """
    text = str(policy)
    if text in (EARLIEST, LATEST, NONE) or duration_ms(text) is not None:
        return text
    raise ValueError("expected earliest, latest, none, or by_duration:PT1H (ISO 8601)")


def checked_of_source(policy: object, **where: object) -> str | None:
    """Return a policy as `checked` does, for a source of a topology; None: ``auto.offset.reset`` decides.

    Raises:
        TopologyError: the policy is unknown.
    """
    try:
        return None if policy is None else checked(policy)
    except ValueError as error:
        guess = did_you_mean(str(policy), (EARLIEST, LATEST, NONE))
        raise TopologyError(
            f"offset_reset={policy!r} is unknown",
            hint=guess or "use 'earliest', 'latest', 'none', or AutoOffsetReset.by_duration(timedelta(hours=1))",
            **where,
        ) from error
