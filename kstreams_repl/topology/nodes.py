"""The nodes of a logical topology: immutable values that a mutable `Topology` connects.

A node names its parents; children follow from that in insertion order. Nothing here runs: the runtime turns a sub-topology of
nodes into callables, once per task.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the user made a node: the notebook cell (or file) and line."""

    cell: str | None = None
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics.

    Attributes:
        topics: topic names; empty when `pattern` is given.
        key_serde, value_serde: how bytes are read; None = the application's default.
        timestamp_extractor: callable (record, partition_time) -> ms; None = the record's own timestamp, negative ones rejected.
        offset_reset: "earliest", "latest" or None (the application's ``auto.offset.reset``).
    """

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    key_serde: Any = None
    value_serde: Any = None
    timestamp_extractor: Any = None
    offset_reset: str | None = None
    origin: Origin = field(default=Origin(), compare=False)


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """Runs an operator of the DSL or a user's processor.

    Attributes:
        operator: an `operators.base.Operator`, or (Processor API) the user's supplier as it was given, which the runtime wraps in
            `operators.processor_api.ProcessorOperator`.
        stores: names of the stores this node may use, in the order they were connected.
    """

    name: str
    parents: tuple[str, ...]
    operator: Any
    stores: tuple[str, ...] = ()
    origin: Origin = field(default=Origin(), compare=False)


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Writes a topic.

    Attributes:
        topic: the topic's name, or None when `topic_extractor` chooses per record.
        topic_extractor: callable (key, value, SinkMetadata) -> topic name.
        partitioner: callable (topic, key, value, partitions) -> partition, a set of partitions (empty drops), or None for the
            default.
        internal: the topic belongs to the topology (repartition).
    """

    name: str
    parents: tuple[str, ...]
    topic: str | None
    topic_extractor: Callable[..., str] | None = None
    key_serde: Any = None
    value_serde: Any = None
    partitioner: Callable[..., Any] | None = None
    internal: bool = False
    origin: Origin = field(default=Origin(), compare=False)


Node = SourceNode | ProcessorNode | SinkNode
