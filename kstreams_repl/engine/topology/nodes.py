"""The nodes of a logical topology: immutable values that a mutable `Topology` connects.

A node names its parents; children follow from that in insertion order. Nothing here runs: the runtime turns the nodes of a
sub-topology into callables, once per task.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.system.types import StreamPartitioner, TimestampExtractor


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the user made a node: notebook cell (or file) and line."""

    cell: str | None = None
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics.

    Attributes:
        topics: topic names; empty when `pattern` is given.
        key_serde, value_serde: deserialize records; None = the application's default.
        timestamp_extractor: callable (record, partition_time) -> ms; None = the record's own timestamp, and a negative one is an
            error.
        offset_reset: "earliest", "latest" or None (the application's ``auto.offset.reset``).
    """

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    key_serde: object = None
    value_serde: object = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None
    origin: Origin = field(default=Origin(), compare=False)


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """Runs an operator of the DSL or a user's processor.

    Attributes:
        operator: an `engine.operators.operator.Operator`, or (Processor API) the supplier as the user gave it, which the runtime wraps in
            `engine.operators.processor_api.ProcessorOperator`.
        stores: names of the stores that this node may use, in the order in which they were connected.
    """

    name: str
    parents: tuple[str, ...]
    operator: Any
    stores: tuple[str, ...] = ()
    origin: Origin = field(default=Origin(), compare=False)


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Writes a topic, or a table of files.

    Attributes:
        topic: the topic's name, or None when `topic_extractor` chooses per record.
        topic_extractor: callable (key, value, SinkMetadata) -> topic name.
        partitioner: callable (topic, key, value, partitions) -> partition, or a set of partitions (an empty set drops the
            record); None for the default.
        internal: whether the topic belongs to the topology (repartition).
        table: the table that the sink writes instead of a topic; then `topic` and `topic_extractor` are None.
    """

    name: str
    parents: tuple[str, ...]
    topic: str | None
    topic_extractor: Callable[..., str] | None = None
    key_serde: object = None
    value_serde: object = None
    partitioner: StreamPartitioner | None = None
    internal: bool = False
    origin: Origin = field(default=Origin(), compare=False)
    table: TableFiles | None = None


Node = SourceNode | ProcessorNode | SinkNode
