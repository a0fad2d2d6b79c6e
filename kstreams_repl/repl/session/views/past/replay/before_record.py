"""A task just before one of its records: what a replica of it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kstreams_repl.engine.commit.offset_metadata import OffsetMetadata
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.runtime.global_task import GlobalTask
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.host.instance.initialization.start_offsets import StartOffset
from kstreams_repl.host.instance.state.changelogs import changelogs_of
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.instance.state.state_manager import open_lmdb
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.views.past.replay.recorded_answers import RecordedAnswers, Uncalled, refused
from kstreams_repl.repl.session.views.past.replay.replica import TaskReplica
from kstreams_repl.repl.session.views.past.state.commit_history import TaskCommit
from kstreams_repl.repl.session.views.past.state.ran_versions import Ran, RanVersions
from kstreams_repl.repl.session.views.past.state.state_builder import state_directory
from kstreams_repl.system.errors import InvalidStateStoreError, KStreamsError
from kstreams_repl.system.types import RecordBatch, RecordPosition, TaskId, TopicPartition

_BEYOND = 1 << 62


@dataclass(frozen=True, slots=True)
class BeforeRecord:
    """The last commit of a task before a record, and what the task read from there on.

    Attributes:
        ran: the version of the application that processed it.
        spec: the task of that version.
        starts: the committed offset of each input partition, and its metadata.
        records: by input partition, the records from there on.
        state: a directory with the task's stores as of that commit, which no one may change; None: they were empty.
        global_stores: of the application, with the records of their topics up to the time of the commit after the record.
        before: that commit; None: the task began with the record.
        after: the first commit with the record; None: it is not committed yet.
        answers: of its asynchronous nodes, as far as they are recorded; None: it has no such node.
        uncalled: stands for functions that may not be called; None: they may.
    """

    ran: Ran
    spec: TaskSpec
    starts: Mapping[TopicPartition, StartOffset]
    records: Mapping[TopicPartition, RecordBatch]
    state: Path | None
    global_stores: Mapping[str, object]
    before: TaskCommit | None
    after: TaskCommit | None
    answers: RecordedAnswers | None = None
    uncalled: Uncalled | None = None

    def refuse_calls(self) -> None:
        """Raise if, after its records were processed, a function would have had to be called.

        Raises:
            IllegalStateError: it would.
        """
        if self.uncalled is not None:
            self.uncalled.refuse()


def before_record(versions: RanVersions, record: RecordPosition, *, further: int = 0, calls: bool = False) -> BeforeRecord:
    """Return a task as of the last commit before a record.

    Args:
        further: how many offsets beyond the commit with the record are read of each partition.
        calls: whether functions of asynchronous nodes may be called again, with whatever effects they have.

    Raises:
        InvalidStateStoreError: no task reads the record, or what was there before it is not known any more.
        IllegalStateError: the task has asynchronous nodes, and they may not be called.
    """
    history = versions.history
    before, after = history.around(record)
    return after_commit(versions, history.task_of(record), before, after, record=record, further=further, calls=calls)


def after_commit(
    versions: RanVersions,
    id_: TaskId,
    before: TaskCommit | None,
    after: TaskCommit | None,
    *,
    record: RecordPosition | None = None,
    further: int = 0,
    calls: bool = False,
) -> BeforeRecord:
    """Return a task as of one of its commits, and what it read up to a later one, as the version that wrote the later one runs it.

    Args:
        id_: of the task of the present version.
        before: None: the task began.
        after: None: what it has not committed yet.
        record: one that is read in any case; its position is named in errors.
        further: how many offsets beyond the later commit are read of each partition.
        calls: whether functions of asynchronous nodes may be called again, with whatever effects they have.

    Raises:
        InvalidStateStoreError: what was there then is not known any more.
        SessionFileError: the version that processed the records cannot be loaded.
        IllegalStateError: the task has asynchronous nodes whose answers are not recorded, and they may not be called.
    """
    ran = versions.at(after)
    app, spec = ran.app, ran.task(id_)
    task = spec.task_id
    operators = {node.name: getattr(node, "operator", None) for node in spec.subtopology.nodes}
    waiting = {name: operator for name, operator in operators.items() if isinstance(operator, StreamAsync)}
    answers, uncalled = RecordedAnswers(app.client.admin) if waiting else None, None
    if waiting and not calls:
        for name, operator in waiting.items():
            if not operator.options.durable:
                raise refused(name)
        uncalled = Uncalled(spec)
        spec = uncalled.spec
    starts = {
        partition: StartOffset(0, OffsetMetadata())
        if before is None or partition not in before.commits
        else StartOffset(before.commits[partition].offset, before.metadata[partition])
        for partition in spec.partitions
    }
    state = None if before is None else task_directory(
        state_directory(app, {task: before}, versions.history, ran.resolved), app.name, task
    )
    ends = {partition: start.offset for partition, start in starts.items()} if after is None else after.offsets
    last = {partition: ends.get(partition, 0) + further for partition in spec.partitions}
    if record is not None:
        own = TopicPartition(record.topic, record.partition)
        last[own] = max(last[own], record.offset + 1)
    records = {partition: records_between(app, partition, starts[partition].offset, last[partition]) for partition in spec.partitions}
    stores = global_stores(app, app.topology, None if after is None else after.at_ms + 1)
    return BeforeRecord(ran, spec, starts, records, state, stores, before, after, answers, uncalled)


def replay(versions: RanVersions, inputs: BeforeRecord, record: RecordPosition, directory: Path) -> None:
    """Process the records of a task up to a record, that one included, and write its stores to a directory that does not exist.

    Raises:
        InvalidStateStoreError: what it writes to its changelogs up to the commit after the record is not what it wrote then.
        StreamsProcessingError: a function raised.
    """
    with replica_of(inputs) as replica:
        replica.run_to(record)
        trace = replica.step_record()
        if trace is not None and trace.error is not None:
            raise trace.error
        if found := trace is not None and trace.position == record:
            replica.save(directory)
    with replica_of(inputs) as replica:
        replica.run_to(RecordPosition(record.topic, record.partition, _BEYOND))
        again = replica.logged
    unknown = {store: topic for store, topic in _topics(inputs).items() if _commit_of(inputs).end_of(topic) is None}
    present = {store.name for store in versions.present.task(_commit_of(inputs).task).subtopology.stores}
    _empty(directory, unknown.keys() | (present - {store.name for store in inputs.spec.subtopology.stores}))
    again = {key: value for key, value in again.items() if key[0] not in unknown.values()}
    then = _logged(versions, inputs)
    # A cache writes no row that came and went between two commits; a replica deletes it.
    if not found or then.items() - again.items() or any(again[key] is not None for key in again.keys() - then.keys()):
        raise InvalidStateStoreError(
            f"the state after {record} is not known: processed again, the records of its commit do not give what they gave then",
            hint="the order in which a task took records of several partitions, the wall clock, and functions that are not deterministic "
            f"are not kept; the nearest moments are the commits: {inputs.after}",
        )


@contextmanager
def replica_of(inputs: BeforeRecord) -> Iterator[TaskReplica]:
    """Return a replica of a task, with the records that it has to process.

    Raises:
        IllegalStateError: at its end, if a function would have had to be called that may not be.
    """
    with TaskReplica(
        inputs.spec,
        starts=inputs.starts,
        state=inputs.state,
        global_stores=inputs.global_stores,
        results=inputs.answers,
        partitions=cache(inputs.ran.app.client.admin.partitions),
    ) as replica:
        for partition, batch in inputs.records.items():
            replica.feed(partition, batch)
        try:
            yield replica
        except KStreamsError:
            inputs.refuse_calls()
            raise
        inputs.refuse_calls()


def _topics(inputs: BeforeRecord) -> dict[str, str]:
    """Return the changelog of each store of the task."""
    return {log.store.name: log.partition.topic for log in changelogs_of(inputs.spec) if not log.is_source}


def _commit_of(inputs: BeforeRecord) -> TaskCommit:
    assert inputs.after is not None
    return inputs.after


def _empty(directory: Path, stores: Iterable[str]) -> None:
    """Make empty the stores of which the commit knows nothing: none of them had been written, or an edit has added them since."""
    if not directory.exists() or not (names := list(stores)):
        return
    environment = open_lmdb(directory)
    try:
        for name in names:
            engine = environment.engine(name)
            for key in [key for key, _ in engine.range()]:
                engine.put(key, None)
        environment.commit({}, environment.commit_id)
    finally:
        environment.close()


def _logged(versions: RanVersions, inputs: BeforeRecord) -> dict[tuple[str, bytes | None], bytes | None]:
    """Return the last value of each key that the commit with the record has in each changelog."""
    history, before, after = versions.history, inputs.before, _commit_of(inputs)
    logged: dict[tuple[str, bytes | None], bytes | None] = {}
    for log in changelogs_of(inputs.spec):
        start, end = 0 if before is None else history.end_of(before, log.partition.topic), history.end_of(after, log.partition.topic)
        if log.is_source or start is None or end is None or start >= end:
            continue
        for _, batch in read_ranges(versions.app.client.settings, [OffsetRange(log.partition, start, end)]):
            logged |= {(log.partition.topic, key): value for key, value in zip(batch.keys, batch.values, strict=True)}
    return logged


def records_between(app: ApplicationCore, partition: TopicPartition, start: int, end: int) -> RecordBatch:
    """Return the records of a partition between two offsets.

    Raises:
        InvalidStateStoreError: the broker has deleted the first of them.
    """
    (range_,) = ranges_of(app.client.admin, partition.topic, partitions=[partition.partition], start=start, end=end)
    if range_.start > start and end > start:
        raise InvalidStateStoreError(
            f"{partition} begins at offset {range_.start}: records from {start} on are gone",
            hint="repartition.purge.interval.ms says how soon an application deletes what it has processed of its internal topics"
            if partition.topic.startswith(f"{app.name}-")
            else "the retention of the topic has removed them",
        )
    whole = RecordBatch([], [], [], [], [], partition.topic)
    assert whole.headers is not None
    for _, batch in read_ranges(app.client.settings, [range_]):
        whole.keys.extend(batch.keys)
        whole.values.extend(batch.values)
        whole.timestamps.extend(batch.timestamps)
        whole.offsets.extend(batch.offsets)
        whole.headers.extend(batch.headers or [None] * len(batch))
    return whole


def global_stores(app: ApplicationCore, topology: TopologyGraph, until_ms: int | None) -> Mapping[str, object]:
    """Return the global stores of a topology, read from their topics up to the first record of a time."""
    parts = [part for part in topology.subtopologies() if part.global_]
    if not parts:
        return {}
    task = GlobalTask(app.name, parts, config=app.config, environment=MemoryEnvironment(), wall_clock=lambda: until_ms or 0)
    ranges = [item for topic in task.topics for item in ranges_of(app.client.admin, topic, until_ms=until_ms)]
    for partition, batch in read_ranges(app.client.settings, ranges):
        task.update(partition.topic, partition.partition, batch)
    return task.stores
