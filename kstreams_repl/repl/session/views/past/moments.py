"""Which moment of an application is asked for: `moment_of` reads what a user writes as ``as_of``."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Literal

from kstreams_repl.pictures.wording import moment as time_text
from kstreams_repl.repl.session.topics.produce import milliseconds
from kstreams_repl.system.durations import as_seconds
from kstreams_repl.system.errors import CallError
from kstreams_repl.system.types import RecordPosition

Kind = Literal["commit", "time", "stream time", "record"]
_COMMIT = re.compile(r"commit (\d+)")
_STREAM_TIME = "stream time "


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of an application.

    Attributes:
        kind: by what it is given.
        number: of the commit, or a time (ms since 1970).
        record: after which it is; None: it is given otherwise.
    """

    kind: Kind
    number: int = -1
    record: RecordPosition | None = None

    def __str__(self) -> str:
        if self.record is not None:
            return f"record {self.record}"
        return f"commit {self.number}" if self.kind == "commit" else f"{self.kind} {time_text(self.number / 1000)}".removeprefix("time ")


def time_of(as_of: object) -> int:
    """Return the time of `as_of` in ms: a time, or a duration ago (``"10 minutes ago"``).

    Raises:
        CallError: it is neither.
    """
    if isinstance(as_of, str) and as_of.endswith(" ago"):
        return round((time.time() - as_seconds(as_of.removesuffix(" ago"), "as_of")) * 1000)
    return milliseconds(as_of)


def moment_of(as_of: object) -> Moment:
    """Return the moment that a user has given.

    Args:
        as_of: a time of the broker (ms since 1970, a datetime, or ISO text; UTC if it has no zone), a duration ago (``"10 minutes ago"``),
            ``"stream time 2026-01-31T12:00"``, ``"commit 12"``, or a record, ``"orders-0@17"``.

    Raises:
        CallError: it is none of these.

    Example:
        >>> str(moment_of("commit 12")), str(moment_of("orders-0@17"))
        ('commit 12', 'record orders-0@17')
    """
    if isinstance(as_of, Moment):
        return as_of
    if isinstance(as_of, RecordPosition):
        return Moment("record", record=as_of)
    try:
        if not isinstance(as_of, str):
            return Moment("time", time_of(as_of))
        text = as_of.strip()
        if "@" in text:
            return Moment("record", record=RecordPosition.parse(text))
        if (commit := _COMMIT.fullmatch(text)) is not None:
            return Moment("commit", int(commit[1]))
        if text.startswith(_STREAM_TIME):
            return Moment("stream time", milliseconds(text.removeprefix(_STREAM_TIME)))
        return Moment("time", time_of(text))
    except (CallError, ValueError) as error:
        raise CallError(
            f"expected a moment, got {as_of!r}",
            hint="as_of= takes a time, '10 minutes ago', 'commit 12', a record 'orders-0@17', or 'stream time 2026-01-31T12:00'",
            argument="as_of",
        ) from error
