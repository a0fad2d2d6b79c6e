"""Sink nodes: serialize and hand to the record collector."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstreams_repl.errors import SerializationError
from kstreams_repl.operators.base import Process
from kstreams_repl.runtime.collector import Send
from kstreams_repl.topology.nodes import SinkNode

if TYPE_CHECKING:
    from kstreams_repl.runtime.compile import TaskNode
    from kstreams_repl.runtime.services import TaskServices

Serialize = Callable[[Any], bytes | None]


def build_sink(node: SinkNode, context: TaskNode, services: TaskServices) -> Process:
    """The entry of a sink: fixed topic, topic per record, or a custom partitioner. Headers are copied: the task's list goes on being used."""
    key_serde, value_serde = services.key_serde(node.key_serde), services.value_serde(node.value_serde)
    to_key = _explained(key_serde.serialize, node.name, "key", getattr(key_serde, "name", "serde"))
    to_value = _explained(value_serde.serialize, node.name, "value", getattr(value_serde, "name", "serde"))
    suffix = getattr(key_serde, "base_key_suffix", 0)
    collector = services.collector
    if node.topic is not None and node.partitioner is None:
        return _plain(collector.sender(services.real_topic(node.topic)), to_key, to_value, services, node.topic, suffix)
    return _chosen(node, context, services, to_key, to_value, suffix)


def _plain(send: Send, to_key: Serialize, to_value: Serialize, services: TaskServices, topic: str, suffix: int) -> Process:
    if suffix:
        place, real = services.collector.partition_of, services.real_topic(topic)

        def sink_windowed(key: Any, value: Any, timestamp: int, headers: Any) -> None:
            data = to_key(key)
            send(data, to_value(value), timestamp, headers, None if data is None else place(real, data[:-suffix]))

        return sink_windowed

    def sink(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        send(to_key(key), to_value(value), timestamp, headers, None)

    return sink


def _chosen(node: SinkNode, context: TaskNode, services: TaskServices, to_key: Serialize, to_value: Serialize, suffix: int) -> Process:
    senders: dict[str, Send] = {}
    collector, record = services.collector, services.record
    topic_of, partitioner, fixed = node.topic_extractor, node.partitioner, node.topic

    def sink_chosen(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        topic = fixed if topic_of is None else topic_of(key, value, record.metadata())
        assert topic is not None
        real = services.real_topic(topic)
        send = senders.get(real)
        if send is None:
            send = senders[real] = collector.sender(real)
        data, payload = to_key(key), to_value(value)
        if partitioner is not None:
            chosen = partitioner(topic, key, value, collector.partitions(real))
            if chosen is not None:
                for partition in (chosen,) if isinstance(chosen, int) else sorted(chosen):
                    send(data, payload, timestamp, headers, partition)
                return
        placed = collector.partition_of(real, data[:-suffix]) if suffix and data is not None else None
        send(data, payload, timestamp, headers, placed)

    return sink_chosen


def _explained(serialize: Serialize, node: str, part: str, serde: str) -> Serialize:
    """Name node and part in the error of a serde that does not fit; free until it fails."""

    def explained(item: Any) -> bytes | None:
        try:
            return serialize(item)
        except Exception as cause:
            raise SerializationError(
                f"the {part} serde ({serde}) of {node} cannot write a {type(item).__name__}: {cause}",
                hint=f"give the sink or operator a {part}_serde that fits, for example serdes.json",
                node=node,
            ) from cause

    return explained
