"""`Side`: one of the topologies that are compared, run as a whole application in this process over copies of its state.

Actors: the tasks of the engine, one for each sub-topology and partition, each with the `DriverHost` of the test driver; a collector that
notes with which input record (`inputs`: its tag) each record was sent. Records of topics that the application both writes and reads go on
to the tasks that read them. Invariants: a task takes records in the order of their tags, whatever partitions they come from and however
many are run at once, so what a side sends with a tag does not depend on other topics, on the other side, or on timing: it does not wait
(``max.task.idle.ms``), nothing is cached (each update is seen), wall-clock punctuations never run, and the clock shows the largest
timestamp so far. Nothing reaches a broker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from kstreams_repl.engine.commit.offset_metadata import STREAM_TIME, OffsetMetadata
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.operators.own_copy import own_copy
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.runtime.calls.call_results import ResultLog
from kstreams_repl.engine.runtime.nodes.collector import Send, Site
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.nodes import Node, SinkNode, SourceNode
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.initialization.start_offsets import StartOffset, restore_progress
from kstreams_repl.host.instance.state.state_manager import open_lmdb
from kstreams_repl.repl.session.views.compare.inputs import Inputs
from kstreams_repl.repl.session.views.past.replay.record_trace import NodeVisit, TraceMeter
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import Headers, RecordBatch, TaskId, TopicPartition
from kstreams_repl.test_driver.driver_tasks import DriverTopics
from kstreams_repl.test_driver.host import DriverCollector, DriverHost, DriverRows

if TYPE_CHECKING:
    from kstreams_repl.table_files.row_batches import Misfit

CHUNK = 2_000
"""Number of input records that are run at once."""
_ALL = 1 << 30
_CALLS_MS = 60_000
_SETTINGS = {
    "num.threads.per.task": 1, "max.task.idle.ms": -1, "repl.outer.join.emit.interval.ms": 0, "statestore.cache.max.bytes": 0,
    "repl.changelog.suppression": False,
}  # fmt: skip


TABLE = "table:"
"""Begins the name of what a sink writes that writes a table of files."""
Column = tuple[list[int], RecordBatch]
"""Records of a partition with their tags."""


class Sent(NamedTuple):
    """One record that a side sent, with the tag of the input record that caused it."""

    tag: int
    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    partition: int


@dataclass(frozen=True, slots=True)
class Base:
    """What both sides begin with.

    Attributes:
        starts: of the application's input partitions, the committed offset and its metadata; others begin without any.
        states: by task of the application, a directory with its stores, which no one has open; a task without one begins empty.
        homes: the task of the application that has a store, by its name and partition.
        empty: stores that begin empty on both sides.
        global_stores: the stores of global tables.
    """

    starts: Mapping[TopicPartition, StartOffset] = field(default_factory=dict)
    states: Mapping[TaskId, Path] = field(default_factory=dict)
    homes: Mapping[tuple[str, int], TaskId] = field(default_factory=dict)
    empty: frozenset[str] = frozenset()
    global_stores: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SideTopology:
    """A topology with what it needs to run.

    Attributes:
        partitions: of the topics on the broker.
        quiet: (nodes) -> the nodes that run instead, without effects on the outside.
        results: recorded results of asynchronous nodes.
    """

    topology: Topology
    application: str
    config: StreamsConfig
    partitions: Mapping[str, int]
    quiet: Callable[[Sequence[Node]], Sequence[Node]]
    results: ResultLog | None = None


class _Task:
    """One task and what it runs in."""

    def __init__(
        self, spec: TaskSpec, task: StreamTask, host: DriverHost, environment: Environment, collector: _Collector
    ) -> None:
        self.spec, self.task, self.host, self.environment, self.collector = spec, task, host, environment, collector
        self.meter: TraceMeter | None = None
        self.waiting: dict[TopicPartition, list[Column]] = {}
        self.arrived: dict[TopicPartition, list[Sent]] = {}
        """What other tasks have sent, by partition."""
        self.commits = 0

    @property
    def is_due(self) -> bool:
        return bool(self.waiting or self.arrived)


class Side:
    """A topology that processes input records.

    Args:
        given: the topology.
        base: what it begins with.
        inputs: the records.
        seed: of Python's random numbers: two sides with the same one draw the same numbers.

    Attributes:
        failed: the error with which it ended; None: it has not.
        failed_at: the tag of the record at which it failed.
    """

    def __init__(self, given: SideTopology, base: Base, inputs: Inputs, *, seed: int = 0) -> None:
        self.given, self._base, self._inputs, self._seed = given, base, inputs, seed
        config = StreamsConfig({**given.config, **_SETTINGS, "application.id": given.application})
        self._topics = DriverTopics(given.topology, given.application, config, dict(given.partitions))
        self.now = max(0, *(start.metadata.stream_time for start in base.starts.values())) if base.starts else 0
        self.failed: KStreamsError | None = None
        self.failed_at = -1
        self.tasks: list[_Task] = []
        self._next: dict[TopicPartition, int] = {}
        self._undo = ExitStack()
        self._done = 0
        try:
            for spec in _in_order(self._topics.specs, given.topology, given.application):
                self.tasks.append(self._open(self._prepared(spec)))
        except BaseException:
            self._undo.close()
            raise
        self._readers = {partition: each for each in self.tasks for partition in each.spec.partitions}

    # ---- run

    def run(self, stop: int) -> Iterator[tuple[int, list[Sent]]]:
        """Process the records up to a tag; yield after each chunk the tag before which it ended, and what was sent.

        It ends early if a record fails.
        """
        while self._done < stop and self.failed is None:
            end = min(self._done + CHUNK, stop)
            yield end, self._run(self._done, end)
            self._done = end

    def traced(self) -> list[NodeVisit]:
        """Process the next record; return the visits of nodes, in the order in which they were entered."""
        if self.tasks and self.tasks[0].meter is None:
            self._trace()
        self._run(self._done, self._done + 1)
        self._done += 1
        return [visit for each in self.tasks if each.meter is not None for visit in each.meter.take()]

    def rows(self, store: str) -> Iterator[tuple[int, Iterator[tuple[bytes, bytes]]]]:
        """Yield the rows of a store in each task, by the order of their keys, with the task's partition."""
        for each in sorted(self.tasks, key=lambda each: each.spec.task_id):
            if any(builder.name == store for builder in each.spec.subtopology.stores):
                yield each.spec.task_id.partition, iter(each.environment.engine(store).range())

    def close(self) -> None:
        """Close the tasks and remove their stores; idempotent."""
        self._undo.close()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- inside

    def _run(self, start: int, stop: int) -> list[Sent]:
        for partition, (tags, batch) in self._inputs.part(start, stop).items():
            reader = self._readers.get(partition)
            if reader is not None:
                self._next[partition] = batch.offsets[-1] + 1
                reader.waiting.setdefault(partition, []).append((tags, batch))
        sent: list[Sent] = []
        state = random.getstate()
        try:
            while any(each.is_due for each in self.tasks) and self.failed is None:
                for each in self.tasks:
                    if each.is_due and self.failed is None:
                        random.seed(f"{self._seed} {start} {each.spec.task_id}")
                        self._process(each)
                        made = each.collector.take()
                        for record in made:
                            partition = TopicPartition(record.topic, record.partition)
                            if (reader := self._readers.get(partition)) is not None:
                                reader.arrived.setdefault(partition, []).append(record)
                        sent += made
        finally:
            random.setstate(state)
        return sent

    def _process(self, each: _Task) -> None:
        waiting, each.waiting = each.waiting, {}
        arrived, each.arrived = each.arrived, {}
        for partition, records in arrived.items():
            waiting.setdefault(partition, []).append(self._column(partition, records))
        task = each.task
        single = task.calls is not None or task.next_stream_time_punctuation is not None
        try:
            for partition, tags, batch in _runs(waiting, single=single):
                each.collector.reading(partition, tags, batch.offsets)
                self.now = max(self.now, batch.timestamps[0])
                task.add_records(partition, batch)
                while task.process(_ALL) or (task.calls is not None and self._finish_calls(each)):
                    pass
                if single:
                    task.punctuate_stream_time()
            task.punctuate_stream_time()
            task.prepare_commit()
            each.commits += 1
            task.post_commit(each.commits, {})
        except KStreamsError as error:
            position = error.record_position
            tag = None if position is None else each.collector.tag_of(position.topic, position.partition, position.offset)
            self.failed, self.failed_at = error, each.collector.last if tag is None else tag

    def _finish_calls(self, each: _Task) -> bool:
        """Run the calls of asynchronous nodes, and let the clock pass for those that take time; return whether any ended."""
        ended, until = False, self.now + _CALLS_MS
        due: int | None = self.now
        while due is not None:
            self.now = due
            while each.host.run_calls():
                ended = bool(each.task.replay()) or ended
            following = each.host.time_of_calls(until)
            due = following if following != due else None
        return ended

    def _column(self, partition: TopicPartition, sent: list[Sent]) -> Column:
        """Return records that tasks have sent as they are on the broker, by the order of their tags."""
        sent.sort(key=attrgetter("tag"))
        start = self._next.get(partition, self._start(partition).offset)
        self._next[partition] = start + len(sent)
        tags, _, keys, values, timestamps, headers, _ = zip(*sent, strict=True)
        offsets = list(range(start, start + len(sent)))
        return list(tags), RecordBatch(list(keys), list(values), list(timestamps), offsets, list(headers), partition.topic)

    def _start(self, partition: TopicPartition) -> StartOffset:
        return self._base.starts.get(partition) or StartOffset(0, OffsetMetadata())

    # ---- tasks

    def _prepared(self, spec: TaskSpec) -> TaskSpec:
        """Return a task whose effects stay here, and whose stores are all where they can be read."""
        stores = tuple(replace(builder, persistent=True, follows_default=False) for builder in spec.subtopology.stores)
        return replace(
            spec, subtopology=replace(spec.subtopology, nodes=tuple(self.given.quiet(spec.subtopology.nodes)), stores=stores)
        )

    def _open(self, spec: TaskSpec) -> _Task:
        host = self._host()
        environment = self._environment(spec, host)
        starts = {partition: self._start(partition) for partition in spec.partitions}
        collector = _Collector(self._topics)
        return _Task(spec, self._task(spec, environment, collector, host, starts, None), host, environment, collector)

    def _host(self) -> DriverHost:
        host = DriverHost(self._topics_config, lambda: self.now, results=self.given.results)
        self._undo.callback(host.close)
        return host

    @property
    def _topics_config(self) -> StreamsConfig:
        return self._topics.specs[0].config

    def _task(
        self,
        spec: TaskSpec,
        environment: Environment,
        collector: _Collector,
        host: DriverHost,
        starts: Mapping[TopicPartition, StartOffset],
        meter: TraceMeter | None,
    ) -> StreamTask:
        task = StreamTask(
            spec,
            environment=environment,
            collector=collector,
            wall_clock=lambda: self.now,
            global_stores=self._base.global_stores,
            meter=meter,
            by_record=True,
        )
        collector.record = task.record
        self._undo.callback(task.close)
        host.give(task)
        restore_progress(task, starts)
        task.initialize()
        task.pass_punctuations()
        return task

    def _trace(self) -> None:
        """Open the tasks again over the same stores, traced."""
        for each in self.tasks:
            plan = each.task.prepare_commit()
            each.task.post_commit(each.commits + 1, {})
            each.task.close()
            each.environment.recycle()
            entries = {**plan.metadata, STREAM_TIME: plan.stream_time}
            starts = {
                partition: StartOffset(
                    plan.offsets.get(partition, self._start(partition).offset),
                    OffsetMetadata(plan.partition_times.get(partition, -1), entries),
                )
                for partition in each.spec.partitions
            }
            each.meter, each.host = TraceMeter(), self._host()
            each.task = self._task(each.spec, each.environment, each.collector, each.host, starts, each.meter)

    def _environment(self, spec: TaskSpec, host: DriverHost) -> Environment:
        """Return the stores of a task, as the application had them."""
        base, partition = self._base, spec.task_id.partition
        wanted = {builder.name for builder in spec.subtopology.stores} - base.empty
        homes = {store: base.homes.get((store, partition)) for store in wanted}
        paths = {store: base.states[home] for store, home in homes.items() if home is not None and home in base.states}
        if not paths:
            return host.environment()
        main = max(set(paths.values()), key=list(paths.values()).count)
        environment = host.environment(main)
        for builder in spec.subtopology.stores:
            path = paths.get(builder.name)
            if path == main:
                continue
            engine = environment.engine(builder.name)
            for key in [key for key, _ in engine.range()]:
                engine.put(key, None)
            if path is not None:  # an edit moves the store to another sub-topology
                _copy_rows(path, builder.name, environment)
        environment.commit({}, max(environment.commit_id, 0))
        return environment


def own_topics(application: str, topology: Topology) -> set[str]:
    """Return the topics that an application writes itself and reads: internal ones, and outputs that are inputs, too."""
    nodes = topology.nodes.values()
    written = {node.topic for node in nodes if isinstance(node, SinkNode) and node.topic is not None}
    read = {topic for node in nodes if isinstance(node, SourceNode) for topic in node.topics}
    return {internal_topic(application, topic) for topic in topology.internal_topics} | (written & read)


def _copy_rows(path: Path, store: str, environment: Environment) -> None:
    other = open_lmdb(path)
    try:
        rows = list(other.engine(store).range())
        environment.engine(store).put_many([key for key, _ in rows], [value for _, value in rows])
    finally:
        other.close()


def _in_order(specs: Sequence[TaskSpec], topology: Topology, application: str) -> list[TaskSpec]:
    """Return the tasks so that one that writes a topic comes before those that read it, as far as there is such an order."""
    internal = topology.internal_topics
    parts = {spec.subtopology.id: spec.subtopology for spec in specs}
    reads = {number: {p.topic for spec in specs if spec.subtopology.id == number for p in spec.partitions} for number in parts}
    writes = {
        number: {
            internal_topic(application, node.topic) if node.topic in internal else node.topic
            for node in part.nodes
            if isinstance(node, SinkNode) and node.topic
        }
        for number, part in parts.items()
    }
    ordered: list[int] = []
    left = sorted(parts)
    while left:
        ready = [n for n in left if not any(writes[other] & reads[n] for other in left if other != n)]
        ordered.append(ready[0] if ready else left[0])
        left.remove(ordered[-1])
    return sorted(specs, key=lambda spec: (ordered.index(spec.subtopology.id), spec.task_id))


def _runs(
    waiting: Mapping[TopicPartition, list[Column]], *, single: bool
) -> Iterator[tuple[TopicPartition, list[int], RecordBatch]]:
    """Yield the records of several partitions in the order of their tags, consecutive ones of a partition together.

    Args:
        single: each record alone.
    """
    if len(waiting) == 1 and not single:
        ((partition, parts),) = waiting.items()
        if len(parts) == 1:
            yield partition, *parts[0]
            return
    order = sorted(
        (tag, number, part, row)
        for number, parts in enumerate(waiting.values())
        for part, (tags, _) in enumerate(parts)
        for row, tag in enumerate(tags)
    )
    partitions = list(waiting)
    at = 0
    while at < len(order):
        tag, number, part, row = order[at]
        count = 1
        while not single and at + count < len(order) and order[at + count][1:] == (number, part, row + count):
            count += 1
        partition = partitions[number]
        tags, batch = waiting[partition][part]
        yield partition, tags[row : row + count], batch.part(slice(row, row + count))
        at += count


class _Collector(DriverCollector):
    """Notes with which input record each record was sent."""

    direct = None  # type: ignore[assignment]  # a loop does not say which record it sends

    def __init__(self, topics: DriverTopics) -> None:
        super().__init__(topics)
        self._by_key = topics.partition_of
        self.partition_of = self._partition_of
        self.tags: list[int] = []
        self.record: RecordContext | None = None
        self.last = 0
        self._tags: dict[tuple[str, int], dict[int, int]] = {}

    def reading(self, partition: TopicPartition, tags: Sequence[int], offsets: Sequence[int]) -> None:
        """Take note of what the task is about to read."""
        self._tags[partition] = dict(zip(offsets, tags, strict=True))
        self.last = tags[-1]

    def tag_of(self, topic: str | None, partition: int, offset: int) -> int | None:
        tags = self._tags.get((topic or "", partition))
        return None if tags is None else tags.get(offset)

    def take(self) -> list[Sent]:
        """Return what was sent since the last call."""
        taken = [Sent(tag, *sent) for tag, sent in zip(self.tags, self.sent, strict=True)]
        self.tags.clear()
        self.sent.clear()
        return taken

    def _now(self) -> int:
        assert self.record is not None
        record = self.record.outer or self.record
        tag = self.tag_of(record.topic, record.partition, record.offset)
        return self.last if tag is None else tag

    def _partition_of(self, topic: str, key: bytes | None) -> int:
        """Return the partition by the key; a record without one goes where its input record's number says, the same on both sides."""
        if key is None:
            return self._now() % self.partitions(topic)
        return self._by_key(topic, key)

    def sender(self, topic: str, site: Site | None = None) -> Send:
        send, tags, now = super().sender(topic, site), self.tags, self._now

        def noted(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            tag = now()
            send(key, value, timestamp, headers, partition)
            tags.append(tag)

        return noted

    def rows(
        self, node: str, table: TableFiles, partition: int, misfit: Misfit, context: Callable[[], object] | None = None
    ) -> DriverRows:
        """Return what notes the rows of a sink that writes a table, as records without bytes."""
        rows = super().rows(node, table, partition, misfit, context)

        def noted(key: object, value: object, timestamp: int) -> None:
            self.tags.append(self._now())
            self.sent.append((f"{TABLE}{table.path}", own_copy(key), own_copy(value), timestamp, [], 0))

        rows.append = noted
        return rows
