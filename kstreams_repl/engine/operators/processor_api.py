"""Runs a user's processor as an operator: adapts closures of four arguments to the records of the Processor API."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kstreams_repl.engine.metrics.custom import StreamsMetrics
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.processor.processors import Cancellable
from kstreams_repl.engine.processor.punctuation import PunctuationType, checked_schedule
from kstreams_repl.engine.processor.record import FixedKeyRecord, Record, sharing
from kstreams_repl.system.durations import Millis
from kstreams_repl.system.errors import CallError, TopologyError
from kstreams_repl.system.types import Headers, ProcessorSupplier, RecordMetadata, TaskId, is_async

if TYPE_CHECKING:
    from kstreams_repl.engine.config import StreamsConfig


@dataclass(slots=True)
class ProcessorOperator(Operator):
    """Run a new processor of `supplier` in each task.

    Attributes:
        supplier: callable without arguments that returns a `Processor`.
    """

    role = "processor"

    shows_headers: ClassVar[bool] = True
    hands_on: ClassVar[bool] = True

    supplier: ProcessorSupplier

    def build(self, node: NodeContext, forward: Process) -> Process:
        return _run(self.supplier, node, forward, Record)


@dataclass(slots=True)
class FixedKeyProcessorOperator(Operator):
    """Run a new `FixedKeyProcessor` of `supplier` in each task (`process_values`)."""

    role = "processor"

    shows_headers: ClassVar[bool] = True
    hands_on: ClassVar[bool] = True

    supplier: ProcessorSupplier

    def build(self, node: NodeContext, forward: Process) -> Process:
        return _run(self.supplier, node, forward, FixedKeyRecord)


def supplied(supplier: ProcessorSupplier, node: str, method: str) -> Any:
    """Return a new processor (or transformer) for a task.

    Raises:
        TopologyError: the supplier raises, returns an object without the method, or returns the same object each time, which tasks
            would share.
    """
    hint = "pass the class, or a function that returns a new processor each time: lambda: MyProcessor(...)"
    try:
        made = supplier()
        shared = not isinstance(supplier, type) and made is not None and supplier() is made
    except Exception as cause:
        raise TopologyError(f"the supplier of {node} raised {type(cause).__name__}: {cause}", hint=hint, node=node) from cause
    if not callable(getattr(made, method, None)):
        raise TopologyError(f"the supplier of {node} returned {made!r}, which has no {method}()", hint=hint, node=node)
    arguments = ("record",) if method == "process" else ("key", "value")
    with suppress(ValueError):  # some built-in functions have no signature
        try:
            inspect.signature(getattr(made, method)).bind(*arguments)
        except TypeError as cause:
            raise TopologyError(
                f"{method}() of the {type(made).__name__} that the supplier of {node} returned must take {len(arguments)} arguments "
                f"({', '.join(arguments)}): {cause}",
                hint=f"def {method}(self, {', '.join(arguments)}); pass KIP-28's processors as a class or ProcessorDef to process()",
                node=node,
            ) from cause
    if is_async(getattr(made, method)):
        raise TopologyError(
            f"the supplier of {node} returned a {type(made).__name__}, whose {method}() is async: nothing would await it",
            hint=f"use process_async(), or write {method} with def instead of async def",
            node=node,
        )
    if shared:
        raise TopologyError(
            f"the supplier of {node} returns the same {type(made).__name__} each time: tasks would share it", hint=hint, node=node
        )
    return made


def follow_task(made: object, node: NodeContext, context: object) -> None:
    """Register the `init` and `close` of a processor, if it has them, with those of the task."""
    init, close = getattr(made, "init", None), getattr(made, "close", None)
    if init is not None:
        node.on_init(lambda: init(context))
    if close is not None:
        node.on_close(close)


def _run(supplier: ProcessorSupplier, node: NodeContext, forward: Process, record_type: type[Any]) -> Process:
    processor = supplied(supplier, node.name, "process")
    follow_task(processor, node, NodeProcessorContext(node, forward, fixed_key=record_type is FixedKeyRecord))
    work, context, make = processor.process, node.record, sharing(record_type)

    def process(key: object, value: object, timestamp: int, headers: Headers) -> None:
        outer_timestamp, outer_headers = context.timestamp, context.headers
        context.timestamp, context.headers = timestamp, headers  # plain stores log with these
        work(make(key, value, timestamp, headers))
        context.timestamp, context.headers = outer_timestamp, outer_headers

    return process


class NodeProcessorContext:
    """The `ProcessorContext` of one processor in one task."""

    def __init__(self, node: NodeContext, forward: Process, *, fixed_key: bool) -> None:
        self._node = node
        self._forward = forward
        self._fixed_key = fixed_key

    @property
    def application_id(self) -> str:
        return self._node.task.application_id

    @property
    def task_id(self) -> TaskId:
        return self._node.task.task_id

    @property
    def config(self) -> StreamsConfig:
        return self._node.task.config

    @property
    def key_serde(self) -> Any:
        """The application's default."""
        return self._node.task.key_serde(None)

    @property
    def value_serde(self) -> Any:
        """The application's default."""
        return self._node.task.value_serde(None)

    def forward(self, record: object, child: str | None = None) -> None:
        """Forward a record to all children (or the named one), depth first, before this call returns."""
        if not isinstance(record, FixedKeyRecord if self._fixed_key else Record):
            raise CallError(
                f"{self._node.name} cannot forward a {type(record).__name__}",
                hint="forward a FixedKeyRecord (record.with_value(...))"
                if self._fixed_key
                else "forward a Record (record.with_value(...), Record(key, value, timestamp))",
                node=self._node.name,
            )
        headers = list(record.headers) if self._fixed_key else record.headers  # the output of a fixed-key processor is a new record
        forward, context, timestamp = self._forward if child is None else self._node.child(child), self._node.record, record.timestamp
        outer_timestamp, outer_headers = context.timestamp, context.headers
        context.timestamp, context.headers = timestamp, headers  # entries cached downstream are flushed with these
        try:
            forward(record.key, record.value, timestamp, headers)
        finally:
            context.timestamp, context.headers = outer_timestamp, outer_headers

    def record_metadata(self) -> RecordMetadata | None:
        return self._node.record.metadata()

    def get_state_store(self, name: str) -> Any:
        return self._node.store(name, headers=True)

    def schedule(
        self,
        interval: Millis,
        punctuation: PunctuationType,
        callback: Callable[[int], None],
        *,
        start: datetime | int | None = None,
    ) -> Cancellable:
        """See `ProcessingContext.schedule`."""
        every, clock, first = checked_schedule(interval, punctuation, callback, start, self._node.name)
        return self._node.schedule(every, clock, callback, first)

    def commit(self) -> None:
        self._node.request_commit()

    def current_stream_time_ms(self) -> int:
        return self._node.stream_time()

    def metrics(self) -> StreamsMetrics:
        """See `ProcessingContext.metrics`."""
        return self._node.task.metrics_of(self._node.name)

    @property
    def state_dir(self) -> Path:
        """See `ProcessingContext.state_dir`."""
        return self._node.task.state_dir_of(self._node.name)

    def current_system_time_ms(self) -> int:
        return self._node.wall_clock()
