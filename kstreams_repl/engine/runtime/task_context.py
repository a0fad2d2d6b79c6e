"""The state that all nodes of one task share: identity, stores, output, clocks, schedules. Nodes access it through their `TaskNode`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from kstreams_repl.engine import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.metrics.custom import StreamsMetrics
from kstreams_repl.engine.operators.batches.batch_operator import BatchOperator
from kstreams_repl.engine.operators.operator import NodeContext, Process
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.processor.processors import Cancellable
from kstreams_repl.engine.processor.punctuation import PunctuationType
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.runtime.batches.batch_mixing import Mixing, mixing_of
from kstreams_repl.engine.runtime.batches.batch_node import BatchNode
from kstreams_repl.engine.runtime.calls.async_calls import TaskCalls
from kstreams_repl.engine.runtime.calls.task_threads import TaskThreads
from kstreams_repl.engine.runtime.compiler.metering import Meter
from kstreams_repl.engine.runtime.compiler.tap_points import TapPoints
from kstreams_repl.engine.runtime.nodes.collector import RecordCollector
from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext, dead_letter_headers
from kstreams_repl.engine.runtime.nodes.node_counts import TaskCounts
from kstreams_repl.engine.runtime.operator_stream_times import Remembered
from kstreams_repl.engine.runtime.punctuation_queue import PunctuationQueue
from kstreams_repl.engine.runtime.queues.record_queue import StreamClock
from kstreams_repl.engine.runtime.task_tables import TaskTables
from kstreams_repl.engine.serdes.deferred import DeferredSerde
from kstreams_repl.engine.serdes.header_ids import as_received
from kstreams_repl.engine.serdes.schemas.schema_registry import settings_from
from kstreams_repl.engine.serdes.serde import Serde
from kstreams_repl.engine.topology.nodes import Node
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.system.errors import IllegalStateError
from kstreams_repl.system.types import Headers, TaskId


class TaskServices:
    """The shared state of one task (`engine.operators.operator.TaskContext` and more)."""

    def __init__(
        self,
        application_id: str,
        task_id: TaskId,
        *,
        config: StreamsConfig,
        collector: RecordCollector,
        wall_clock: Callable[[], int],
        global_stores: Mapping[str, object],
        internal_topics: frozenset[str],
        tap: Callable[[str], Process] | None = None,
        meter: Meter | None = None,
        by_record: bool = False,
        nodes: Sequence[Node] = (),
    ) -> None:
        self.application_id = application_id
        self.task_id = task_id
        self.config = config
        self.collector = collector
        self.wall_clock = wall_clock
        self.global_stores = global_stores
        self.internal_topics = internal_topics
        self.tap = tap
        self.points = TapPoints()
        """The points where a running task can be tapped."""
        self.row_serdes: dict[str, tuple[Serde, Serde]] = {}
        """The serdes of nodes that rows pass in serialized form."""
        self.meter = meter
        self.by_record = by_record
        self.record = RecordContext()
        self.no_headers: Headers | None = None
        """One empty list for all records without headers, if no node can add any (`StreamTask`)."""
        self.clock = StreamClock()
        self.stores: dict[str, Any] = {}
        self.dropped: dict[str, int] = {}
        self.tables = TaskTables()
        self.counts = TaskCounts(nodes)
        self.metrics = StreamsMetrics(config["metrics.recording.level"])
        self.make_state_dir: Callable[[], Path] | None = None
        """Creates the directory for processors' own files; set by the host before `initialize`."""
        self.shared: dict[str, Any] = {}
        self.metadata: dict[str, int] = {}
        self.remembered = Remembered()
        self.calls: TaskCalls | None = None
        """The calls of asynchronous nodes; None: the task has no such node."""
        self.threads: TaskThreads | None = None
        """The threads of functions; None: they run on the task's thread (`num.threads.per.task` = 1)."""
        if config["num.threads.per.task"] > 1:
            self.threads = TaskThreads(config["num.threads.per.task"], lambda node, error: self.handled(node, error))
        self.handled: Callable[[str, Exception], bool] = lambda node, error: False
        """Asks the processing exception handler about an error of a node; set by the task."""
        self.explain: Callable[[BaseException, str | None], Exception] = lambda error, node: RuntimeError(str(error))
        """Adds the current record's coordinates to an error; set by the task."""
        self.batches: dict[str, BatchNode] = {}
        """The nodes that take many records at once, parents first."""
        self.traced = False
        """Whether the task's location is followed record by record, to find the one at which a worker died."""
        self.mixes = False
        """Whether records of other partitions reach what is behind such a node, too."""
        self._nodes = {node.name: node for node in nodes}
        self.commit_requested = False
        self._registry = settings_from(config.client)
        self.stream_punctuations = PunctuationQueue()
        self.wall_punctuations = PunctuationQueue()
        self.init_callbacks: list[tuple[str, Callable[[], None]]] = []
        self.close_callbacks: list[tuple[str, Callable[[], None]]] = []
        self.window_callbacks: list[tuple[str, Callable[[], None]]] = []

    def drop(self, reason: str, node: str, needed_grace_ms: int = 0) -> None:
        """Count a dropped record by reason."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.counts.drop(node, reason, needed_grace_ms)

    def dropper(self, node: str) -> Callable[..., None]:
        """Return `drop` for one node."""

        def drop(reason: str, needed_grace_ms: int = 0) -> None:
            self.drop(reason, node, needed_grace_ms)

        return drop

    def error_context(self, node: str) -> ErrorContext:
        """Return the context of the current record for a handler."""
        record = self.record
        raw = as_received(record.raw_key, record.raw_value, record.headers)
        return ErrorContext(node, str(self.task_id), record.topic, record.partition, record.offset, record.timestamp, *raw)

    def dead_letter(self, context: ErrorContext, error: Exception) -> None:
        """Write a skipped source record to the dead-letter topic, if there is one, in the same commit as all other output."""
        topic = self.config["errors.dead.letter.queue.topic.name"]
        if topic is not None:
            send = self.collector.sender(topic)
            send(context.raw_key, context.raw_value, max(context.timestamp, 0), dead_letter_headers(context, error), None)

    def async_node(self, operator: StreamAsync, node: NodeContext, forward: Process) -> Process:
        """Return the entry of an asynchronous node."""
        if self.calls is None:
            self.calls = TaskCalls()
        name = node.name
        return self.calls.add(
            operator,
            node,
            forward,
            dead_letter=partial(self._dead_letter_of, name),
            handled=lambda error: self.handled(name, error),
        )

    def batch_node(self, operator: BatchOperator, node: NodeContext, forward: Process) -> Process:
        """Return the entry of a node that takes many records at once."""
        mixing = Mixing.RECORDS if self.traced else mixing_of(node.name, self._nodes)
        made = BatchNode(operator, node, forward, clock=self.clock, mixing=mixing, errors=self)
        self.batches = {node.name: made, **self.batches}  # nodes are built children first
        self.mixes = self.mixes or mixing is Mixing.QUEUES
        return made.enter

    def drain(self) -> bool:
        """Have every node forward the results of the records that wait in it; return whether any did in a batch node."""
        waited = False
        while True:
            if self.threads is not None:
                self.threads.drain()
            holding = [batch for batch in self.batches.values() if batch.holds]
            if not holding:
                return waited
            waited = True
            for batch in self.batches.values():
                batch.leave()

    def _dead_letter_of(self, node: str, error: Exception) -> bool:
        if self.config["errors.dead.letter.queue.topic.name"] is None:
            return False
        self.dead_letter(self.error_context(node), error)
        return True

    def metrics_of(self, node: str) -> StreamsMetrics:
        """Return the task's metrics, for one of its nodes."""
        return self.metrics

    def state_dir_of(self, node: str) -> Path:
        """Return the directory for files of the task's processors.

        Raises:
            IllegalStateError: the task has none.
        """
        if self.make_state_dir is None:
            raise IllegalStateError(f"{node} has no directory for files here", hint="call state_dir in init or later", node=node)
        return self.make_state_dir()

    def request_commit(self) -> None:
        self.commit_requested = True

    def key_serde(self, serde: object, topic: str | None = None) -> Serde:
        """Return the serde of a node's keys, for one topic."""
        return self._bound(serde or self.config["default.key.serde"], "key", topic)

    def value_serde(self, serde: object, topic: str | None = None) -> Serde:
        """Return the serde of a node's values, for one topic."""
        return self._bound(serde or self.config["default.value.serde"], "value", topic)

    def with_serdes(self, builder: StoreBuilder, changelog: str | None = None) -> StoreBuilder:
        """Return the builder with its serdes bound to the changelog; the store replaces None by its default."""
        return replace(
            builder,
            key_serde=builder.key_serde and self._bound(builder.key_serde, "key", changelog),
            value_serde=builder.value_serde and self._bound(builder.value_serde, "value", changelog),
        )

    def _bound(self, serde: object, part: Literal["key", "value"], topic: str | None) -> Serde:
        """Return the serde for a user's argument; a deferred one gets the application's default."""
        if isinstance(serde, DeferredSerde):
            bound = serde.bind(self.key_serde(None), self.value_serde(None))
        else:
            bound = serdes.resolve(serde)
        return bound.for_topic(topic, part, self._registry)

    def real_topic(self, topic: str) -> str:
        """Return the topic's name on the broker: internal topics have the application's id as prefix."""
        return f"{self.application_id}-{topic}" if topic in self.internal_topics else topic

    def schedule(
        self, node: str, interval: int, punctuation: PunctuationType, callback: Callable[[int], None], start: int | None
    ) -> Cancellable:
        """Schedule a punctuation. Stream time is aligned to 0 and due with the first record; wall clock is due one interval from now. A
        `start` in the past is advanced by whole intervals to the first time in the future (KIP-1146).
        """
        if punctuation is PunctuationType.STREAM_TIME:
            return self.stream_punctuations.schedule(start or 0, interval, node, callback)
        now = self.wall_clock()
        first = now + interval if start is None else start
        if first < now:
            first += ((now - first) // interval + 1) * interval
        return self.wall_punctuations.schedule(first, interval, node, callback)

    def on_close(self, node: str, callback: Callable[[], None]) -> None:
        self.close_callbacks.append((node, callback))

    def on_init(self, node: str, callback: Callable[[], None]) -> None:
        self.init_callbacks.append((node, callback))
