"""`Writers`: which record's processing has written a record of an output, of a repartition topic or of a changelog.

1. The commit that has it is found: each commit has the ends of its changelogs; for a topic the commits are tried from the first one whose
stream time has reached the record's · 2. the task processes that commit again (`Replays`), as the version that wrote it, and the record
whose trace sent the same bytes is it. Invariant: what is not found is an error.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable

from kstreams_repl.engine.stores.log.log_serdes import with_log_serdes
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.repl.session.views.past.causes.row_keys import RowKey, row_key
from kstreams_repl.repl.session.views.past.causes.used_rows import UsedRow
from kstreams_repl.repl.session.views.past.replay.replays import Interval, Replays, Step, Written
from kstreams_repl.repl.session.views.past.state.ran_versions import Ran
from kstreams_repl.system.errors import InvalidStateStoreError, SessionFileError
from kstreams_repl.system.types import TaskId

MOST_COMMITS = 200
"""How many commits of each task are tried for a record of a topic."""
TICK_COMMITS = 10
"""How many commits of each task are tried for what a punctuation by the wall clock has sent."""
MANY = 1_000
"""From so many offsets of a commit on, only the records of one key are processed again, where that suffices."""
_REPORT_SECONDS = 2.0
_BY_KEY = frozenset({StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE})


class Writers:
    """Finds what has written a record."""

    def __init__(self, replays: Replays) -> None:
        self._replays = replays
        self._reported_at = time.monotonic()

    def of_output(self, record: Written, until_ms: int | None = None) -> Step:
        """Return the record whose processing has sent a record to an output or a repartition topic.

        Args:
            until_ms: the latest time of its commit.

        Raises:
            InvalidStateStoreError: no commit that was tried has it.
            SessionFileError: the version of one of these cannot be loaded, and no other one has it.
        """
        topic, history = record.position.topic, self._replays.history
        found: list[Step] = []
        failed: InvalidStateStoreError | SessionFileError | None = None
        before, number = self._replays.equal(record)
        tried = []
        for task in sorted(self._replays.versions.present.specs, key=lambda task: task.partition != record.position.partition):
            commits = history.of(task)
            first = bisect_left(commits, record.timestamp, key=lambda commit: commit.stream_time)
            order = [*range(first, len(commits)), *range(first - 1, -1, -1)][:MOST_COMMITS]
            tried += [
                (rank, task, each) for rank, each in enumerate(order) if until_ms is None or commits[each].at_ms <= until_ms
            ]
        for rank, task, each in sorted(tried, key=lambda one: one[0]):
            if len(found) >= number:
                break
            try:
                outputs = self._replays.ran(task, each).outputs(task)
                if topic not in outputs and None not in outputs:
                    continue
                self.report(f"looking for what wrote {record.position}: {rank} of up to {MOST_COMMITS} commits of each task …")
                if number == 1 and (alone := self._alone(task, each, record)):
                    return alone[-1]
                interval = self._replays.interval(task, each)
            except (InvalidStateStoreError, SessionFileError) as error:
                failed = failed or error
                continue
            found += [step for step in _sending(interval, record) if step.sent.partition == record.position.partition]
        if not found and (tick := self._of_output_tick(record, {task for _, task, _ in tried}, until_ms)) is not None:
            return tick
        if len(found) <= before:
            raise failed or InvalidStateStoreError(
                f"no record is found whose processing sends {record.position}",
                hint="rows that a cache has merged between two commits leave with other old values; functions may not be deterministic",
            )
        found.sort(key=lambda step: (history.of(step.interval.task)[step.interval.last].at_ms, step.interval.task, step.at))
        return found[before]

    def of_row(self, interval: Interval, before: int, log: ChangelogPartition, row: UsedRow) -> Step | Written | None:
        """Return the last update of a row before a record of an interval; of a store that is filled from its topic, the record there; of a
        row that was gone, what has deleted it; of one of which only the existence was used, what has made it, if it was not there before.
        None: there is none.

        Args:
            before: index of the record's trace.
        """
        key = row.key if isinstance(row.key, RowKey) else row_key(log.store, row.key)
        if key is None:
            return None
        at_ms = row.at_ms if row.at_ms is not None or log.store.kind is not StoreKind.VERSIONED else _LATEST
        found = Newest(at_ms, row.use)
        self._in_interval(interval, before, log, key, found)
        if not found.complete:
            self._in_topic(interval, log, key, found)
        update = found.update
        return self._logged(interval.task, log, update) if isinstance(update, Written) and not log.is_source else update

    def _in_interval(self, interval: Interval, before: int, log: ChangelogPartition, key: RowKey, found: Newest) -> None:
        topic = log.partition.topic
        for number in range(before - 1, -1, -1):
            trace = interval.traces[number]
            if log.is_source:
                record = interval.inputs[trace.position]
                if record.partition == log.partition and key(record.key):
                    found.add(record, record.timestamp, record.value)
            else:
                for sent in reversed(trace.sent):
                    if sent.topic == topic and key(sent.key):
                        found.add(Step(interval, number, sent), sent.timestamp, sent.value)
            if found.complete:
                return

    def _in_topic(self, interval: Interval, log: ChangelogPartition, key: RowKey, found: Newest) -> None:
        commits = self._replays.history.of(interval.task)
        if log.is_source:
            end = commits[interval.first - 1].offsets.get(log.partition, 0) if interval.first else 0
        else:
            end = self._replays.end_before(interval, log.partition.topic)

        def wanted(record: Written) -> bool:
            found.add(record, record.timestamp, record.value)
            return found.complete

        self._replays.last(log.partition, end, wanted, key.match)

    def of_global(self, store: StoreBuilder, key: object, until_ms: int | None, ran: Ran) -> tuple[Written, StoreBuilder] | None:
        """Return the last record of a key in a global table's topic, up to a time, and the store with its serdes; None: there is none."""
        bound = with_log_serdes(store, ran.app.config)
        found = self._replays.last_of_key(str(bound.source_topic), bound.key_serde.serialize(key), until_ms)
        return None if found is None else (found, bound)

    def updates(
        self, step: Step, before: object, log: ChangelogPartition, wanted: RowKey, *, first: int, alone: bool
    ) -> list[Step]:
        """Return the updates of a row before a record, since it was last deleted.

        Args:
            before: the access of the store that has continued the row.
            first: the index of the first commit that may have one.
            alone: whether the records of other keys may be left out, if the row then comes to the same value.
        """
        interval = step.interval
        self.report(f"processing {interval.last - first + 1} commits of task {interval.task} again …")
        data = step.interval.inputs[step.trace.position].key
        if alone and data is not None and wanted == RowKey(data):
            some = self._replays.intervals(interval.task, first, interval.last, key=data)
            same = next((trace for trace in some[-1].traces if trace.position == step.trace.position), None)
            again = () if same is None else (each for visit in same.visits for each in visit.stores)
            if any(each[:2] == before[:2] and each[3:] == before[3:] for each in again):  # type: ignore[index]
                return _updates(some, step, log, wanted)
        return _updates(self._replays.intervals(interval.task, first, interval.last), step, log, wanted)

    def _logged(self, task: TaskId, log: ChangelogPartition, record: Written) -> Step:
        """Return the record whose processing has written a record of a changelog.

        Raises:
            InvalidStateStoreError: none has, processed again.
        """
        topic, key = log.partition.topic, record.key
        number = self._replays.number_of(task, topic, record.position.offset)
        if log.store.kind in _BY_KEY and (alone := self._alone(task, number, record)):
            return alone[-1]
        interval = self._replays.interval(task, number)
        sent = interval.sent(topic, key)
        if log.store.retain_duplicates and key is not None:  # their sequence numbers are not those of then
            sent = [(at, each) for at, trace in enumerate(interval.traces) for each in trace.sent if each.topic == topic]
            sent = [(at, each) for at, each in sent if each.key is not None and each.key[:-4] == key[:-4]]
        same = [one for one in sent if one[1].value == record.value]
        exact = [one for one in same if one[1].timestamp == record.timestamp] or same
        if not exact and (tick := self._at_a_tick(interval, record)) is not None:
            return tick
        if not exact:
            raise InvalidStateStoreError(
                f"processed again, the records of {self._replays.history.of(task)[interval.last]} do not write {record.position}",
                hint="the order in which a task took records of several partitions, the wall clock, and functions that are not "
                "deterministic are not kept",
            )
        return Step(interval, *exact[-1])

    def _of_output_tick(self, record: Written, tasks: set[TaskId], until_ms: int | None) -> Step | None:
        """Return the punctuation by the wall clock that has sent a record: in the first commit after the record's time, or soon after."""
        for task in sorted(tasks, key=lambda task: task.partition != record.position.partition):
            commits = self._replays.history.of(task)
            first = bisect_left(commits, record.timestamp, key=lambda commit: commit.at_ms)
            for number in range(first, min(first + TICK_COMMITS, len(commits))):
                if until_ms is not None and commits[number].at_ms > until_ms:
                    break
                try:
                    tick = self._at_a_tick(self._replays.interval(task, number), record)
                except (InvalidStateStoreError, SessionFileError):
                    continue
                if tick is not None:
                    return tick
        return None

    def _at_a_tick(self, interval: Interval, record: Written) -> Step | None:
        """Return the punctuation by the wall clock that sends a record in a commit; None: none does."""
        if not interval.has_wall_clock:
            return None
        for ticked in self._replays.ticks(interval.task, interval.last, record.timestamp):
            last = len(ticked.traces) - 1
            sent = [step for step in _sending(ticked, record) if step.at == last]
            if sent:
                return sent[-1]
        return None

    def _alone(self, task: TaskId, number: int, record: Written) -> list[Step]:
        """Return the steps of a commit that send a record when only the records of its key are processed, and use no other row; none
        where the commit has few records: the whole commit is processed then.
        """
        if record.key is None or self._replays.size(task, number) < MANY:
            return []
        steps = _sending(self._replays.interval(task, number, key=record.key), record)
        stores = [{access.store for visit in step.trace.visits for access in visit.stores} for step in steps]
        return [step for step, used in zip(steps, stores, strict=True) if len(used) < 2]

    def report(self, text: str) -> None:
        """Show a message, if the last one was some time ago."""
        if time.monotonic() - self._reported_at > _REPORT_SECONDS:
            self._reported_at = time.monotonic()
            self._replays.app.client.report(text)


class Newest:
    """The update of a row that is the last one up to a time; updates are added the last one first.

    Args:
        at_ms: up to which timestamp, as of a versioned table; None: timestamps do not matter.
        use: what of the row was used, as `UsedRow`: of a row that was gone, only its deletion is a cause; of one that exists whatever its
            value, only its one update since it was made.

    Attributes:
        complete: whether earlier updates cannot change it.
    """

    def __init__(self, at_ms: int | None, use: str = "value") -> None:
        self._at_ms, self._use = at_ms, use
        self._updates: list[tuple[int, Step | Written, bool]] = []
        """By timestamp, the last one of each first; whether it has deleted the row."""
        self.complete = False

    def add(self, update: Step | Written, timestamp: int, value: bytes | None) -> None:
        """Take the update before those that were added."""
        if self.complete or (self._at_ms is not None and timestamp > self._at_ms):
            return
        self._updates.append((timestamp, update, value is None))
        wanted = 1 if self._use == "value" else 2
        self.complete = len(self._updates) == wanted if self._at_ms is None else wanted == 1 and timestamp == self._at_ms

    @property
    def update(self) -> Step | Written | None:
        """The update; None: there is none."""
        updates = self._updates
        if self._at_ms is not None:  # a stable order: of equal timestamps the last one stays first
            updates = sorted(updates, key=lambda each: -each[0])
        if not updates or self._use == "value":
            return updates[0][1] if updates else None
        was_gone = len(updates) < 2 or updates[1][2]
        return updates[0][1] if was_gone == (self._use == "exists") else None


_LATEST = 1 << 62


def _sending(interval: Interval, record: Written) -> list[Step]:
    sent: Callable[[str, bytes | None], list] = interval.sent  # type: ignore[type-arg]
    return [Step(interval, *each) for each in sent(record.position.topic, record.key) if record.is_like(each[1])]


def _updates(intervals: list[Interval], before: Step, log: ChangelogPartition, wanted: RowKey) -> list[Step]:
    """Return the updates of a row in intervals before a record, since it was last deleted there."""
    found: list[Step] = []
    for interval in intervals:
        for number, trace in enumerate(interval.traces):
            if trace.position == before.trace.position:
                return found
            for sent in trace.sent:
                if sent.topic == log.partition.topic and wanted(sent.key):
                    if sent.value is None and not wanted.has_parts:
                        found.clear()
                    elif sent.value is not None:
                        found.append(Step(interval, number, sent))
    return found
