"""Global tables: every instance has all partitions of the topic and applies records on arrival, independent of stream time.

One `GlobalTask` runs all global sub-topologies of an application: a record enters its source and ends in a store that every task
can read. The deserialization handler decides about poison records, the processing handler about errors of processors if
``processing.exception.handler.global.enabled`` is set. Neither writes dead letters, because global tasks have no transaction (as
in Kafka Streams 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.processor.processors import Cancellable
from kstreams_repl.engine.processor.punctuation import PunctuationType
from kstreams_repl.engine.processor.record_context import NOWHERE
from kstreams_repl.engine.runtime.compiler.compile import compile_nodes
from kstreams_repl.engine.runtime.nodes.collector import Send, Site
from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext, Response, ask, resolve
from kstreams_repl.engine.runtime.task_context import TaskServices
from kstreams_repl.engine.serdes.header_ids import as_received, framing
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.topology.description.user_lines import user_line
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.system.errors import (
    CallError,
    KStreamsError,
    SchemaRegistryError,
    SerializationError,
    StreamsProcessingError,
    is_interrupt,
)
from kstreams_repl.system.types import RecordBatch, TaskId


class _NoOutput:
    """A collector without output: global nodes have no sinks and no changelogs."""

    def sender(self, topic: str, site: Site | None = None) -> Send:
        raise AssertionError(f"a global table cannot write to {topic}")

    def partitions(self, topic: str) -> int:
        return 0

    def partition_of(self, topic: str, key: bytes) -> int:
        return 0


class _GlobalServices(TaskServices):
    """Services of global tasks, which have no stream time and run no punctuations."""

    def schedule(
        self, node: str, interval: int, punctuation: PunctuationType, callback: Callable[[int], None], start: int | None
    ) -> Cancellable:
        raise CallError(
            f"{node} fills a global store and cannot schedule punctuations: they would never run",
            hint="schedule them in a stream processor, which may read the global store",
            node=node,
        )


    def metrics_of(self, node: str) -> NoReturn:
        raise CallError(
            f"{node} fills a global store and has no metrics of its own", hint="add the metric in a stream processor", node=node
        )


class GlobalTask:
    """All global stores of one instance.

    Args:
        subtopologies: the global sub-topologies.
        environment: their stores (one environment per instance).
    """

    def __init__(
        self,
        application_id: str,
        subtopologies: Sequence[Subtopology],
        *,
        config: StreamsConfig,
        environment: Environment,
        wall_clock: Callable[[], int],
    ) -> None:
        nodes = [node for sub in subtopologies for node in sub.nodes]
        self._deserialization_handler = resolve(config["deserialization.exception.handler"], "deserialization.exception.handler")
        asked = config["processing.exception.handler"] if config["processing.exception.handler.global.enabled"] else None
        self._processing_handler = resolve(asked, "processing.exception.handler")
        self.environment = environment
        self.services = _GlobalServices(
            application_id,
            TaskId(-1, -1),
            config=config,
            collector=_NoOutput(),
            wall_clock=wall_clock,
            global_stores={},
            internal_topics=frozenset(),
            nodes=nodes,
        )
        self._builders = {builder.name: builder for sub in subtopologies for builder in sub.stores}
        owners = {store: node.name for node in nodes for store in getattr(node, "stores", ())}
        for builder in self._builders.values():
            self.services.stores[builder.name] = open_store(
                self.services.with_serdes(builder, builder.source_topic),
                environment,
                record_context=self.services.record,
                send=None,
                cache=None,
                defaults=(self.services.key_serde(None), self.services.value_serde(None)),
                on_dropped=self.services.dropper(owners.get(builder.name, nodes[-1].name)),
                suppress_changelog=True,
            )
        entries, _ = compile_nodes(nodes, self.services, None)
        self._entered = {node.name: 0 for node in nodes if isinstance(node, SourceNode)}
        self.services.counts.entered = {name: partial(self._entered.__getitem__, name) for name in self._entered}
        self.counts, self.dropped = self.services.counts, self.services.dropped
        self._sources = {
            topic: (node, entries[node.name]) for node in nodes if isinstance(node, SourceNode) for topic in node.topics
        }
        self.services.record.restore(NOWHERE)
        for node, callback in self.services.init_callbacks:
            try:
                callback()
            except KStreamsError:
                raise
            except BaseException as error:
                if is_interrupt(error):
                    raise
                raise _processing_error(error, node, "its init") from error
        self.services.record.known = True

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._sources)

    @property
    def stores(self) -> Mapping[str, Any]:
        return self.services.stores

    def update(self, topic: str, partition: int, batch: RecordBatch) -> None:
        """Apply records of one partition, in offset order."""
        node, enter = self._sources[topic]
        services, record = self.services, self.services.record
        key_serde, value_serde = services.key_serde(node.key_serde), services.value_serde(node.value_serde)
        de_key, de_value = key_serde.deserialize, value_serde.deserialize
        if batch.headers is not None and (frame := framing(key_serde, value_serde)) is not None:
            batch = frame(batch)
        headers = batch.headers or [None] * len(batch)
        for raw_key, raw_value, ts, offset, row in zip(
            batch.keys, batch.values, batch.timestamps, batch.offsets, headers, strict=True
        ):
            try:
                key, value = de_key(raw_key), de_value(raw_value)
            except BaseException as error:
                poison = ErrorContext(node.name, "global", topic, partition, offset, ts, *as_received(raw_key, raw_value, row or []))
                self._on_poison(poison, error)
                continue
            record.topic, record.partition, record.offset, record.timestamp, record.headers = (
                topic,
                partition,
                offset,
                ts,
                row or [],
            )
            services.clock.now = max(services.clock.now, ts)
            self._entered[node.name] += 1
            try:
                enter(key, value, ts, record.headers)
            except BaseException as error:
                raw = as_received(raw_key, raw_value, record.headers)
                self._on_error(ErrorContext(node.name, "global", topic, partition, offset, ts, *raw), error)
        record.restore(NOWHERE)

    def _on_poison(self, context: ErrorContext, error: BaseException) -> None:
        if is_interrupt(error) or isinstance(error, SchemaRegistryError):
            raise error
        handler = self._deserialization_handler
        if handler is not None and isinstance(error, Exception):  # handlers are not called for sys.exit() and the like
            if ask(handler, context, error, "deserialization.exception.handler") is Response.CONTINUE:
                self.services.drop("deserialization", context.node or "")
                return
        reason = error.message if isinstance(error, KStreamsError) else str(error)
        raise SerializationError(
            f"{context.node} cannot read the record of a global table at {context.topic}-{context.partition} offset {context.offset}: "
            f"{reason}",
            hint="fix the serde or the producer, or set deserialization.exception.handler to 'continue'",
            node=context.node,
            topic=context.topic,
            partition=context.partition,
            offset=context.offset,
        ) from error

    def _on_error(self, context: ErrorContext, error: BaseException) -> None:
        if is_interrupt(error):
            raise error
        handler = self._processing_handler
        if handler is not None and isinstance(error, Exception):
            if ask(handler, context, error, "processing.exception.handler") is Response.CONTINUE:
                self.services.drop("processing", context.node or "")
                return
        line = user_line(error)
        raise StreamsProcessingError(
            f"{type(error).__name__}: {error}"
            + (f"\n  {line}" if line else "")
            + f"\n  in a global store's processor, at {context.topic}-{context.partition} offset {context.offset}",
            hint="fix the function, or set processing.exception.handler to 'continue' and processing.exception.handler.global.enabled",
            node=context.node,
            topic=context.topic,
            partition=context.partition,
            offset=context.offset,
            user_line=line,
        ) from error

    def commit(self, positions: Mapping[str, int], commit_id: int) -> None:
        """Commit the applied records to the local stores, with their positions (topic-partition -> next offset)."""
        for store in self.services.stores.values():
            store.flush()
        self.environment.commit(positions, commit_id)

    def close(self) -> None:
        """Close processors and stores; every close is attempted even if one fails."""
        failed: Exception | None = None
        for node, callback in self.services.close_callbacks:
            try:
                callback()
            except BaseException as error:  # the first one is raised below, after all others are closed
                if is_interrupt(error):
                    raise
                if failed is None:
                    failed = _processing_error(error, node, "its close")
                    failed.__cause__ = error
        for store in self.services.stores.values():
            try:
                store.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed


def _processing_error(error: BaseException, node: str, when: str) -> StreamsProcessingError:
    line = user_line(error)
    return StreamsProcessingError(
        f"{type(error).__name__}: {error}" + (f"\n  {line}" if line else "") + f"\n  in node {node} of a global store, at {when}",
        hint="fix the function and deploy again",
        node=node,
        user_line=line,
    )
