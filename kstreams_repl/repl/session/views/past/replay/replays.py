"""`Replays`: what an application's tasks did between commits, processed again and kept; and what they have written since.

Actors: an `Interval`, the traces of a task's records between two of its commits; `Written`, a record as it is in a changelog, a repartition
topic or an output; a `Step`, the record in whose trace that was sent. Invariant: a step is found by what was really written, byte by byte
(key, value, timestamp), never by what a replay has written alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import eq
from typing import NamedTuple

from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.serdes.json_text import JSON
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.views.past.replay.before_record import after_commit, replica_of
from kstreams_repl.repl.session.views.past.replay.record_trace import RecordTrace, SentRecord
from kstreams_repl.repl.session.views.past.state.commit_history import TaskCommit
from kstreams_repl.repl.session.views.past.state.ran_versions import Ran, RanVersions
from kstreams_repl.system.errors import InvalidStateStoreError, SerializationError
from kstreams_repl.system.types import RecordBatch, RecordPosition, TaskId, TopicPartition

_KEPT_TRACES = 100_000
_BLOCK = 10_000
_TICK_PLACES = 20
_FIRST_CHUNK, _GROWTH, _LARGEST_CHUNK = 5_000, 4, 1_000_000


_Row = tuple[int, bytes | None, bytes | None, int]
"""Offset, key, value, timestamp."""
Match = Callable[[bytes | None], bool]
"""Returns whether a record with this key is meant."""


class Written(NamedTuple):
    """One record as it is on the broker."""

    position: RecordPosition
    key: bytes | None
    value: bytes | None
    timestamp: int

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.position.topic, self.position.partition)

    def is_like(self, sent: SentRecord) -> bool:
        """Return whether a record that was sent in a replay is this one, or equal to it."""
        topic = self.position.topic
        same = (sent.topic, sent.key, sent.timestamp) == (topic, self.key, self.timestamp)
        return same and (sent.value == self.value or _as_sent(topic, sent.value) == _as_sent(topic, self.value))


@dataclass(slots=True)
class Interval:
    """What a task did from after one commit up to another.

    Attributes:
        ran: the version that did it.
        task: its id in the present version.
        first, last: indices of the first commit after it began, and of the one with which it ends.
        inputs: the records as they are on the broker.
        has_wall_clock: whether the task has punctuations by the wall clock, which are not among the traces.
    """

    ran: Ran
    task: TaskId
    first: int
    last: int
    traces: Sequence[RecordTrace]
    inputs: dict[RecordPosition, Written]
    has_wall_clock: bool = False
    _sent: dict[tuple[str, bytes | None], list[tuple[int, SentRecord]]] = field(default_factory=dict)

    def sent(self, topic: str, key: bytes | None) -> list[tuple[int, SentRecord]]:
        """Return what it sent to a topic under a key, each with the index of its trace."""
        if not self._sent:
            for index, trace in enumerate(self.traces):
                for sent in trace.sent:
                    self._sent.setdefault((sent.topic, sent.key), []).append((index, sent))
        return self._sent.get((topic, key), [])


class Step(NamedTuple):
    """One record in an interval, by the index of its trace, and one of the records that it sent."""

    interval: Interval
    at: int
    sent: SentRecord

    @property
    def trace(self) -> RecordTrace:
        return self.interval.traces[self.at]


class Replays:
    """Intervals of an application's tasks, and reads of its topics.

    Args:
        calls: whether functions of asynchronous nodes may be called again.
    """

    def __init__(self, app: ApplicationCore, *, calls: bool = False) -> None:
        self.app, self._calls = app, calls
        self.versions = RanVersions(app)
        self.history = self.versions.history
        self._intervals: OrderedDict[tuple[TaskId, int, int, bytes | None], Interval] = OrderedDict()
        self._chunks: dict[TopicPartition, list[tuple[int, int, list[RecordBatch]]]] = {}
        self._blocks: dict[tuple[TopicPartition, int], list[_Row]] = {}

    # ---- intervals

    def intervals(self, task: TaskId, first: int, last: int, *, key: bytes | None = None) -> list[Interval]:
        """Return what a task did in some of its commits: one interval for each version that it ran then.

        Args, Raises: as `interval`.
        """
        numbers = range(first, last + 1)
        runs = [list(run) for _, run in groupby(numbers, lambda number: self.ran(task, number).number)]
        return [self.interval(task, run[0], run[-1], key=key) for run in runs]

    def ran(self, task: TaskId, number: int) -> Ran:
        """Return the version that wrote a commit.

        Raises:
            SessionFileError: it cannot be loaded.
            InvalidStateStoreError: the commit does not say which one it was.
        """
        return self.versions.at(self.history.of(task)[number])

    def interval(self, task: TaskId, first: int, last: int | None = None, *, key: bytes | None = None) -> Interval:
        """Return what a task did in some of its commits, all of one version.

        Args:
            first, last: indices among the known commits; `last` None: the first alone.
            key: leave out the records of other keys; None: none is left out. What depends on stream time is then not what it was.

        Raises:
            InvalidStateStoreError: what it read or had then is not known any more.
            SessionFileError: the version that ran then cannot be loaded.
            IllegalStateError: the task has asynchronous nodes, and they may not be called.
        """
        last = first if last is None else last
        found = self._intervals.get((task, first, last, key))
        if found is None:
            found = self._intervals[task, first, last, key] = self._replayed(task, first, last, key)
            while sum(len(each.traces) for each in self._intervals.values()) > _KEPT_TRACES and len(self._intervals) > 1:
                self._intervals.popitem(last=False)
        self._intervals.move_to_end((task, first, last, key))
        return found

    def size(self, task: TaskId, number: int) -> int:
        """Return how many offsets of the inputs are in a commit."""
        commits = self.history.of(task)
        before = commits[number - 1].offsets if number else {}
        return sum(offset - before.get(partition, 0) for partition, offset in commits[number].offsets.items())

    def _replayed(self, task: TaskId, first: int, last: int, key: bytes | None) -> Interval:
        commits = self.history.of(task)
        if not first and commits[0].commit_id != 1:
            raise InvalidStateStoreError(f"{commits[0]} is the earliest that the broker still has: the state before it is not known")
        before: TaskCommit | None = commits[first - 1] if first else None
        inputs = after_commit(self.versions, task, before, commits[last], calls=self._calls)
        if key is not None:
            inputs = replace(inputs, records={partition: _of_key(batch, key) for partition, batch in inputs.records.items()})
        records = {
            RecordPosition(*partition, offset): Written(RecordPosition(*partition, offset), key, value, at)
            for partition, batch in inputs.records.items()
            for offset, key, value, at in zip(batch.offsets, batch.keys, batch.values, batch.timestamps, strict=True)
        }
        traces: list[RecordTrace] = []
        with replica_of(inputs) as replica:
            while (trace := replica.step_record()) is not None:
                traces.append(trace)
                if trace.error is not None:
                    break
            has_wall_clock = replica.has_wall_clock
        return Interval(inputs.ran, task, first, last, traces, records, has_wall_clock)

    def ticks(self, task: TaskId, number: int, now: int) -> Iterator[Interval]:
        """Yield what a task does in a commit with its wall-clock punctuations at its end, at its begin, and then before its last records.

        When they have run is not known; of a commit with many records, not every place is tried.

        Args:
            now: what the wall clock showed (ms).
        """
        commits = self.history.of(task)
        whole = self.interval(task, number)
        inputs = after_commit(self.versions, task, commits[number - 1] if number else None, commits[number], calls=self._calls)
        count = len(whole.traces)
        for after in list(dict.fromkeys([count, 0, *range(count - 1, 0, -1)]))[:_TICK_PLACES]:
            traces = whole.traces[:after]
            before = self._written_before(task, number, [trace.position for trace in traces])
            with replica_of(inputs) as replica:
                for _ in traces:
                    replica.step_record()
                tick = None if before is None else replica.tick(now, before.position)
            if tick is not None and before is not None:
                yield Interval(whole.ran, task, number, number, [*traces, tick], {**whole.inputs, before.position: before})

    def _written_before(self, task: TaskId, number: int, positions: Sequence[RecordPosition]) -> Written | None:
        """Return the record that a task has processed last: that of the last position, or the last one before a commit."""
        if positions:
            return self.record(positions[-1])
        offsets = self.history.of(task)[number - 1].offsets if number else {}
        before = (self.last(partition, offset, lambda record: True) for partition, offset in offsets.items())
        return max((record for record in before if record is not None), key=lambda record: record.timestamp, default=None)

    def number_of(self, task: TaskId, topic: str, offset: int) -> int:
        """Return the index of the commit that ends with a record of a changelog.

        Raises:
            InvalidStateStoreError: no commit says that.
        """
        commits = self.history.of(task)
        low, high = self.history.begin_of(task, topic), len(commits)
        while low < high:
            middle = (low + high) // 2
            end = self.history.end_of(commits[middle], topic)
            if end is None or end <= offset:
                low = middle + 1
            else:
                high = middle
        if low == len(commits):
            raise InvalidStateStoreError(f"no commit says that it wrote record {offset} of {topic}")
        return low

    def reader_of(self, record: Written) -> tuple[TaskId, int]:
        """Return the task that reads a record, and the index of the commit with it."""
        task = self.history.task_of(record.position)
        commits, partition = self.history.of(task), record.partition
        return task, bisect_right(commits, record.position.offset, key=lambda commit: commit.offsets.get(partition, 0))

    def end_before(self, interval: Interval, topic: str) -> int:
        """Return where a changelog ended before an interval.

        Raises:
            InvalidStateStoreError: the commit does not say it.
        """
        if not interval.first:
            return 0
        commit = self.history.of(interval.task)[interval.first - 1]
        end = self.history.end_of(commit, topic)
        if end is None or end < 0:
            raise InvalidStateStoreError(f"{commit} does not say where {topic} ended", hint="ask as of another commit")
        return end

    # ---- topics

    def last(self, partition: TopicPartition, end: int, wanted: Callable[[Written], bool], key: Match | None = None) -> Written | None:
        """Return the last record before an offset with such a key that fulfils a condition; None: there is none."""
        return next((record for record in self.backward(partition, end, key) if wanted(record)), None)

    def last_of_key(self, topic: str, key: bytes, until_ms: int | None = None) -> Written | None:
        """Return the last record of a key in a topic, up to the first record of a time in each partition; None: there is none."""
        admin = self.app.client.admin
        partitions = [TopicPartition(topic, number) for number in range(admin.partitions(topic))]
        ends = admin.end_offsets(partitions)
        if until_ms is not None:
            ends |= {at: end for at, end in admin.offsets_for_time(dict.fromkeys(partitions, until_ms)).items() if end is not None}
        likely = partition_for_key(key, len(partitions))
        for partition in sorted(partitions, key=lambda each: each.partition != likely):
            if (found := self.last(partition, ends[partition], lambda record: True, partial(eq, key))) is not None:
                return found
        return None

    def backward(self, partition: TopicPartition, end: int, key: Match | None = None) -> Iterator[Written]:
        """Yield the records before an offset, the last one first; None: with any key. What was read is kept, as columns."""
        chunks = self._chunks.setdefault(partition, [])
        if not chunks or chunks[0][1] < end:
            self._read(partition, chunks[0][1] if chunks else max(0, end - _FIRST_CHUNK), end, at=0)
        first, number = self.app.client.admin.beginning_offsets([partition])[partition], 0
        while True:
            if number == len(chunks):
                start = chunks[-1][0]
                if start <= first:
                    return
                size = min(_FIRST_CHUNK * _GROWTH**number, _LARGEST_CHUNK)
                self._read(partition, max(first, start - size), start, at=number)
            for batch in reversed(chunks[number][2]):
                rows = range(len(batch)) if key is None else [row for row, each in enumerate(batch.keys) if key(each)]
                for row in reversed(rows):
                    if (offset := batch.offsets[row]) < end:
                        position = RecordPosition(*partition, offset)
                        yield Written(position, batch.keys[row], batch.values[row], batch.timestamps[row])
            number += 1

    def equal(self, record: Written) -> tuple[int, int]:
        """Return how many records with the same key, value and timestamp are before a record in its partition, and how many there are."""
        admin, partition = self.app.client.admin, record.partition
        start = admin.offsets_for_time({partition: record.timestamp})[partition]
        offset, end = record.position.offset, admin.end_offsets([partition])[partition]
        blocks = range((offset if start is None else min(start, offset)) // _BLOCK, min(offset // _BLOCK + 1, (end - 1) // _BLOCK) + 1)
        topic, (_, key, value, timestamp) = partition.topic, record
        value = _as_sent(topic, value)
        rows = self._rows(partition, blocks)
        same = [at for at, own_key, own_value, own in rows if own_key == key and own == timestamp and _as_sent(topic, own_value) == value]
        return sum(at < offset for at in same), len(same)

    def record(self, position: RecordPosition) -> Written:
        """Return a record.

        Raises:
            InvalidStateStoreError: there is none.
        """
        partition = TopicPartition(position.topic, position.partition)
        block = position.offset // _BLOCK
        found = next((row for row in self._rows(partition, range(block, block + 1)) if row[0] == position.offset), None)
        if found is None:
            raise InvalidStateStoreError(f"there is no record {position}", hint="it may be a transaction's marker, or be gone")
        return Written(position, *found[1:])

    def _rows(self, partition: TopicPartition, blocks: range) -> Iterator[_Row]:
        """Yield the records of some blocks. What was read is kept."""
        missing = [number for number in blocks if (partition, number) not in self._blocks]
        if missing:
            between = range(missing[0], missing[-1] + 1)
            self._blocks |= {(partition, number): [] for number in between}
            for batch in self._batches(partition, between.start * _BLOCK, between.stop * _BLOCK):
                for row in zip(batch.offsets, batch.keys, batch.values, batch.timestamps, strict=True):
                    self._blocks[partition, row[0] // _BLOCK].append(row)
        for number in blocks:
            yield from self._blocks[partition, number]

    def _batches(self, partition: TopicPartition, start: int, end: int) -> list[RecordBatch]:
        ranges = ranges_of(self.app.client.admin, partition.topic, partitions=[partition.partition], start=start, end=end)
        return [batch for _, batch in read_ranges(self.app.client.settings, ranges)]

    def _read(self, partition: TopicPartition, start: int, end: int, at: int) -> None:
        self._chunks[partition].insert(at, (start, end, self._batches(partition, start, end)))


def _as_sent(topic: str, value: bytes | None) -> bytes | None:
    """Return a value as a replay sends it: a JSON value under another key may have gone into a repartition topic as it was read."""
    if value is None or not topic.endswith("-repartition"):
        return value
    try:
        return JSON.serialize(JSON.deserialize(value))
    except SerializationError:
        return value


def _of_key(batch: RecordBatch, key: bytes) -> RecordBatch:
    """Return the records of one key."""
    rows = [row for row, each in enumerate(batch.keys) if each == key]
    return RecordBatch(
        [key] * len(rows),
        [batch.values[row] for row in rows],
        [batch.timestamps[row] for row in rows],
        [batch.offsets[row] for row in rows],
        None if batch.headers is None else [batch.headers[row] for row in rows],
        batch.topic,
    )
