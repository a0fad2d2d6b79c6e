"""Source nodes: deserialize and time-stamp records, and pass poison records to the deserialization handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Number
from typing import Any

from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.engine.runtime.compiler.crash_trace import Trace
from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext, Handler, Response, ask
from kstreams_repl.engine.runtime.queues.record_queue import RecordQueue, RecordSkipped
from kstreams_repl.engine.runtime.task_context import TaskServices
from kstreams_repl.engine.serdes.header_ids import as_received, framing
from kstreams_repl.engine.topology.description.user_lines import user_line
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.system.errors import (
    KStreamsError,
    SchemaRegistryError,
    SerializationError,
    StreamsProcessingError,
    is_interrupt,
)
from kstreams_repl.system.types import Headers

_MOST = 1 << 63


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """The argument of a timestamp extractor; `timestamp` is the broker's (ms)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


Extract = Callable[[RecordQueue, object, object, int, int, Headers], int]
Times = Callable[[list[int]], list[int]]


def _never(record: ConsumedRecord, partition_time: int) -> int:
    raise AssertionError("a source without extractor uses the broker's timestamp")


class CompiledSource:
    """One source node of one task (`record_queue.Source`)."""

    def __init__(
        self, node: SourceNode, enter: Process, services: TaskServices, handler: Handler | None, trace: Trace | None = None
    ) -> None:
        self.name = node.name
        self.enter = enter
        self.trace = trace
        topic = services.real_topic(node.topics[0]) if len(node.topics) == 1 else None
        key_serde, value_serde = services.key_serde(node.key_serde, topic), services.value_serde(node.value_serde, topic)
        self.deserialize_key, self.deserialize_value = key_serde.deserialize, value_serde.deserialize
        self.deserialize_keys = key_serde.deserialize_many if trace is None else None  # a traced task decodes one by one
        self.deserialize_values = value_serde.deserialize_many if trace is None else None
        self.key_serde, self.value_serde = key_serde, value_serde
        self.frame = framing(key_serde, value_serde)
        self._services = services
        self._handler = handler
        # records that the application wrote to its own topics already have a valid timestamp, as in Kafka Streams
        self.internal = bool(node.topics) and all(topic in services.internal_topics for topic in node.topics)
        extractor = node.timestamp_extractor or (None if self.internal else services.config["default.timestamp.extractor"])
        self._extractor: Callable[[ConsumedRecord, int], int] = extractor or _never
        self._negative_fails = extractor is None
        self.extract: Extract | None = None if extractor is None else self._extract
        # a function of the user's that wraps a predefined one has its attributes, too
        marked = extractor is not None and not hasattr(extractor, "__wrapped__")
        self.times: Times | None = list if extractor is None else getattr(extractor, "column_times", None) if marked else None
        self.no_headers = services.no_headers if self.times is not None and handler is None else None

    def _extract(self, queue: RecordQueue, key: object, value: object, timestamp: int, offset: int, headers: Headers) -> int:
        record = ConsumedRecord(queue.topic, queue.partition.partition, offset, timestamp, key, value, headers)
        try:
            extracted: Any = self._extractor(record, queue.partition_time)
        except BaseException as cause:
            if is_interrupt(cause):
                raise
            line = user_line(cause)
            raise StreamsProcessingError(
                f"the timestamp extractor of {self.name} raised {type(cause).__name__}: {cause}"
                + (f"\n  {line}" if line else ""),
                hint="fix the extractor, or return a negative number to drop such records",
                node=self.name,
                topic=record.topic,
                partition=record.partition,
                offset=offset,
                user_line=line,
            ) from cause
        try:
            if isinstance(extracted, bool) or not issubclass(type(extracted), Number):
                raise TypeError(f"expected a number, got a {type(extracted).__name__}")
            milliseconds: int = int(extracted)
            if not -_MOST <= milliseconds < _MOST:
                raise OverflowError("a timestamp has 64 bits")
            return milliseconds
        except (TypeError, ValueError, OverflowError) as cause:
            raise StreamsProcessingError(
                f"the timestamp extractor of {self.name} returned {extracted!r} for the record at {queue.partition} offset {offset}",
                hint="return epoch milliseconds as a number, or a negative number to drop the record",
                node=self.name,
                topic=record.topic,
                partition=record.partition,
                offset=offset,
            ) from cause

    def on_poison(
        self, error: BaseException, queue: RecordQueue, key: bytes | None, value: bytes | None, ts: int, offset: int, headers: Headers
    ) -> None:
        """Call the handler: FAIL raises with the record's coordinates, CONTINUE counts a dropped record, as does a user's skip."""
        if isinstance(error, StreamsProcessingError | SchemaRegistryError) or is_interrupt(error):
            raise error
        partition = queue.partition
        raw = as_received(key, value, headers)
        context = ErrorContext(self.name, str(self._services.task_id), partition.topic, partition.partition, offset, ts, *raw)
        if isinstance(error, RecordSkipped):
            self._services.dead_letter(context, error)
            self._services.drop("skipped", self.name)
            return
        handler = self._handler
        if (
            handler is None
            or not isinstance(error, Exception)  # handlers are not called for sys.exit() in a serde
            or ask(handler, context, error, "deserialization.exception.handler") is not Response.CONTINUE
        ):
            reason = error.message if isinstance(error, KStreamsError) else f"{type(error).__name__}: {error}"
            line = user_line(error)
            raise SerializationError(
                f"{self.name} cannot read the record at {partition} offset {offset}: {reason}" + (f"\n  {line}" if line else ""),
                hint="fix the serde or the producer, or set deserialization.exception.handler to 'continue' "
                "(with a dead-letter topic, if wanted)",
                node=self.name,
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
                user_line=line,
            ) from error
        self._services.dead_letter(context, error)
        self._services.drop("deserialization", self.name)

    def on_negative_timestamp(self, queue: RecordQueue, ts: int, offset: int) -> None:
        """Raise with the default extractor (as FailOnInvalidTimestamp does), otherwise drop and count."""
        if self._negative_fails:
            partition = queue.partition
            raise StreamsProcessingError(
                f"the record at {partition} offset {offset} has the negative timestamp {ts}",
                hint="give the source a timestamp_extractor that returns a valid timestamp, or a negative number to drop the record",
                node=self.name,
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
            )
        self._services.drop("negative timestamp", self.name)
