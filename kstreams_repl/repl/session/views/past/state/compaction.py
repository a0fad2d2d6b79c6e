"""Whether a changelog still has what it had at an earlier end.

The broker's cleaner removes a record when a later one of its key is in the part that it cleans. A log in which two records of one key are
left was therefore not cleaned up to the second of them, and has everything that any state after it needs. Before that, every
offset without a record must be the marker of a known commit, or belong to an aborted transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.repl.session.views.past.state.commit_history import TaskCommit
from kstreams_repl.system.errors import InvalidStateStoreError
from kstreams_repl.system.types import RecordBatch


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


def refuse_compacted(
    settings: ClientSettings, check: CompactionCheck, commits: Sequence[TaskCommit], policy: Callable[[str], str]
) -> None:
    """Raise if the log may lack records that it had at its end then.

    Args:
        commits: the known commits of the task.
        policy: returns the ``cleanup.policy`` of a topic.

    Raises:
        InvalidStateStoreError: it may; the hint names the earliest moment for which it does not.
    """
    if check.is_whole or (check.log.is_source and "compact" not in policy(check.log.partition.topic)):
        return
    topic = check.log.partition.topic
    markers = {end for commit in commits if (end := commit.end_of(topic)) is not None}
    there = set(check.offsets)
    lacking = [offset for offset in range(check.start, check.end) if offset not in there and offset not in markers]
    if lacking and not check.log.is_source:
        everything: set[int] = set()
        whole_range = [OffsetRange(check.log.partition, check.start, check.end)]
        for _, batch in read_ranges(settings, whole_range, isolation="read_uncommitted"):
            everything.update(batch.offsets)
        aborted = everything - there
        lacking = [offset for offset in lacking if offset not in aborted and offset - 1 not in aborted]
    if not lacking:
        return
    raise InvalidStateStoreError(
        f"the changelog {check.log.partition} was compacted since: rows that store {check.log.store.name!r} had then are gone",
        hint=_earliest(settings, check, commits),
        store=check.log.store.name,
    )


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
