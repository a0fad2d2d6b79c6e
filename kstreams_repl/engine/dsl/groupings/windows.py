"""Windows: the time spans to which records are assigned. Sizes are milliseconds, `timedelta` or text such as "5 min".

A window closes when stream time passes its end plus the grace period; later records for it are dropped and counted. Unlike in old
Kafka Streams there is no hidden default: without `grace=` the grace period is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kstreams_repl.system.durations import Millis, as_millis
from kstreams_repl.system.errors import TopologyError

MAX_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Tumbling or hopping windows `[start, start + size)`, aligned to 0: a record is in every window that contains its timestamp.

    Example:
        >>> TimeWindows.of_size(60_000, grace=10_000)
        TimeWindows(size_ms=60000, advance_ms=60000, grace_ms=10000)
        >>> TimeWindows.of_size("5 min", advance="1 min").advance_ms
        60000
    """

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size_ms", as_millis(self.size_ms, "size", least=1))
        object.__setattr__(self, "advance_ms", as_millis(self.advance_ms, "advance", least=1))
        object.__setattr__(self, "grace_ms", as_millis(self.grace_ms, "grace"))
        if self.advance_ms > self.size_ms:
            raise TopologyError(
                f"advance ({self.advance_ms} ms) is larger than the window size ({self.size_ms} ms): records between windows would be lost",
                hint="use advance <= size",
            )

    @classmethod
    def of_size(cls, size: Millis, *, grace: Millis = 0, advance: Millis | None = None) -> TimeWindows:
        """Return windows of `size`, one after the other, or one every `advance`.

        Args:
            size: length of a window (ms, timedelta or "30 s").
            grace: how long after its end a window still accepts records (ms, timedelta or "30 s").
            advance: distance of window starts (ms, timedelta or "30 s"); 0 < advance <= size; None = size.

        Raises:
            TopologyError: a value is out of range.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.TimeWindows.of_size(60_000, grace=5_000)
        """
        size_ms = as_millis(size, "size", least=1)
        advance_ms = size_ms if advance is None else as_millis(advance, "advance", least=1)
        return cls(size_ms, advance_ms, as_millis(grace, "grace"))

    @classmethod
    def of_size_with_no_grace(cls, size: Millis) -> TimeWindows:
        """Return windows of `size` (ms, timedelta or "30 s"), one after the other, that accept no late records.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.TimeWindows.of_size_with_no_grace(60_000)
        """
        return cls.of_size(size)

    @classmethod
    def of_size_and_grace(cls, size: Millis, grace: Millis) -> TimeWindows:
        """Return windows of `size` that accept late records until `grace` after their end (ms, timedelta or "30 s").

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.TimeWindows.of_size_and_grace(60_000, 10_000)
        """
        return cls.of_size(size, grace=grace)

    def advance_by(self, advance: Millis) -> TimeWindows:
        """Return the same windows, one every `advance` (ms, timedelta or "30 s").

        Example:
            >>> import kstreams_repl as ks
            >>> hopping = ks.TimeWindows.of_size(60_000).advance_by(10_000)
        """
        return TimeWindows.of_size(self.size_ms, grace=self.grace_ms, advance=advance)


@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """One window from `start_ms` without an end; earlier records are in no window."""

    start_ms: int = 0

    @classmethod
    def of(cls, *, start: int | datetime = 0) -> UnlimitedWindows:
        """Return the window that starts at `start` (ms since the epoch, or a datetime; a naive one is UTC).

        Raises:
            TopologyError: `start` is negative.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.UnlimitedWindows.of(start=0)
        """
        if isinstance(start, datetime):
            aware = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
            start = int(aware.timestamp() * 1000)
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise TopologyError(f"start must be a time >= 0, got {start!r}", hint="give milliseconds since 1970 or a datetime")
        return cls(start)

    def start_on(self, start: int | datetime) -> UnlimitedWindows:
        """Return the window that starts at `start` (ms since the epoch, or a datetime; a naive one is UTC).

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.UnlimitedWindows.of().start_on(1_000)
        """
        return UnlimitedWindows.of(start=start)

    size_ms = property(lambda self: MAX_LONG)
    grace_ms = property(lambda self: 0)


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows `[start, start + difference]`, both ends included, that start or end at a record."""

    time_difference_ms: int
    grace_ms: int = 0

    @classmethod
    def of_time_difference(cls, difference: Millis, *, grace: Millis = 0) -> SlidingWindows:
        """Return windows that contain records at most `difference` apart (ms, timedelta or "30 s").

        Args:
            difference: largest difference in time of two records of a window (ms, timedelta or "30 s").
            grace: how long after its end a window still accepts records (ms, timedelta or "30 s").

        Raises:
            TopologyError: a value is negative.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.SlidingWindows.of_time_difference(60_000, grace=0)
        """
        return cls(as_millis(difference, "difference"), as_millis(grace, "grace"))

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Millis) -> SlidingWindows:
        """Return windows that contain records at most `difference` apart (ms, timedelta or "30 s") and accept no late ones.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.SlidingWindows.of_time_difference_with_no_grace(60_000)
        """
        return cls.of_time_difference(difference)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Millis, grace: Millis) -> SlidingWindows:
        """Return windows that contain records at most `difference` apart and accept late ones until `grace` after their end.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.SlidingWindows.of_time_difference_and_grace(60_000, 10_000)
        """
        return cls.of_time_difference(difference, grace=grace)


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Windows that last while records of a key follow each other within a gap."""

    gap_ms: int
    grace_ms: int = 0

    @classmethod
    def of_inactivity_gap(cls, gap: Millis, *, grace: Millis = 0) -> SessionWindows:
        """Return sessions that end after `gap` without a record (ms, timedelta or "30 s").

        Args:
            gap: longest time between two records of a session (ms, timedelta or "30 s").
            grace: how long after its end a session still accepts records (ms, timedelta or "30 s").

        Raises:
            TopologyError: a value is negative.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.SessionWindows.of_inactivity_gap(300_000, grace=0)
        """
        return cls(as_millis(gap, "gap"), as_millis(grace, "grace"))

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, gap: Millis) -> SessionWindows:
        """Return sessions that end after `gap` without a record (ms, timedelta or "30 s") and accept no late ones.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.SessionWindows.of_inactivity_gap_with_no_grace(60_000)
        """
        return cls.of_inactivity_gap(gap)

    @classmethod
    def of_inactivity_gap_and_grace(cls, gap: Millis, grace: Millis) -> SessionWindows:
        """Return sessions that end after `gap` without a record and accept late ones until `grace` after that.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.SessionWindows.of_inactivity_gap_and_grace(60_000, 10_000)
        """
        return cls.of_inactivity_gap(gap, grace=grace)


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """Records of two streams join when `left.ts - before <= right.ts <= left.ts + after`."""

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    @classmethod
    def of_time_difference(
        cls, difference: Millis, *, grace: Millis = 0, before: Millis | None = None, after: Millis | None = None
    ) -> JoinWindows:
        """Return windows that join records at most `difference` apart; `before=` and `after=` replace it on one side.

        Args:
            difference: maximum distance in time, 0 or more (ms, timedelta or "30 s").
            grace: how long after a window's end out-of-order records still join (ms, timedelta or "30 s").
            before: how much earlier than the left record the right one may be (ms, timedelta or "30 s"); None = `difference`.
            after: how much later (ms, timedelta or "30 s"); None = `difference`.

        Raises:
            TopologyError: `difference` or `grace` is negative, or the window ends before it starts.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.JoinWindows.of_time_difference(5_000, grace=1_000)
        """
        millis = as_millis(difference, "difference")
        earlier, later = (
            millis if each is None else as_millis(each, what, least=None) for each, what in ((before, "before"), (after, "after"))
        )
        return cls(earlier, later, as_millis(grace, "grace"))._checked()

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Millis) -> JoinWindows:
        """Join records at most `difference` apart (ms, timedelta or "30 s"), and no late ones.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.JoinWindows.of_time_difference_with_no_grace(5_000)
        """
        return cls.of_time_difference(difference)

    @classmethod
    def of_time_difference_and_grace(cls, difference: Millis, grace: Millis) -> JoinWindows:
        """Join records at most `difference` apart, and late ones until `grace` after a window's end.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.JoinWindows.of_time_difference_and_grace(5_000, 1_000)
        """
        return cls.of_time_difference(difference, grace=grace)

    def before(self, difference: Millis) -> JoinWindows:
        """Return the same windows with another `before`; may be negative as long as `before + after >= 0`.

        Args:
            difference: how much earlier than the left record the right one may be (ms, timedelta or "30 s"); negative values
                move that end of the window to the other side of the record.

        Raises:
            TopologyError: the window ends before it starts.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.JoinWindows.of_time_difference(5_000).before(60_000)
        """
        return replace(self, before_ms=as_millis(difference, "difference", least=None))._checked()

    def after(self, difference: Millis) -> JoinWindows:
        """Return the same windows with another `after`; may be negative as long as `before + after >= 0`.

        Args:
            difference: how much later than the left record the right one may be (ms, timedelta or "30 s"); negative values
                move that end of the window to the other side of the record.

        Raises:
            TopologyError: the window ends before it starts.

        Example:
            >>> import kstreams_repl as ks
            >>> windows = ks.JoinWindows.of_time_difference(5_000).after(0)
        """
        return replace(self, after_ms=as_millis(difference, "difference", least=None))._checked()

    def _checked(self) -> JoinWindows:
        if self.before_ms + self.after_ms < 0:
            raise TopologyError(
                f"the join window ends before it starts: before={self.before_ms} ms, after={self.after_ms} ms",
                hint="before + after must not be negative",
            )
        return self

    @property
    def size_ms(self) -> int:
        return self.before_ms + self.after_ms


AnyWindows = TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows
"""Windows of aggregates."""
