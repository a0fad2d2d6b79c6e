"""By which records a fork's stores and outputs differ from its parent's, read from their topics alone.

Fork and parent had the same rows when the fork began. So only keys that one of them has written since can differ: those in the fork's own
changelog, and those in the parent's from where it ended then. Both are read as they grow (`read`), so that little is left to read when
both are at rest. The row that only the parent has changed is, in the fork, still the one that both began with: it is in the fork's base.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kstreams_repl.host.journal.journal import TopicRecord
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.types import Headers

Place = tuple[int, bytes]
"""Partition and key."""
Last = tuple[bytes | None, int, Headers]
"""Value, timestamp and headers of the last record of a key."""


class Tail:
    """The last record of each key of a topic from some offsets on.

    Args:
        starts: by partition; others begin at their first offset.

    Attributes:
        count: how many records were read.
    """

    def __init__(self, settings: ClientSettings, admin: Admin, topic: str, starts: Mapping[int, int]) -> None:
        self._settings, self._admin, self.topic = settings, admin, topic
        self._next = dict(starts)
        self.last: dict[Place, Last] = {}
        self.count = 0

    def read(self, *, settled: bool = False) -> None:
        """Read what was written since.

        Args:
            settled: wait for open transactions to end.
        """
        ranges = ranges_of(self._admin, self.topic, start=self._next, settled=settled)
        for at, batch in read_ranges(self._settings, ranges):
            self.count += len(batch)
            headers = batch.headers or [None] * len(batch)
            for key, value, timestamp, own in zip(batch.keys, batch.values, batch.timestamps, headers, strict=True):
                if key is not None:
                    self.last[at.partition, key] = value, timestamp, list(own or ())
        self._next.update({cut.partition.partition: cut.end for cut in ranges})


Before = Callable[[Collection[Place]], Mapping[Place, Last]]
"""Returns the records that gave keys their values before the fork began; without those that had none."""


@dataclass
class Difference:
    """How one store or output of a fork differs.

    Attributes:
        store, changelog: whose, and the parent's topic.
        mine, theirs: the fork's and the parent's records since the fork began; of a store that is new the parent has none.
        before: what there was before.
        by_value: whether records are equal if their values are; else their timestamps and headers count, too.
    """

    store: str
    changelog: str
    mine: Tail
    theirs: Tail | None
    before: Before
    by_value: bool = False
    subjects: None = None
    records: list[TopicRecord] = field(default_factory=list)

    def read(self, *, settled: bool = False) -> None:
        """Read what both have written since."""
        self.mine.read(settled=settled)
        if self.theirs is not None:
            self.theirs.read(settled=settled)

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many keys have the same last record in both, another one, one of the parent's only, one of the fork's only."""
        theirs, mine = ({} if self.theirs is None else self.theirs.last), self.mine.last
        both = theirs.keys() & mine.keys()
        same = sum(self._same(theirs[place], mine[place]) for place in both)
        return same, len(both) - same, len(theirs) - len(both), len(mine) - len(both)

    def settle(self) -> None:
        """Read the rest, when both are at rest at the same offsets, and find the records."""
        self.read(settled=True)
        self.records = list(self._found())

    def rows(self, settings: ClientSettings, admin: Admin) -> Iterator[TopicRecord]:
        """Yield the records that make the parent's topic say what the fork's says (`state_migration.NewRows`)."""
        return iter(self.records)

    def _found(self) -> Iterable[TopicRecord]:
        theirs = {} if self.theirs is None else self.theirs.last
        for place, last in self.mine.last.items():
            if not self._same(theirs.get(place), last):
                yield self._record(place, last, theirs.get(place))
        only_there = [place for place in theirs if place not in self.mine.last]
        before = self.before(only_there) if only_there else {}
        for place in only_there:
            was = before.get(place)
            last = (None, theirs[place][1], []) if was is None else was
            if not self._same(theirs[place], last):
                yield self._record(place, last, theirs[place])

    def _same(self, theirs: Last | None, mine: Last) -> bool:
        if theirs is None:
            return False
        both_gone = theirs[0] is None and mine[0] is None
        return both_gone or (theirs[0] == mine[0] if self.by_value else theirs == mine)

    def _record(self, place: Place, last: Last, corrected: Last | None) -> TopicRecord:
        value, timestamp, headers = last
        if self.by_value and corrected is not None:  # a correction is no older than what it corrects
            timestamp = max(timestamp, corrected[1])
        return self.changelog, place[0], place[1], value, timestamp, headers
