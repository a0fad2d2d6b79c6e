"""Sink nodes: serialize records, pass them to the record collector, and call the production exception handler for failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import index, itemgetter
from typing import Any

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.loop_lines import inline_of
from kstreams_repl.engine.operators.operator import NodeContext, Process
from kstreams_repl.engine.operators.user_functions import takes_headers
from kstreams_repl.engine.runtime.nodes.collector import Direct, RowSink, Send, placing, senders_of
from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext, Response, ask, resolve
from kstreams_repl.engine.runtime.task_context import TaskServices
from kstreams_repl.engine.serdes.header_ids import on_the_wire, sends_ids
from kstreams_repl.engine.serdes.serde import Serde, Serializer, to_send
from kstreams_repl.engine.topology.description.user_lines import line_of, user_line
from kstreams_repl.engine.topology.nodes import SinkNode
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.system.errors import (
    KStreamsError,
    OutputRetryError,
    ProductionError,
    SchemaRegistryError,
    SerializationError,
    UnknownTopicError,
)
from kstreams_repl.system.types import Headers, Outlet, SinkMetadata

Refuse = Callable[[object, object, Exception], None]
"""(key, value, cause): handles a record that a serde could not write; raises, or returns to drop the record."""


class SinkSite:
    """`engine.runtime.nodes.collector.Site` of one sink. Without a user-defined handler, RETRY for a retriable error, otherwise FAIL."""

    def __init__(self, node: str, services: TaskServices) -> None:
        self.node = node
        self._services = services
        self._handler = resolve(services.config["production.exception.handler"], "production.exception.handler")

    def context(self) -> ErrorContext:
        return self._services.error_context(self.node)

    def decide(self, context: ErrorContext, error: Exception) -> Response:
        sent = error if isinstance(error, ProductionError) else None
        if sent is not None and sent.final:
            return Response.FAIL
        retriable = sent is not None and sent.retriable
        if self._handler is None:
            return Response.RETRY if retriable else Response.FAIL
        response = ask(self._handler, context, error, "production.exception.handler")
        passes = retriable or isinstance(error, UnknownTopicError)
        return Response.FAIL if response is Response.RETRY and not passes else response

    def give_up(self, context: ErrorContext, error: Exception, reason: str = "production") -> None:
        self._services.dead_letter(context, error)
        self._services.drop(reason, self.node)


def build_sink(node: SinkNode, context: NodeContext, services: TaskServices) -> Process:
    """Return the entry of a sink: a table, a fixed topic, a topic per record, or a custom partitioner."""
    if node.table is not None:
        return build_table_sink(node.name, node.table, context, services)
    named = None if node.topic is None else services.real_topic(node.topic)
    key_serde, value_serde = services.key_serde(node.key_serde, named), services.value_serde(node.value_serde, named)
    site = SinkSite(node.name, services)
    refuse = _refusal(node, services, key_serde, value_serde, site)
    suffix: int = getattr(key_serde, "base_key_suffix", 0)
    windowed = suffix > 0
    if node.topic is None or node.partitioner is not None:
        return _chosen(node, services, key_serde, value_serde, refuse, suffix, site)
    topic = services.real_topic(node.topic)
    find = getattr(services.collector, "direct", None)
    client: Direct | None = None if find is None else find(topic, site)
    produce, refused, earliest, copies = (None, None, 0, False) if client is None else client
    if sends_ids(key_serde, value_serde):
        produce, refused, copies = None, None, False
    send, partition = _with_header_ids(services.collector.sender(topic, site), services.collector.partition_of, key_serde, value_serde)
    to_key, to_value = key_serde.serialize, to_send(value_serde.serialize) if copies else value_serde.serialize

    def sink(key: object, value: object, timestamp: int, headers: Headers) -> None:
        try:
            data = to_key(key)
            payload = to_value(value)
        except Exception as cause:
            refuse(key, value, cause)
            return
        place = -1
        if windowed and data is not None:  # its partition is that of the plain key, without the window bounds at its end
            place = partition(topic, data[:-suffix])
        if produce is not None and refused is not None:
            try:
                if headers:
                    produce(topic, payload, data, place, None, None, timestamp or earliest, headers)
                else:
                    produce(topic, payload, data, place, None, None, timestamp or earliest)
            except Exception as error:
                refused(error, data, payload, timestamp, headers, place)
        else:
            send(data, payload, timestamp, headers, None if place < 0 else place)

    entry = kernel(context, sink, quick={"to_value", "partition", "produce"}, key_serde=key_serde)
    inline = inline_of(entry)
    if inline is not None and node.topic in services.internal_topics:  # only the application itself reads it
        rekeyed = None if inline.rekeyed is None else inline.rekeyed._replace(resends=value_serde)
        entry.inline = inline._replace(resends=value_serde, rekeyed=rekeyed)  # type: ignore[attr-defined]
    return entry


def build_table_sink(name: str, table: TableFiles, context: NodeContext, services: TaskServices) -> Process:
    """Return the entry of a sink that writes a table. A record with the value None is dropped."""
    site, drop = SinkSite(name, services), context.drop

    def misfit(key: object, value: object, context: ErrorContext | None, cause: Exception) -> None:
        if context is not None and site.decide(context, cause) is Response.CONTINUE:
            site.give_up(context, cause, "misfit")
            return
        raise SerializationError(
            f"a record does not fit the columns of {name}: {type(cause).__name__}: {cause}; "
            f"its key is {_shown(key)}, its value {_shown(value)}",
            hint="change schema= of to_table_files, map the value first, or set production.exception.handler to 'continue'",
            node=name,
            path=table.path,
            **({} if context is None else {"topic": context.topic, "partition": context.partition, "offset": context.offset}),
        ) from cause

    rows: RowSink = services.collector.rows(  # type: ignore[attr-defined]
        name, table, services.task_id.partition, misfit, site.context if services.by_record else None
    )
    services.tables[name] = rows
    append, takes_key = rows.append, table.key_column is not None

    def table_sink(key: object, value: object, timestamp: int, headers: object) -> None:
        if value is None:
            drop("null-value")
        else:
            append(key if takes_key else None, value, timestamp)

    return kernel(context, table_sink, quick=() if services.by_record else {"append"})


def _shown(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 200 else f"{text[:200]}…"


def build_outlet(node: SinkNode, services: TaskServices, key_serde: Serde, value_serde: Serde) -> Outlet | None:
    """Return the outlet into a sink for rows serialized by these serdes; None if the sink serializes differently."""
    if node.topic is None or node.partitioner is not None:
        return None
    named = services.real_topic(node.topic)
    theirs, values = services.key_serde(node.key_serde, named), services.value_serde(node.value_serde, named)
    if not (theirs.writes_like(key_serde) and values.writes_like(value_serde)):
        return None
    suffix = theirs.base_key_suffix
    send_many, partitions_of = senders_of(services.collector, named)[1], placing(services.collector, named)
    plain_key = itemgetter(slice(None, -suffix))

    def outlet(
        keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int], headers: Sequence[Headers] | None
    ) -> None:
        partitions = partitions_of(list(map(plain_key, keys))) if suffix else None
        send_many(keys, values, timestamps, headers, partitions)

    return outlet


def _chosen(
    node: SinkNode,
    services: TaskServices,
    key_serde: Serde,
    value_serde: Serde,
    refuse: Refuse,
    suffix: int,
    site: SinkSite,
) -> Process:
    ways: dict[str, tuple[Send, Callable[[str, bytes], int], Serializer, Serializer]] = {}
    collector, record, drop = services.collector, services.record, services.dropper(site.node)
    topic_of, partitioner, fixed = node.topic_extractor, node.partitioner, node.topic
    with_headers = partitioner is not None and takes_headers(partitioner)

    def sink_chosen(key: object, value: object, timestamp: int, headers: Headers) -> None:
        topic: object = fixed
        if topic_of is not None:
            topic = topic_of(key, value, SinkMetadata(record.topic, record.partition, record.offset, timestamp, list(headers)))
        if not isinstance(topic, str):
            raise TypeError(f"expected a topic name for this record, got {topic!r}")
        real = services.real_topic(topic)
        way = ways.get(real)
        if way is None:
            try:
                bound = services.key_serde(key_serde, real), services.value_serde(value_serde, real)
                way = ways[real] = (
                    *_with_header_ids(collector.sender(real, site), collector.partition_of, *bound), bound[0].serialize, bound[1].serialize,
                )  # fmt: skip
            except UnknownTopicError as error:
                context = site.context()
                response = site.decide(context, error)
                if response is Response.CONTINUE:
                    site.give_up(context, error)
                    return
                if response is Response.RETRY:
                    raise OutputRetryError(error.message, hint=error.hint, topic=real, node=site.node) from error
                raise
        send, partition_of, to_key, to_value = way
        try:
            data, payload = to_key(key), to_value(value)
        except Exception as cause:
            refuse(key, value, cause)
            return
        if partitioner is not None:
            if with_headers:
                chosen = partitioner(topic, key, value, list(headers), collector.partitions(real))
            else:
                chosen = partitioner(topic, key, value, collector.partitions(real))
            if chosen is not None:
                partitions = (chosen,) if type(chosen) is int and chosen >= 0 else _partitions(chosen)
                for partition in partitions:
                    send(data, payload, timestamp, headers, partition)
                if not partitions:
                    drop("partitioner")
                return
        placed = partition_of(real, data[:-suffix]) if suffix and data is not None else None
        send(data, payload, timestamp, headers, placed)

    return sink_chosen


def _with_header_ids(
    send: Send, partition_of: Callable[[str, bytes], int], key_serde: Serde, value_serde: Serde
) -> tuple[Send, Callable[[str, bytes], int]]:
    """Return both calls for what the serdes write: schema ids for headers are sent there, and do not count for the partition."""
    if not sends_ids(key_serde, value_serde):
        return send, partition_of
    size_of = key_serde.header_id_size

    def send_split(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None) -> None:
        key, value, headers = on_the_wire(key_serde, value_serde, key, value, headers)
        send(key, value, timestamp, headers, partition)

    return send_split, partition_of if size_of is None else lambda topic, key: partition_of(topic, key[size_of(key) :])


def _partitions(chosen: Any) -> Sequence[int]:
    """Convert a partitioner's result to a list of partitions."""
    with suppress(TypeError):
        partitions = sorted({index(partition) for partition in ([chosen] if hasattr(chosen, "__index__") else chosen)})
        if not partitions or partitions[0] >= 0:
            return partitions
    raise ValueError(f"expected a partition, a set of partitions or None from the partitioner, got {chosen!r}")


def _refusal(node: SinkNode, services: TaskServices, key_serde: Serde, value_serde: Serde, site: SinkSite) -> Refuse:
    """Return a function that calls the production handler for a record that cannot be written; without one, or on FAIL, it raises."""

    def refuse(key: object, value: object, cause: Exception) -> None:
        if isinstance(cause, SchemaRegistryError):
            raise cause
        record, context = services.record, site.context()
        if site.decide(context, cause) is Response.CONTINUE:
            site.give_up(context, cause, "serialization")
            return
        part, item, serde = ("key", key, key_serde) if _fails(key_serde, key) else ("value", value, value_serde)
        reason = cause.message if isinstance(cause, KStreamsError) else f"{type(cause).__name__}: {cause}"
        line, fitting = user_line(cause) or line_of(node.origin), f'{part}_serde="{_FITTING.get(type(item), "json")}"'
        raise SerializationError(
            f"the {part} serde of {node.name} ({getattr(serde, 'name', serde)}) cannot write a {type(item).__name__}: {reason}"
            + (f"\n  {line}" if line else ""),
            hint=f"set a {part}_serde that can write it, for example {fitting}"
            + (f", where the key changes: group_by(..., {fitting})" if node.topic in services.internal_topics else ""),
            node=node.name,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            user_line=line,
        ) from cause

    return refuse


_FITTING = {str: "string", int: "long", float: "double", bytes: "bytes"}


def _fails(serde: Serde, item: object) -> bool:
    try:
        serde.serialize(item)
    except Exception:  # a serde of the user's may raise anything
        return True
    return False
