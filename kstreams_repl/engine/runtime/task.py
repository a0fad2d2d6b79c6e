"""One task: a sub-topology over one group of partitions. Sans-IO: records, a clock and stores come in; effects go out.

Actors: the `PartitionGroup` (chooses the next record), the compiled nodes, the stores in their environment, the `RecordCollector`.
What a host calls, on one thread, is `StreamTask`; a contract and a test hold that it reaches nothing behind it. In: `attach`, `set_*`,
`initialize`, `add_records`. At work: `process`, `replay`, `punctuate_*`, `close_windows`. Out: records through the collector,
`prepare_commit` and `post_commit` as part of the commit protocol, `close`. To look at: `queues`, `record`, `counts`, `dropped`, `metrics`,
`taps`. Invariants: records are processed in Kafka Streams' order; after an error nothing is processed or committed; `close` may be called
in any state. Source: Kafka Streams' StreamTask, KIP-28.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from kstreams_repl.engine.config import SKIPPED_RECORDS, StreamsConfig
from kstreams_repl.engine.metrics.custom import StreamsMetrics
from kstreams_repl.engine.operators.aggregates.stream_aggregate import StreamCount
from kstreams_repl.engine.operators.operator import Operator, Process
from kstreams_repl.engine.processor.record_context import NOWHERE
from kstreams_repl.engine.runtime.calls.async_calls import TaskCalls
from kstreams_repl.engine.runtime.calls.call import CallRunner
from kstreams_repl.engine.runtime.calls.task_threads import AHEAD, Submit
from kstreams_repl.engine.runtime.compiler.compile import Tap, children_of, compile_nodes, may_touch_headers, node_of_line
from kstreams_repl.engine.runtime.compiler.crash_trace import Trace, traced
from kstreams_repl.engine.runtime.compiler.loop_codegen import Fused, fuse_source
from kstreams_repl.engine.runtime.compiler.metering import Meter
from kstreams_repl.engine.runtime.compiler.tap_points import TapPoint, sends_changes
from kstreams_repl.engine.runtime.metadata_names import WAITING, WINDOWS_CLOSED
from kstreams_repl.engine.runtime.nodes.collector import RecordCollector, senders_of
from kstreams_repl.engine.runtime.nodes.handlers import resolve
from kstreams_repl.engine.runtime.nodes.source import CompiledSource
from kstreams_repl.engine.runtime.queues.columnar_queue import LOOP_THRESHOLD, FusedQueue
from kstreams_repl.engine.runtime.queues.partition_group import FOREVER as FOREVER
from kstreams_repl.engine.runtime.queues.partition_group import PartitionGroup
from kstreams_repl.engine.runtime.queues.record_queue import RecordQueue
from kstreams_repl.engine.runtime.record_spans import RecordSpans, Tracer
from kstreams_repl.engine.runtime.task_context import TaskServices
from kstreams_repl.engine.runtime.task_errors import TaskErrors, of_the_user
from kstreams_repl.engine.serdes.serde import Serde
from kstreams_repl.engine.stores.cache.record_cache import RecordCache
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.topology.nodes import ProcessorNode, SourceNode
from kstreams_repl.engine.topology.subtopologies import Subtopology, with_default_stores
from kstreams_repl.system.errors import KStreamsError, is_interrupt
from kstreams_repl.system.types import RecordBatch, RecordPosition, TaskId, TopicPartition


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What a commit writes for one task.

    Attributes:
        offsets: the next offset of each input partition that has been read from.
        partition_times: the partition time for each offset (written into the offset metadata).
        stream_time: the task's stream time.
        metadata: processor metadata (written into the offset metadata of every partition, as in Kafka Streams).
    """

    offsets: Mapping[TopicPartition, int]
    partition_times: Mapping[TopicPartition, int]
    stream_time: int
    metadata: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """All that a host needs to create a task; equal for all partitions except for `task_id` and `partitions`."""

    application_id: str
    subtopology: Subtopology
    task_id: TaskId
    partitions: Mapping[TopicPartition, str]
    """Input partition -> name of its source node."""
    config: StreamsConfig
    internal_topics: frozenset[str] = field(default_factory=frozenset)
    """Topics of the topology that have the application's id as prefix on the broker."""

    def __post_init__(self) -> None:
        settings = self.config["default.dsl.store"], self.config["dsl.store.format"]
        object.__setattr__(self, "subtopology", with_default_stores(self.subtopology, *settings))


class NodeTaps(NamedTuple):
    """Where the output of a node can be observed.

    Attributes:
        changes: its values are a table's ``(new, old, is_latest)``.
        serdes: of the rows that pass it in serialized form.
    """

    points: Sequence[TapPoint]
    changes: bool
    serdes: tuple[Serde, Serde] | None


class StreamTask:
    """A running task.

    Args:
        spec: the task's description.
        environment: the task's stores (`engine.stores.engine`), open and owned.
        collector: receives output and changelog records.
        wall_clock: returns ms; the only clock the task uses.
        global_stores: stores of global tables, shared and read-only.
        exact_cache: reads count as use of a cached entry, as in Kafka Streams (the test driver); a deployed task saves that cost.
        loop_threshold: minimum number of records for which a source's loop is used (`engine.runtime.queues.columnar_queue`).
        tap: returns an observer for each node's output, to inspect records between nodes (`engine.runtime.compiler.compile.Tap`); None
            costs nothing.
        meter: counts what passes nodes and stores (`engine.runtime.compiler.metering`); None costs nothing.
        by_record: send every record under the context of its source record, never rows in columns, so that a rejected one is found.
        trace: receives the task's location, step by step (`engine.runtime.compiler.crash_trace`); None costs nothing.
        tracer: makes spans of sampled records (`engine.runtime.record_spans`); None costs nothing.

    Attributes:
        on_punctuation: called before a punctuation runs.
        record: coordinates of the record that is being processed.
        counts: records that entered and left each node.
        calls: the calls of the asynchronous nodes; None: the task has no such node.
        cache: the record cache of its stores.
    """

    def __init__(
        self,
        spec: TaskSpec,
        *,
        environment: Environment,
        collector: RecordCollector,
        wall_clock: Callable[[], int],
        global_stores: Mapping[str, object] | None = None,
        exact_cache: bool = False,
        loop_threshold: int = LOOP_THRESHOLD,
        tap: Tap | None = None,
        meter: Meter | None = None,
        by_record: bool = False,
        trace: Trace | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.spec = spec
        self.id = spec.task_id
        self.on_punctuation: Callable[[], None] | None = None
        self._trace, self._loop_threshold = trace, loop_threshold
        self._work: list[str | None] = [None]
        self.environment = environment
        self.services = TaskServices(
            spec.application_id,
            spec.task_id,
            config=spec.config,
            collector=collector if meter is None else meter.collector(collector),
            wall_clock=wall_clock,
            global_stores=global_stores or {},
            internal_topics=spec.internal_topics,
            tap=tap,
            meter=meter,
            nodes=spec.subtopology.nodes,
            by_record=by_record
            or resolve(spec.config["production.exception.handler"], "production.exception.handler") is not None,
        )
        self.record, self.wall_clock, self.meter = self.services.record, wall_clock, meter
        if meter is not None:
            meter.bind(self.services)
        self.cache = RecordCache(spec.config["statestore.cache.max.bytes"], exact=exact_cache)
        handler = resolve(spec.config["processing.exception.handler"], "processing.exception.handler")
        self.errors = TaskErrors(self.services, spec.subtopology.nodes, handler)
        self.services.handled, self.services.explain = self.errors.handled, self.errors.explain
        self.services.traced = trace is not None
        self._closed = False
        if tap is None and self.errors.handler is None and not any(map(may_touch_headers, spec.subtopology.nodes)):
            self.services.no_headers = []
        self._open_stores()
        guarded = self.errors.handler is not None or trace is not None
        self.entries, self.errors.codes = compile_nodes(spec.subtopology.nodes, self.services, self._guard if guarded else None)
        self.group = PartitionGroup(self._queues(), self.services.clock, spec.config["max.task.idle.ms"])
        if tracer is not None:
            spans = RecordSpans(tracer, str(spec.task_id), spec.subtopology.nodes, self.services.points, self.services.stores)
            for queue in self.queues.values():
                queue.spans = spans
        self.counts = self.services.counts
        for source in set(spec.partitions.values()):
            partitions = [partition for partition, name in spec.partitions.items() if name == source]
            self.counts.entered[source] = partial(self.group.entered, partitions)

    def attach(
        self,
        *,
        state_dir: Callable[[], Path],
        runner: Callable[[], CallRunner] | None = None,
        submit: Callable[[], Submit] | None = None,
        metrics: StreamsMetrics | None = None,
    ) -> None:
        """Give the task what its nodes need from the host. Call it before `initialize`.

        Args:
            state_dir: creates the directory for processors' own files.
            runner: returns the runner of asynchronous nodes; called if there are any.
            submit: returns what starts a function on a thread; called if the task has threads.
            metrics: the metrics of processors; None = the task's own.
        """
        self.services.make_state_dir = state_dir
        if metrics is not None:
            self.services.metrics = metrics
        if self.calls is not None and runner is not None:
            self.calls.attach(runner())
        if self.services.threads is not None and submit is not None:
            self.services.threads.submit = submit()

    def initialize(self) -> None:
        """Run the processors' `init` in topology order. Call it once, after the stores are restored and before the first record."""
        self.services.record.restore(NOWHERE)
        self.services.remembered.restore(self.services.metadata)
        self.services.metadata.pop(WAITING, None)  # counted again at each commit
        for node, callback in self._in_order(self.services.init_callbacks):
            self._call(node, callback, "its init")
        self.services.record.known = True
        if self.calls is not None:
            self.calls.open()

    # ---- input -----------------------------------------------------------------------------------------------------------------

    def add_records(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """Append records of one input partition; raises for a poison head if the deserialization handler returns FAIL."""
        self.errors.check()
        try:
            self.group.add(partition, batch)
        except KStreamsError as error:
            self.errors.failure = error
            raise

    def set_lag(self, partition: TopicPartition, lag: int | None) -> None:
        """Set how many records the broker has after those that were added (see `max.task.idle.ms`); None = unknown."""
        self.group.set_lag(partition, lag)

    def set_partition_time(self, partition: TopicPartition, partition_time: int, stream_time: int = -1) -> None:
        """Restore the partition time, and the task's stream time, that were committed with the offset."""
        self.group.queues[partition].partition_time = partition_time
        self.services.clock.now = max(self.services.clock.now, partition_time, stream_time)

    def set_metadata(self, metadata: Mapping[str, int]) -> None:
        """Restore committed processor metadata; call it before `initialize`. Of several partitions the largest number counts."""
        kept = self.services.metadata
        for name, number in metadata.items():
            kept[name] = max(number, kept.get(name, number))

    @property
    def closed_run(self) -> int | None:
        """The bounded run at whose end the task closed its windows last."""
        return self.services.metadata.get(WINDOWS_CLOSED)

    @property
    def queues(self) -> Mapping[TopicPartition, RecordQueue]:
        """The queue of each input partition."""
        return self.group.queues

    @property
    def head_time(self) -> int | None:
        """Timestamp of the next record; None if there is none."""
        return self.group.head_time

    @property
    def next_record(self) -> RecordPosition | None:
        """Position of the record that `process` takes next; None if there is none."""
        queue = self.group.first
        return None if queue is None else RecordPosition(*queue.partition, queue.head_offset)

    def has_before(self, before: int) -> bool:
        """Return whether a record of an earlier event time waits."""
        return self.group.has_before(before)

    @property
    def stream_time(self) -> int:
        return self.services.clock.now

    @property
    def buffered(self) -> int:
        """Records waiting in the queues."""
        return self.group.buffered

    @property
    def buffered_bytes(self) -> int:
        """Size in bytes of the batches in the queues; 0 if the batches do not know it (`RecordBatch.size_bytes`)."""
        return self.group.buffered_bytes

    # ---- processing ------------------------------------------------------------------------------------------------------------

    def process(self, max_records: int = 1, before: int = FOREVER) -> int:
        """Process up to `max_records` records in order; return how many were processed (0: nothing is ready).

        Args:
            before: event time that is not processed now (`host.instance.polling.alignment`).

        Raises:
            StreamsProcessingError: a user function raised; the task must not be used or committed any more.
        """
        self.errors.check()
        group, done = self.group, 0
        if self.calls is not None:
            done = self.replay()
            max_records = done + min(max_records, self.calls.room())
        wall_clock = self.services.wall_clock
        try:
            while done < max_records and group.ready(wall_clock()) and group.has_before(before):
                if self.services.mixes:
                    self.services.drain()
                done += group.run(max_records - done, before)
            self.services.drain()
        except BaseException as error:  # sys.exit() in a user function is also an error of that function
            self.errors.fail(error, None)
        return done

    def replay(self) -> int:
        """Replay the results of asynchronous nodes that have arrived; return how many."""
        calls = self.calls
        if calls is None:
            return 0
        self.errors.check()
        try:
            return calls.pump()
        except BaseException as error:
            self.errors.fail(error, calls.replaying)

    @property
    def calls(self) -> TaskCalls | None:
        return self.services.calls

    @property
    def least_slice(self) -> int:
        """Records that `process` must take at least for all threads of the task to work."""
        return 1 if self.services.threads is None else self.services.threads.threads * AHEAD

    def punctuate_stream_time(self) -> bool:
        """Run the stream-time punctuations that are due; return True if any ran."""
        now = self.services.clock.now
        return now >= 0 and self.services.stream_punctuations.punctuate(now, self._punctuate)

    @property
    def next_stream_time_punctuation(self) -> int | None:
        """Return when the next stream-time punctuation is due (ms), None when nothing is scheduled."""
        return self.services.stream_punctuations.next_due

    def pass_punctuations(self) -> None:
        """Take the stream-time punctuations up to the restored stream time as done. Call it after `initialize`, for a copy of a task
        that ran on: a task that really starts anew runs them with its first record."""
        self.services.stream_punctuations.punctuate(self.services.clock.now, lambda node, callback, now: None)

    def punctuate_wall_clock(self, activity: int | None = None) -> bool:
        """Run the wall-clock punctuations that are due, those with `activity` only that saw less of it; return True if any ran."""
        return self.services.wall_punctuations.punctuate(self.services.wall_clock(), self._punctuate, activity)

    def punctuate_wall_clock_at(self, now: int) -> bool:
        """Run each wall-clock punctuation as if it were due at a time; return True if any ran. For a copy of a task, once."""
        return self.services.wall_punctuations.punctuate(FOREVER, lambda node, callback, due: self._punctuate(node, callback, now))

    @property
    def next_wall_clock_punctuation(self) -> int | None:
        """Return when the next wall-clock punctuation is due (ms), None when nothing is scheduled."""
        return self.services.wall_punctuations.next_due

    def close_windows(self, run: int) -> None:
        """At the end of a bounded run, emit what waits in open windows, in topology order, and advance the operators' own stream
        times to the end of those windows. The task's own stream time stays, so no punctuation runs."""
        self.errors.check()
        for node, callback in self._in_order(self.services.window_callbacks):
            self._flush()  # results that are still in a cache upstream
            self.services.record.timestamp = max(self.services.clock.now, 0)  # the timestamp with which plain stores log
            self._call(node, callback, "the end of a bounded run, which closes windows")
        self.services.metadata[WINDOWS_CLOSED] = run

    # ---- commit ----------------------------------------------------------------------------------------------------------------

    @property
    def commit_requested(self) -> bool:
        return self.services.commit_requested

    def prepare_commit(self) -> CommitPlan:
        """Step 2 of the commit protocol: flush the caches until nothing is dirty (may forward and send); return what to commit."""
        self.errors.check()
        self._flush()
        queues = self.group.queues.items()
        offsets = {partition: offset for partition, queue in queues if (offset := queue.resume_offset) is not None}
        self._stage_tables(offsets)
        waiting = {WAITING: self.calls.waiting} if self.calls is not None and self.calls.waiting else {}
        return CommitPlan(
            offsets,
            {partition: queue.partition_time for partition, queue in queues},
            self.services.clock.now,
            {**self.services.metadata, **self.services.remembered.read(), **waiting},
        )

    def _flush(self) -> None:
        name = ""
        try:
            while True:
                for name, store in self.services.stores.items():
                    if self._trace is not None:
                        self._trace_on(self._owner_of(name))
                    store.flush()
                if not self.services.drain() and not self.cache.dirty:
                    break
            if self.calls is not None:
                self.calls.write()
        except BaseException as error:
            self.services.record.restore(NOWHERE)
            self.errors.fail(error, self._owner_of(name), "a commit, which flushes the stores")
        self.services.record.restore(NOWHERE)

    def _stage_tables(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Stage the rows of sinks that write tables; their heads are committed as processor metadata."""
        try:
            self.services.tables.convert()
        except BaseException as error:
            self.errors.fail(error, None)
        self.services.tables.stage(offsets, self.services.metadata)

    def recover_tables(self) -> None:
        """Continue the tables from the committed heads; call it after `set_metadata`."""
        self.services.tables.recover(self.services.metadata)

    @property
    def tables_have_caught_up(self) -> bool:
        """Whether the tables have all committed rows, and the last commit does not say so."""
        return self.services.tables.have_caught_up(self.services.metadata)

    def tables_committed(self) -> None:
        """Take note that the commit succeeded, so that staged rows may enter their tables."""
        self.services.tables.committed()

    def post_commit(self, commit_id: int, changelog_positions: Mapping[str, int]) -> None:
        """Step 5: commit the local stores with their positions, atomically."""
        self.services.commit_requested = False
        self.environment.commit(changelog_positions, commit_id)

    def put_off_commit(self) -> None:
        """Defer step 5: a later `post_commit` commits the local stores for this commit too (`Environment.put_off`)."""
        self.services.commit_requested = False
        self.environment.put_off()

    def close(self) -> None:
        """Run the processors' `close` in topology order and close the stores; idempotent; every close is attempted even if one fails."""
        if self._closed:
            return
        self._closed = True
        errors: list[Exception] = []
        self.services.record.restore(NOWHERE)
        for node, callback in self._in_order(self.services.close_callbacks):
            try:
                callback()
            except BaseException as error:  # the first one is raised below, after all others are closed
                if is_interrupt(error):
                    raise
                errors.append(self.errors.explain(error, node, "its close"))
                errors[-1].__cause__ = error
        for store in self.services.stores.values():
            try:
                store.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    # ---- inside ----------------------------------------------------------------------------------------------------------------

    @property
    def stores(self) -> dict[str, Any]:
        return self.services.stores

    @property
    def metrics(self) -> StreamsMetrics:
        """The metrics of the task's processors."""
        return self.services.metrics

    def taps(self, node: str) -> NodeTaps | None:
        """Return where the output of a node can be observed; None: the task has no such node."""
        nodes = {each.name: each for each in self.spec.subtopology.nodes}
        if node not in nodes:
            return None
        return NodeTaps(self.services.points.of(node), sends_changes(nodes[node]), self.services.row_serdes.get(node))

    @property
    def dropped(self) -> dict[str, int]:
        """Dropped records by reason."""
        return self.services.dropped

    def changelog_topic(self, store: str) -> str:
        return f"{self.spec.application_id}-{store}-changelog"

    def _open_stores(self) -> None:
        services, partition, config = self.services, self.id.partition, self.spec.config
        emits_always = self.cache.max_bytes > 0 and config["repl.emit.cached"] == "always"
        counts = _stores_of_counts(self.spec.subtopology)
        for builder in self.spec.subtopology.stores:
            logged = builder.logging and builder.source_topic is None
            changelog = self.changelog_topic(builder.name) if builder.source_topic is None else services.real_topic(builder.source_topic)
            send, send_many = senders_of(services.collector, changelog) if logged else (None, None)
            services.stores[builder.name] = open_store(
                services.with_serdes(builder, changelog),
                self.environment,
                record_context=services.record,
                send=send,  # type: ignore[arg-type]
                send_many=send_many,
                partition=partition,
                cache=self.cache if builder.caching and not emits_always else None,
                write_at_once=self.errors.handler is not None and builder.name not in counts,
                defaults=(services.key_serde(None, changelog), services.value_serde(None, changelog)),
                on_dropped=services.dropper(self._owner_of(builder.name) or ""),
                suppress_changelog=config["repl.changelog.suppression"] or (builder.caching and emits_always),
            )
            if services.meter is not None:
                services.meter.store(builder, services.stores[builder.name])

    def _queues(self) -> list[RecordQueue]:
        sources = {node.name: node for node in self.spec.subtopology.nodes if isinstance(node, SourceNode)}
        handler = resolve(self.spec.config["deserialization.exception.handler"], "deserialization.exception.handler")
        compiled = {name: CompiledSource(node, self.entries[name], self.services, handler, self._trace) for name, node in sources.items()}
        loops = {name: self._loop_of(source) for name, source in compiled.items()}
        record, clock, watched = self.services.record, self.services.clock, self.services.points.watched
        threshold = self._loop_threshold
        positions = [RecordPosition.parse(text) for text in self.spec.config[SKIPPED_RECORDS].split(",") if text]
        skipped = {
            partition: frozenset(position.offset for position in positions if position[:2] == partition)
            for partition in self.spec.partitions
        }
        return [
            RecordQueue(partition, compiled[name], record, clock, skipped[partition])
            if (loop := loops[name]) is None
            else FusedQueue(partition, compiled[name], record, clock, skipped[partition], fused=loop, watched=watched, threshold=threshold)
            for partition, name in self.spec.partitions.items()
        ]

    def _loop_of(self, source: CompiledSource) -> Fused | None:
        """Return the source's generated loop, unless something must be observed or handled record by record."""
        services = self.services
        seen = services.tap is not None or services.meter is not None or services.by_record or self._trace is not None
        if seen or self.errors.handler is not None or source.times is None:
            return None
        children = children_of(self.spec.subtopology.nodes)
        return fuse_source(
            source.name,
            children[source.name],
            children,
            self.entries,
            key_serde=source.key_serde,
            value_serde=source.value_serde,
            services=services,
        )

    def _punctuate(self, node: str, callback: Callable[[int], None], now: int) -> None:
        self.services.record.restore(NOWHERE)
        self.services.record.timestamp = now  # the timestamp with which plain stores log
        if self.on_punctuation is not None:
            self.on_punctuation()
        if self.errors.handler is None:
            self._call(node, lambda: callback(now))
            return
        try:
            self._trace_on(node)
            callback(now)
        except BaseException as error:
            if not isinstance(error, Exception) or not of_the_user(error):
                self.errors.fail(error, node)
            self.errors.decide(node, error)

    def _call(self, node: str, work: Callable[[], None], otherwise: str = "a punctuation") -> None:
        try:
            self._trace_on(node)
            work()
        except BaseException as error:
            self.errors.fail(error, node, otherwise)

    def node_at(self, frame: FrameType | None) -> str | None:
        """Return the node whose entry is innermost on a stack."""
        while frame is not None:
            node = node_of_line(frame.f_code, frame.f_lineno, self.errors.codes)
            if node is not None:
                return node
            frame = frame.f_back
        return None

    def _in_order(self, callbacks: Iterable[tuple[str, Callable[[], None]]]) -> list[tuple[str, Callable[[], None]]]:
        """Return the callbacks of nodes in topology order."""
        order = {node.name: index for index, node in enumerate(self.spec.subtopology.nodes)}
        return sorted(callbacks, key=lambda entry: order[entry[0]])

    def _trace_on(self, node: str | None) -> None:
        if self._trace is not None:
            self._work[0], record = node, self.services.record
            self._trace.at(node, record.topic, record.partition, record.offset)

    def _owner_of(self, store: str) -> str | None:
        return next((node.name for node in self.spec.subtopology.nodes if store in getattr(node, "stores", ())), None)

    def _guard(self, node: str, entry: Process) -> Process:
        handled = entry if self.errors.handler is None else self.errors.guarded(node, entry)
        return handled if self._trace is None else traced(self._trace, node, handled, self.services.record, self._work)


def _stores_of_counts(subtopology: Subtopology) -> set[str]:
    """Return the stores of 64-bit counts; their values can always be serialized."""
    operators: list[Any] = [node.operator for node in subtopology.nodes if isinstance(node, ProcessorNode)]
    ours: list[Any] = [operator for operator in operators if isinstance(operator, Operator)]
    return {each.store for each in ours if isinstance(each, StreamCount) or getattr(each, "count", False) is True}


TOTALS: dict[str, Callable[[StreamTask], int]] = {
    "dropped-records": lambda task: sum(task.dropped.values()),
    "enforced-processing": lambda task: task.group.enforced,
}
"""Metrics of a task with a rate and a total, by the name of their sensor: what instances and the test driver read at each commit."""
