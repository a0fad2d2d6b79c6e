"""The DSL's own graph: one node per operator as the user wrote it, before optimisation and before processor names are used.

Each node writes itself to a `Topology`, after all its parents, lowest build priority first; children and parents keep the order
in which they were connected. Sources: Kafka Streams' `kstream.internals.graph`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kstreams_repl.engine.operators.kernel import inlined
from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.operators.streams.stream_filter import StreamFilter
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.topology.nodes import Origin
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import StreamPartitioner, TimestampExtractor


@inlined
def always(key: object, value: object) -> bool:
    """Accept every record: predicate of a repartition filter that must pass null keys, because a left or outer join handles
    them."""
    return True


@inlined
def key_not_none(key: object, value: object) -> bool:
    """Accept records with a key: predicate of a repartition filter, since records without a key have no partition."""
    return key is not None


@dataclass(frozen=True, slots=True)
class Consumed:
    """Options for reading a source."""

    key_serde: object = None
    value_serde: object = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None


@dataclass(eq=False, repr=False)
class GraphNode:
    """A node of the DSL's graph.

    `key_changing`, `value_changing` and `merges` decide where repartition topics are added; `relaxed_null_key` marks left and
    outer joins; `output_versioned` is None if it follows from the parents.
    """

    name: str
    origin: Origin
    parents: dict[GraphNode, None] = field(default_factory=dict, init=False)
    children: dict[GraphNode, None] = field(default_factory=dict, init=False)
    build_priority: int = field(default=0, init=False)
    key_changing: bool = field(default=False, init=False)
    value_changing: bool = field(default=False, init=False)
    merges: bool = field(default=False, init=False)
    relaxed_null_key: bool = field(default=False, init=False)
    output_versioned: bool | None = field(default=None, init=False)
    written: bool = field(default=False, init=False)

    def add_child(self, child: GraphNode) -> None:
        self.children[child] = None
        child.parents[self] = None

    def remove_child(self, child: GraphNode) -> None:
        self.children.pop(child, None)
        child.parents.pop(self, None)

    def clear_children(self) -> None:
        for child in list(self.children):
            self.remove_child(child)

    @property
    def parent_names(self) -> tuple[str, ...]:
        return tuple(parent.name for parent in self.parents)

    def write(self, topology: Topology) -> None:
        """Add this node to the topology."""


@dataclass(eq=False, repr=False)
class SourceGraphNode(GraphNode):
    """Reads topics, or all topics that a pattern matches."""

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    consumed: Consumed

    def merge(self, other: SourceGraphNode) -> None:
        """Adopt the children of another source of the same topics."""
        if self.consumed.offset_reset != other.consumed.offset_reset:
            raise TopologyError(
                f"sources {self.name} and {other.name} read the same topics with different offset resets:"
                f" {self.consumed.offset_reset} and {other.consumed.offset_reset}",
                hint="give both the same offset_reset=",
                node=other.name,
            )
        for child in list(other.children):
            other.remove_child(child)
            self.add_child(child)

    def write(self, topology: Topology) -> None:
        add_source(topology, self.name, self.consumed, self.origin, *(self.topics if self.pattern is None else (self.pattern,)))


@dataclass(eq=False, repr=False)
class TableSourceGraphNode(GraphNode):
    """Reads one topic into a table, or into a global table."""

    source_name: str
    topic: str
    consumed: Consumed
    operator: TableSource
    store: StoreBuilder
    is_global: bool = False
    reuse_source_topic: bool = field(default=False, init=False)

    def write(self, topology: Topology) -> None:
        consumed = self.consumed
        if self.is_global:
            topology.add_global_store(
                self.store,
                self.source_name,
                self.topic,
                self.name,
                self.operator,
                key_serde=consumed.key_serde,
                value_serde=consumed.value_serde,
                timestamp_extractor=consumed.timestamp_extractor,
                reprocess_on_restore=False,
                origin=self.origin,
            )
            return
        add_source(topology, self.source_name, consumed, self.origin, self.topic)
        topology.add_processor(self.name, self.operator, self.source_name, origin=self.origin)
        if self.operator.store is not None:
            topology.add_state_store(self.store, self.name)
            if self.reuse_source_topic:
                topology.connect_source_topic(self.store.name, self.topic)


@dataclass(eq=False, repr=False)
class OperatorGraphNode(GraphNode):
    """One processor with the stores it owns and those it uses.

    A `TableSource` inside the graph (`to_table`, results of foreign-key joins) gets its store only if an operator reads the
    table. `supplied_stores` come from a user's supplier; `checks` run after the node is written.
    """

    operator: Operator
    store: StoreBuilder | None = field(default=None, kw_only=True)
    used_stores: tuple[str, ...] = field(default=(), kw_only=True)
    supplied_stores: tuple[StoreBuilder, ...] = field(default=(), init=False)
    checks: list[Callable[[Topology], None]] = field(default_factory=list, init=False)

    def use_versioned_semantics(self) -> None:
        """Use versioned semantics; called if the node reads versions and the output of a parent is a versioned table."""
        reader: Any = self.operator
        reader.versioned = True

    def write(self, topology: Topology) -> None:
        topology.add_processor(self.name, self.operator, *self.parent_names, origin=self.origin)
        if self.used_stores:
            topology.connect_processor_and_state_stores(self.name, *self.used_stores)
        for builder in self.supplied_stores:
            topology.add_state_store(builder, self.name)
        unread = isinstance(self.operator, TableSource) and self.operator.store is None
        if self.store is not None and not unread:
            topology.add_state_store(self.store, self.name)
        for check in self.checks:
            check(topology)


class SuppressGraphNode(OperatorGraphNode):
    """A suppress node; a type of its own because suppress rejects tables with a versioned table upstream."""


class WindowedGraphNode(OperatorGraphNode):
    """The node before a stream-stream join that puts records into a window store (which the join node adds)."""


@dataclass(eq=False, repr=False)
class RepartitionGraphNode(GraphNode):
    """An internal topic with its filter, sink and source. Named after its source, on which co-partitioning is checked.

    Attributes:
        optimizable: whether it may be merged with others downstream of the same key-changing node.
        filter_name: None for grouped tables, whose records are filtered earlier.
    """

    sink_name: str
    topic: str
    filter_name: str | None = None
    key_serde: object = None
    value_serde: object = None
    partitioner: StreamPartitioner | None = None
    partitions: int | None = None
    optimizable: bool = False
    filter: StreamFilter = field(default_factory=lambda: StreamFilter(always), init=False)

    def write(self, topology: Topology) -> None:
        topology.add_internal_topic(self.topic, self.partitions)
        parents = self.parent_names
        if self.filter_name is not None:
            topology.add_processor(self.filter_name, self.filter, *parents, origin=self.origin)
            parents = (self.filter_name,)
        topology.add_sink(
            self.sink_name,
            self.topic,
            *parents,
            key_serde=self.key_serde,
            value_serde=self.value_serde,
            partitioner=self.partitioner,
            origin=self.origin,
        )
        consumed = Consumed(self.key_serde, self.value_serde)
        add_source(topology, self.name, consumed, self.origin, self.topic)


@dataclass(eq=False, repr=False)
class SinkGraphNode(GraphNode):
    """Writes a topic."""

    topic: str | Callable[..., str]
    key_serde: object
    value_serde: object
    partitioner: StreamPartitioner | None

    def write(self, topology: Topology) -> None:
        topology.add_sink(
            self.name,
            self.topic,
            *self.parent_names,
            key_serde=self.key_serde,
            value_serde=self.value_serde,
            partitioner=self.partitioner,
            origin=self.origin,
        )


@dataclass(eq=False, repr=False)
class TableFilesGraphNode(GraphNode):
    """Writes a table of files."""

    table: TableFiles
    key_serde: object
    value_serde: object

    def write(self, topology: Topology) -> None:
        topology.add_sink(
            self.name, self.table, *self.parent_names, key_serde=self.key_serde, value_serde=self.value_serde, origin=self.origin
        )


class StateStoreGraphNode(GraphNode):
    """A store that processors use by name."""

    def __init__(self, builder: StoreBuilder, origin: Origin) -> None:
        super().__init__(builder.name, origin)
        self.builder = builder

    def write(self, topology: Topology) -> None:
        topology.add_state_store(self.builder)


@dataclass(eq=False, repr=False)
class GlobalStoreGraphNode(GraphNode):
    """A store that each instance fills from a topic through the user's processor."""

    builder: StoreBuilder
    source_name: str
    topic: str
    consumed: Consumed
    supplier: object

    def write(self, topology: Topology) -> None:
        topology.add_global_store(
            replace(self.builder, logging=False),
            self.source_name,
            self.topic,
            self.name,
            self.supplier,
            key_serde=self.consumed.key_serde,
            value_serde=self.consumed.value_serde,
            timestamp_extractor=self.consumed.timestamp_extractor,
            origin=self.origin,
        )


@dataclass(slots=True)
class JoinSide:
    """One side of a two-sided join: the node's name, its operator and, in stream-stream joins, the windowed node and store before
    it."""

    name: str
    operator: Operator
    windowed: str = ""
    store: StoreBuilder | None = None


@dataclass(eq=False, repr=False)
class StreamStreamJoinGraphNode(GraphNode):
    """Both sides of a windowed join, the merge node after them, and their stores; or a single self-join node (`self_join`), if
    there is an operator for it."""

    left: JoinSide
    right: JoinSide
    merge: Operator
    outer_store: StoreBuilder | None
    self_join_operator: Operator | None
    self_join: bool = field(default=False, init=False)

    def write(self, topology: Topology) -> None:
        left, right = self.left, self.right
        assert left.store is not None and right.store is not None
        if self.self_join and self.self_join_operator is not None:
            topology.add_processor(self.name, self.self_join_operator, left.windowed, origin=self.origin)
            topology.add_state_store(left.store, left.windowed, self.name)
            return
        topology.add_processor(left.name, left.operator, left.windowed, origin=self.origin)
        topology.add_processor(right.name, right.operator, right.windowed, origin=self.origin)
        topology.add_processor(self.name, self.merge, left.name, right.name, origin=self.origin)
        topology.add_state_store(left.store, left.windowed, right.name)
        topology.add_state_store(right.store, right.windowed, left.name)
        if self.outer_store is not None:
            topology.add_state_store(self.outer_store, left.name, right.name)


@dataclass(eq=False, repr=False)
class TableTableJoinGraphNode(GraphNode):
    """Both sides of a table-table join and the merge node after them."""

    left: JoinSide
    right: JoinSide
    left_parent: str
    right_parent: str
    left_stores: tuple[str, ...]
    right_stores: tuple[str, ...]
    merger: Operator
    store: StoreBuilder | None

    def write(self, topology: Topology) -> None:
        left, right = self.left.name, self.right.name
        topology.add_processor(left, self.left.operator, self.left_parent, origin=self.origin)
        topology.add_processor(right, self.right.operator, self.right_parent, origin=self.origin)
        topology.add_processor(self.name, self.merger, left, right, origin=self.origin)
        topology.connect_processor_and_state_stores(left, *self.right_stores)
        topology.connect_processor_and_state_stores(right, *self.left_stores)
        if self.store is not None:
            topology.add_state_store(self.store, self.name)


def add_source(topology: Topology, name: str, consumed: Consumed, origin: Origin, *topics: str | re.Pattern[str]) -> None:
    """Add a source with the given reading options."""
    topology.add_source(
        name,
        *topics,
        key_serde=consumed.key_serde,
        value_serde=consumed.value_serde,
        timestamp_extractor=consumed.timestamp_extractor,
        offset_reset=consumed.offset_reset,
        origin=origin,
    )


def find_parent(start: GraphNode, matches: Callable[[GraphNode], bool]) -> GraphNode | None:
    """Return the start or a node upstream that matches: a direct parent if one matches, else the result of the last parent's
    search."""
    if matches(start):
        return start
    matching = None
    for parent in start.parents:
        if matches(parent):
            return parent
        matching = find_parent(parent, matches)
    return matching


def key_changing_parent(node: GraphNode) -> GraphNode | None:
    """Return the key-changing node upstream, unless values change on the path (then the topic's value serde is unknown)."""
    changer = find_parent(node, lambda n: n.key_changing)
    either = find_parent(node, lambda n: n.key_changing or n.value_changing)
    return changer if changer is not None and either is changer else None
