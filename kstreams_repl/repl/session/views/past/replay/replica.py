"""`TaskReplica`: a copy of one task as of a commit, in which records are processed again, one by one.

Actors: a `StreamTask` like that of an instance, over a private copy of its stores; the `DriverHost` and `DriverCollector` of the test
driver around it, so nothing reaches a broker; a `TraceMeter` from the first traced record on. The way of a replica: 1. it opens a copy of
the stores as of the commit, with the offsets, times and metadata of that commit (as a take-over does) · 2. `run_to` processes what comes
before a record, and commits · 3. it opens the task again over the same stores, traced · 4. `step_record` processes one record, and commits.

Invariants: a record is handed to the task when its partition has no other one there, so a record that cannot be read fails in its own
step; wherever the application decided by its own timing, the replica decides by the records: it does not wait (``max.task.idle.ms``), it
commits before the record and after each one that is stepped, and wall-clock punctuations run only at `tick`. Functions run on the caller's
thread.
In-memory stores are kept in the copy, too: their rows are expected there under the store's name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from kstreams_repl.engine.commit.offset_metadata import STREAM_TIME, OffsetMetadata
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.runtime.calls.call_results import ResultLog
from kstreams_repl.engine.runtime.nodes.collector import Send, Site
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.environment import Engine, Environment, Row
from kstreams_repl.engine.topology.nodes import Node
from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.host.instance.initialization.start_offsets import StartOffset, restore_progress
from kstreams_repl.repl.session.views.past.replay.record_trace import RecordTrace, SentRecord, TraceMeter
from kstreams_repl.system.errors import IllegalStateError, KStreamsError
from kstreams_repl.system.types import Headers, RecordBatch, RecordPosition, TopicPartition
from kstreams_repl.test_driver.host import DriverCollector, DriverHost

_CALLS_MS = 60_000
"""How long a call of an asynchronous node, and its tries, may take on the replica's clock."""
_COMMITS_TOGETHER = 500
Starts = Mapping[TopicPartition, StartOffset]
"""By input partition, the committed offset and its metadata."""


class TaskReplica:
    """A copy of one task as of a commit.

    Args:
        spec: the task's description. The replica has settings of its own for what depends on timing: ``num.threads.per.task`` 1,
            ``max.task.idle.ms`` -1, ``repl.outer.join.emit.interval.ms`` 0.
        state: a directory with the task's LMDB environment as of the commit, which no one has open; it is copied. None: empty stores.
        starts: the committed offset of each input partition, and its metadata.
        global_stores: the stores of global tables by name; they are read only.
        results: durable results of asynchronous nodes (`engine.runtime.calls.call_results.ResultLog`). A function without a result here
            is called again, with whatever effects it has.
        now: what the wall clock shows (ms); None: the largest timestamp of the records so far.
        partitions: (topic) -> number of partitions, for sinks; None: 1 each.

    Attributes:
        now: what the wall clock shows (ms).

    Raises:
        StateStoreError: the environment cannot be opened.
        StreamsProcessingError: a processor's `init` raised.
    """

    def __init__(
        self,
        spec: TaskSpec,
        *,
        starts: Starts,
        state: Path | None = None,
        global_stores: Mapping[str, object] | None = None,
        results: ResultLog | None = None,
        now: int | None = None,
        partitions: Callable[[str], int] | None = None,
    ) -> None:
        stores = tuple(replace(builder, persistent=True, follows_default=False) for builder in spec.subtopology.stores)
        config = spec.config.with_(**{"num.threads.per.task": 1, "max.task.idle.ms": -1, "repl.outer.join.emit.interval.ms": 0})
        self.spec = replace(spec, subtopology=replace(spec.subtopology, stores=stores), config=config)
        self._follows_records = now is None
        self.now = max(0, *(start.metadata.stream_time for start in starts.values())) if now is None else now
        self._starts, self._global_stores, self._results = dict(starts), global_stores, results
        self._collector = _LogCollector(_Topics(partitions or (lambda topic: 1)))
        self._collector.sent = deque(maxlen=0)  # type: ignore[assignment]  # until a record is traced, nothing of it is kept
        self._records: dict[TopicPartition, list[RecordBatch]] = {partition: [] for partition in spec.partitions}
        self._given = {partition: start.offset for partition, start in starts.items()}
        self._commit_id = 0
        self._meter: TraceMeter | None = None
        self._undo = ExitStack()
        try:
            host = self._new_host()
            self._environment: Environment = host.environment(state)
            self._open(host)
        except BaseException:
            self._undo.close()
            raise

    @property
    def noted(self) -> NotedReads:
        """What the traced records read of the stores as they were before them."""
        if self._meter is None:
            raise IllegalStateError("no record was traced", hint="call step_record first")
        return self._noted

    @property
    def starts(self) -> Starts:
        """The offsets and metadata of the replica's last commit."""
        return dict(self._starts)

    @property
    def logged(self) -> Mapping[tuple[str, bytes | None], bytes | None]:
        """The last value of each key in each changelog that the records have written so far."""
        return self._collector.logged

    def save(self, directory: Path) -> None:
        """Copy the stores, as of the last record, to a directory that does not exist.

        Raises:
            StateStoreError: the disk failed.
        """
        self._task.post_commit(self._commit_id, {})
        self._environment.copy_to(str(directory))  # type: ignore[attr-defined]

    def _new_host(self) -> DriverHost:
        host = DriverHost(self.spec.config, lambda: self.now, results=self._results)
        self._undo.callback(host.close)
        return host

    def _open(self, host: DriverHost) -> None:
        self._host, meter = host, self._meter
        stores = self._global_stores
        if meter is not None and stores is not None:
            stores = {name: meter.global_store(name, store) for name, store in stores.items()}
        self._task = task = StreamTask(
            self.spec,
            environment=self._environment,
            collector=self._collector,
            wall_clock=lambda: self.now,
            global_stores=stores,
            meter=meter,
        )
        self._undo.callback(task.close)
        host.give(task)
        restore_progress(task, self._starts)
        task.initialize()
        task.pass_punctuations()

    def feed(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """Append records of an input partition, with their offsets; those before its start offset are passed over.

        Raises:
            IllegalStateError: the task does not read the partition.
        """
        if partition not in self._records:
            raise IllegalStateError(
                f"task {self.spec.task_id} does not read {partition}",
                hint=f"it reads {', '.join(map(str, self._records))}",
                topic=partition.topic,
                partition=partition.partition,
            )
        if len(batch):
            self._records[partition].append(batch)

    def run_to(self, position: RecordPosition, *, nodes: Sequence[Node] | None = None) -> int:
        """Process the records that a task takes before the record at a position, and commit; return how many.

        Args:
            position: of a record that was fed; if its partition lacks it, the replica stops before the first one beyond it.
            nodes: what the task consists of from that record on: its own nodes with other functions. None: they stay.

        Raises:
            StreamsProcessingError: a function raised at an earlier record; the replica can only be closed.
            SerializationError: an earlier record cannot be read.
            IllegalStateError: it was called before, or a record was stepped; or a record waits for a call of an asynchronous node.
        """
        if self._meter is not None:
            raise IllegalStateError("a replica runs to one record, before it steps", hint="make a new one")
        task, done = self._task, 0
        target = TopicPartition(position.topic, position.partition)
        alone = len(self._records) == 1
        for partition in self._records:
            last = position.offset if partition == target else None
            for batch in self._waiting(partition, last):
                task.add_records(partition, batch)
            if partition == target and not alone:
                for batch in self._waiting(partition, position.offset + 1):
                    if batch.offsets[-1] == position.offset:
                        task.add_records(partition, self._standing_in(partition, batch.part(slice(-1, None))))
        while (following := task.next_record) is not None and not (following[:2] == target and following.offset >= position.offset):
            self._tell_time()
            taken = task.process(task.buffered if alone else 1)
            if not self._finish_calls() and not taken:
                raise IllegalStateError(f"{following} waits for a call of an asynchronous node that does not end within a minute")
            done += taken
            task.punctuate_stream_time()
        self._trace(nodes)
        return done

    def step_record(self) -> RecordTrace | None:
        """Process the next record, and commit; return what happened, errors included. None: there is no further record.

        Raises:
            IllegalStateTransitionError: the record before failed.
        """
        if self._meter is None:
            self._trace()
        meter, task = self._meter, self._task
        assert meter is not None
        self._collector.sent.clear()
        position: RecordPosition | None = None
        failure: KStreamsError | None = None
        try:
            for partition, queue in task.queues.items():
                if not queue.has_head and (one := next(self._waiting(partition, count=1), None)) is not None:
                    position = RecordPosition(*partition, one.offsets[0])
                    task.add_records(partition, one)
                    self._given[partition] = one.offsets[0] + 1
            position = task.next_record
            if position is None:
                return None
            self._tell_time()
            task.process(1)
            self._finish_calls()
            task.punctuate_stream_time()
            self._commit()
        except KStreamsError as error:
            failure = error
        assert position is not None
        return RecordTrace(position, meter.take(), tuple(SentRecord(*each) for each in self._collector.sent), failure)

    @property
    def has_wall_clock(self) -> bool:
        """Whether wall-clock punctuations are scheduled, which never run by themselves here."""
        return self._task.next_wall_clock_punctuation is not None

    def tick(self, now: int, position: RecordPosition) -> RecordTrace | None:
        """Run the wall-clock punctuations as if they were due, and commit; return what happened. None: there are none. Call it once.

        Args:
            now: what the wall clock shows (ms).
            position: of the last record before it.
        """
        if self._meter is None:
            self._trace()
        assert self._meter is not None
        self._collector.sent.clear()
        self.now, failure = now, None
        try:
            if not self._task.punctuate_wall_clock_at(now):
                return None
            self._finish_calls()
            self._commit()
        except KStreamsError as error:
            failure = error
        return RecordTrace(position, self._meter.take(), tuple(SentRecord(*each) for each in self._collector.sent), failure)

    def read_rows_of(self, key: bytes | None) -> None:
        """Read the row of a serialized key in each key-value store, as `run_to` left it: what a first record that failed did not come to.
        """
        self._environment.rollback()
        for builder in self.spec.subtopology.stores:
            if key is not None and builder.kind in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE):
                self._environment.engine(builder.name).get(key)

    def close(self) -> None:
        """Close the task and remove its stores; idempotent."""
        self._undo.close()

    def __enter__(self) -> TaskReplica:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- inside

    def _waiting(self, partition: TopicPartition, end: int | None = None, count: int | None = None) -> Iterator[RecordBatch]:
        """Return the records of a partition that the task has not got, up to an offset, at most `count` of each batch."""
        for batch in self._records[partition]:
            first = bisect_left(batch.offsets, self._given[partition])
            last = len(batch) if end is None else bisect_left(batch.offsets, end)
            last = last if count is None else min(last, first + count)
            if first < last:
                yield batch.part(slice(first, last))

    def _standing_in(self, partition: TopicPartition, record: RecordBatch) -> RecordBatch:
        """Return what stands for a record while others are compared with its time: it may be one that cannot be read, which is its
        own step's error. A source that takes the time from the record needs the record."""
        name, default = self.spec.partitions[partition], self.spec.config["default.timestamp.extractor"]
        source = next(node for node in self.spec.subtopology.nodes if node.name == name)
        extracts = getattr(source, "timestamp_extractor", None) or default
        return record if extracts is not None else replace(record, keys=[None], values=[None], headers=None)

    def _tell_time(self) -> None:
        if self._follows_records:
            self.now = max(self.now, self._task.head_time or 0)

    def _finish_calls(self) -> bool:
        """Run the calls of asynchronous nodes, and let the clock pass for those that take time; return whether any ended."""
        ended, until = False, self.now + _CALLS_MS
        due: int | None = self.now
        while due is not None:
            self.now = due
            while self._host.run_calls():
                ended = bool(self._task.replay()) or ended
            following = self._host.time_of_calls(until)
            due = following if following != due else None
        return ended

    def _commit(self) -> None:
        """Flush, and note where the task stands. What single records wrote is put to disk together."""
        plan = self._task.prepare_commit()
        self._commit_id += 1
        if self._meter is None or self._commit_id % _COMMITS_TOGETHER == 0:
            self._task.post_commit(self._commit_id, {})
        else:
            self._task.put_off_commit()
        entries = {**plan.metadata, STREAM_TIME: plan.stream_time}
        for partition, start in self._starts.items():
            metadata = OffsetMetadata(plan.partition_times.get(partition, -1), entries)
            self._starts[partition] = StartOffset(plan.offsets.get(partition, start.offset), metadata)

    def _trace(self, nodes: Sequence[Node] | None = None) -> None:
        """Open the task again over the same stores, traced: nothing is cached, so all that a record reads is seen."""
        self._commit()
        self._task.close()
        self._environment.recycle()
        self._noted = NotedReads(self._environment)
        self._collector.sent = []
        self._environment, self._meter = cast(Environment, self._noted), TraceMeter()
        self._given = {partition: start.offset for partition, start in self._starts.items()}
        if nodes is not None:
            self.spec = replace(self.spec, subtopology=replace(self.spec.subtopology, nodes=tuple(nodes)))
        self._open(self._new_host())


class NotedReads:
    """`engine.stores.engine.environment.Environment` that notes the rows and attributes which were read before they were written.

    Attributes:
        rows: by engine, the bytes of each row that was read and existed.
        attributes: by name.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.rows: dict[str, dict[bytes, bytes]] = {}
        self.attributes: dict[str, bytes] = {}

    def add(self, other: NotedReads) -> None:
        """Add what another replica read of the same state."""
        for name, rows in other.rows.items():
            self.rows[name] = {**rows, **self.rows.get(name, {})}
        self.attributes |= other.attributes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def engine(self, name: str, *, persistent: bool = True) -> Engine:
        return _NotedEngine(self._environment.engine(name, persistent=persistent), self.rows.setdefault(name, {}))

    def attribute(self, name: str) -> bytes | None:
        value = self._environment.attribute(name)
        if value is not None:
            self.attributes.setdefault(name, value)
        return value


class _NotedEngine:
    def __init__(self, engine: Engine, read: dict[bytes, bytes]) -> None:
        self._engine, self._read = engine, read
        self._written: set[bytes] = set()
        self.name, self.approximate_count, self.delete_range = engine.name, engine.approximate_count, engine.delete_range

    def get(self, key: bytes) -> bytes | None:
        value = self._engine.get(key)
        if value is not None and key not in self._written:
            self._read.setdefault(key, value)
        return value

    def put(self, key: bytes, value: bytes | None) -> None:
        self._written.add(key)
        self._engine.put(key, value)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self._written.update(keys)
        self._engine.put_many(keys, values)

    def range(
        self, low: bytes | None = None, high: bytes | None = None, reverse: bool = False, limit: int | None = None
    ) -> Iterator[Row]:
        return self._noted(self._engine.range(low, high, reverse, limit))

    def _noted(self, rows: Iterator[Row]) -> Iterator[Row]:
        for key, value in rows:
            if key not in self._written:
                self._read.setdefault(key, value)
            yield key, value


class _LogCollector(DriverCollector):
    """Also keeps the last value of each key that goes to a changelog."""

    def __init__(self, topics: _Topics) -> None:
        super().__init__(topics)
        self.logged: dict[tuple[str, bytes | None], bytes | None] = {}

    def sender(self, topic: str, site: Site | None = None) -> Send:
        send, logged = super().sender(topic, site), self.logged
        if not topic.endswith("-changelog"):
            return send

        def log(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            logged[topic, key] = value
            send(key, value, timestamp, headers, partition)

        return log


class _Topics:
    """`test_driver.host.CollectorTopics` of output topics with these numbers of partitions."""

    def __init__(self, partitions: Callable[[str], int]) -> None:
        self.partitions = partitions

    def partition_of(self, topic: str, key: bytes | None) -> int:
        count = self.partitions(topic)
        return 0 if key is None or count == 1 else partition_for_key(key, count)
