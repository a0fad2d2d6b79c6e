"""Whether a changelog still has what it had at an earlier end.

The broker's cleaner removes a record when a later one of its key is in the part that it cleans. A log in which two records of one key are
left was therefore not cleaned up to the second of them, and has everything that any state after it needs. Before that, every
offset without a record must be one that never had a committed record (`_is_whole`), or the log may lack something.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from kstreams_repl.engine.commit.offset_metadata import UNKNOWN
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.repl.session.views.past.state.commit_history import TaskCommit
from kstreams_repl.system.errors import InvalidStateStoreError
from kstreams_repl.system.types import RecordBatch, TopicPartition

MOST_ASKED = 1000
"""Number of markers that the broker is asked for (some ms each)."""
_BEYOND = 1 << 62
"""Beyond every offset, and every time in ms."""


class CompactionCheck:
    """Sees the records of one changelog up to an end.

    Attributes:
        is_whole: whether two records of one key were among them.
    """

    def __init__(self, log: ChangelogPartition, start: int, end: int) -> None:
        self.log, self.start, self.end = log, start, end
        self.is_whole = start == end
        self.offsets: list[int] = []
        self.repeated_at = -1
        """The offset of the first record whose key was there before."""
        self._keys: set[bytes | None] = set()

    def add(self, batch: RecordBatch) -> None:
        """Take the next records."""
        if self.is_whole:
            return
        self.offsets += batch.offsets
        before = len(self._keys)
        self._keys.update(batch.keys)
        if len(self._keys) < before + len(batch):
            self.is_whole, self.repeated_at = True, batch.offsets[-1]
            self._keys, self.offsets = set(), []


def refuse_compacted(admin: Admin, check: CompactionCheck, commits: Sequence[TaskCommit]) -> None:
    """Raise if the log may lack records that it had at its end then.

    Args:
        commits: the known commits of the task.

    Raises:
        InvalidStateStoreError: it may; the hint names the earliest moment for which it does not.
    """
    log = check.log
    if check.is_whole or (log.is_source and "compact" not in _policy(admin, log.partition.topic)):
        return
    offset = _lacking(admin, check, commits)
    if offset is not None:
        raise InvalidStateStoreError(
            f"the changelog {log.partition} was compacted since: nothing is left at offset {offset}, so rows that store {log.store.name!r} "
            "had then may be gone",
            hint=_earliest(admin.settings, check, commits),
            store=log.store.name,
        )


def _lacking(admin: Admin, check: CompactionCheck, commits: Sequence[TaskCommit]) -> int | None:
    """Return the first offset that may have had a committed record which is gone; None if there is none.

    An offset without a committed record had none for one of these reasons:

    1. A record of an aborted transaction is left there, or at an earlier offset. The cleaner removes those in all that it cleans, so it
       has not come as far as that, and all that lacks from there on are markers.
    2. It is the marker of a commit that moved the end of the log to it: the record before it is there, and the commit before names an
       earlier end. (The first end after a restoration is where the log ended, which the next record takes.)
    3. It is another marker, as the one of a transaction that was killed before its records were there, and the broker shows it.

    Where the broker does not show it (an earlier record has a later time), the answer is that something may be gone.
    """
    there = set(check.offsets)
    lacking = [offset for offset in range(check.start, check.end) if offset not in there]
    ends = [end for commit in commits if (end := commit.end_of(check.log.partition.topic)) is not None]
    moved = {end for before, end in pairwise(ends) if UNKNOWN < before < end}
    unknown = [offset for offset in lacking if not (offset in moved and offset - 1 in there)]
    if not unknown:
        return None
    aborted = _BEYOND
    for _, batch in read_ranges(admin.settings, [OffsetRange(check.log.partition, check.start, check.end)], isolation="read_uncommitted"):
        aborted = min((offset for offset in batch.offsets if offset not in there), default=aborted)
        if aborted != _BEYOND:
            break
    at_ms = 0
    for number, offset in enumerate(offset for offset in unknown if offset < aborted):
        shown = None if number >= MOST_ASKED else _time_of_marker(admin, check.log.partition, offset, at_ms)
        if shown is None:
            return offset
        at_ms = shown
    return None


def _time_of_marker(admin: Admin, at: TopicPartition, offset: int, since_ms: int) -> int | None:
    """Return the time of a transaction's marker at an offset without a record; None if the broker does not show one.

    To a time the broker answers with the first record that is not earlier, and a marker counts as a record there, with the time at which it
    was written. Consumers are given all records but markers: what is answered at an offset at which they find nothing is a marker. The
    answers ascend with the time, so it is found by bisection.

    Args:
        since_ms: the time of an earlier marker.
    """

    def first(at_ms: int) -> int:
        found = admin.offsets_for_time({at: at_ms})[at]
        return _BEYOND if found is None else found

    step = 1
    while first(since_ms + step) <= offset and step < _BEYOND:
        step *= 2
    later = bisect_right(range(since_ms, since_ms + step), offset, key=first) + since_ms
    return later - 1 if later > since_ms and first(later - 1) == offset else None


def _policy(admin: Admin, topic: str) -> str:
    return admin.topic_configs([topic])[topic].get("cleanup.policy", "")


def _earliest(settings: ClientSettings, check: CompactionCheck, commits: Sequence[TaskCommit]) -> str:
    """Return the earliest commit from which on the log is whole, for people."""
    topic = check.log.partition.topic
    ends = [(end, commit) for commit in commits if (end := commit.end_of(topic)) is not None and end > check.end]
    if ends:
        later = CompactionCheck(check.log, check.start, ends[-1][0])
        for _, batch in read_ranges(settings, [OffsetRange(check.log.partition, check.start, ends[-1][0])], batch_size=1000):
            later.add(batch)
            if later.is_whole:
                break
        for end, commit in ends:
            if later.is_whole and end > later.repeated_at:
                return f"the earliest is {commit}"
    return "no commit of it is known as it was: ask for now"
