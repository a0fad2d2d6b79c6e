"""The DSL's graph under construction: its nodes, their names, and the sources that must be co-partitioned.

Source: Kafka Streams' `InternalStreamsBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstreams_repl.engine.dsl.graph.graph_nodes import (
    GraphNode,
    OperatorGraphNode,
    RepartitionGraphNode,
    SuppressGraphNode,
    TableSourceGraphNode,
    key_changing_parent,
)
from kstreams_repl.engine.topology.description.source_location import user_origin
from kstreams_repl.engine.topology.names import GENERATED_STREAM_NAME, REPARTITION_SUFFIX, NameProvider, validate_name
from kstreams_repl.engine.topology.nodes import Origin
from kstreams_repl.system.types import StreamPartitioner

SOURCE = "KSTREAM-SOURCE-"
SINK = "KSTREAM-SINK-"
FILTER = "KSTREAM-FILTER-"


class GraphBuilder(NameProvider):
    """All graph nodes of one `StreamsBuilder`, its counter for names, and its co-partitioned sources.

    Attributes:
        origin: where the user made the current node; set by the build log during replay; None: determined from the call stack.
        made: names of the added nodes; the build log empties it before each call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = GraphNode("root", Origin())
        self.root.written = True
        self.origin: Origin | None = None
        self.made: list[str] = []
        self.merge_nodes: dict[GraphNode, None] = {}
        self.table_sources: dict[TableSourceGraphNode, None] = {}
        self.suppressors: dict[SuppressGraphNode, None] = {}
        self.versioned_readers: dict[OperatorGraphNode, None] = {}
        self.repartitions_downstream: dict[GraphNode, dict[RepartitionGraphNode, None]] = {}
        self.copartition_sources: list[set[str]] = []
        self.internal_topics: list[str] = []
        self._next_priority = 0

    def here(self) -> Origin:
        """Return the origin for a node that is made by the current call."""
        return self.origin if self.origin is not None else user_origin()

    def add(self, parents: GraphNode | Iterable[GraphNode], child: GraphNode, *, reads_versions: bool = False) -> None:
        """Add a node downstream of one or more parents; its priority is that of its last connection.

        Args:
            parents: one node or several.
            child: the new node.
            reads_versions: call `use_versioned_semantics` if a parent is versioned.
        """
        if reads_versions:
            assert isinstance(child, OperatorGraphNode)
            self.versioned_readers[child] = None
        self.made.append(child.name)
        for parent in (parents,) if isinstance(parents, GraphNode) else parents:
            parent.add_child(child)
            child.build_priority = self._next_priority
            self._next_priority += 1
            self._classify(child)

    def _classify(self, node: GraphNode) -> None:
        if isinstance(node, SuppressGraphNode):
            self.suppressors[node] = None
        if node.key_changing:
            self.repartitions_downstream[node] = {}
        elif isinstance(node, RepartitionGraphNode) and node.optimizable:
            changer = key_changing_parent(node)
            if changer is not None:
                self.repartitions_downstream[changer][node] = None
        elif node.merges:
            self.merge_nodes[node] = None
        elif isinstance(node, TableSourceGraphNode):
            self.table_sources[node] = None

    def copartition(self, sources: Iterable[str]) -> None:
        """Require the same number of partitions for the topics of these sources."""
        self.copartition_sources.append(set(sources))

    def replace_copartition_source(self, old: str, new: str) -> None:
        for group in self.copartition_sources:
            if old in group:
                group.remove(old)
                group.add(new)

    def new_repartition(
        self,
        prefix: str,
        *,
        key_serde: object = None,
        value_serde: object = None,
        partitioner: StreamPartitioner | None = None,
        partitions: int | None = None,
        optimizable: bool = True,
    ) -> RepartitionGraphNode:
        """Return a repartition node that is not connected yet; always consumes three numbers.

        Its processors have generated names if `prefix` is a generated name, otherwise names derived from the topic's.
        """
        topic = prefix if prefix.endswith(REPARTITION_SUFFIX) else prefix + REPARTITION_SUFFIX
        sink, filter_, source = self.new_processor_name(SINK), self.new_processor_name(FILTER), self.new_processor_name(SOURCE)
        if not GENERATED_STREAM_NAME.fullmatch(prefix):
            sink, filter_, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
        return RepartitionGraphNode(
            source,
            self.here(),
            sink_name=sink,
            topic=validate_name(topic, "topic"),
            filter_name=filter_,
            key_serde=key_serde,
            value_serde=value_serde,
            partitioner=partitioner,
            partitions=partitions,
            optimizable=optimizable,
        )
