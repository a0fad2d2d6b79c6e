"""The DSL's graph under construction, and its translation to a `Topology`.

1. Sources of the same topics are merged. 2. The configured optimisations are applied. 3. Null-key filters are added before
repartition topics. 4. Versioned semantics are enabled downstream of versioned tables. 5. Nodes are written, lowest build priority
first. 6. Co-partitioning is checked.
Source: Kafka Streams' `InternalStreamsBuilder`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from kstreams_repl.dsl import optimizer
from kstreams_repl.dsl.graph_nodes import GraphNode, RepartitionGraphNode, SuppressGraphNode, TableSourceGraphNode
from kstreams_repl.errors import TopologyError
from kstreams_repl.topology.names import GENERATED_STREAM_NAME, REPARTITION_SUFFIX, NameProvider, validate_name
from kstreams_repl.topology.nodes import Origin
from kstreams_repl.topology.source_location import user_origin
from kstreams_repl.topology.topology import Topology

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
        self.versioned_readers: dict[GraphNode, None] = {}
        self.repartitions_behind: dict[GraphNode, dict[RepartitionGraphNode, None]] = {}
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
            self.repartitions_behind[node] = {}
        elif isinstance(node, RepartitionGraphNode) and node.optimizable:
            changer = optimizer.key_changing_parent(node)
            if changer is not None:
                self.repartitions_behind[changer][node] = None
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
        key_serde: Any = None,
        value_serde: Any = None,
        partitioner: Callable[..., Any] | None = None,
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
            self.here(),
            source_name=source,
            sink_name=sink,
            topic=validate_name(topic, "topic"),
            filter_name=filter_,
            key_serde=key_serde,
            value_serde=value_serde,
            partitioner=partitioner,
            partitions=partitions,
            optimizable=optimizable,
        )

    def build(self, optimizations: frozenset[str]) -> Topology:
        """Write the graph to a fresh topology. This consumes the graph.

        Args:
            optimizations: any of `optimizer.ALL`.

        Raises:
            TopologyError: a problem that is visible only in the whole graph: clashing names, overlapping sources, unsupported
                versions.
        """
        optimizer.merge_duplicate_sources(self.root)
        optimizer.optimize(self, optimizations)
        optimizer.filter_null_keys(self.root)
        self._enable_versioned_semantics()
        topology = Topology()
        for topic in self.internal_topics:
            topology.add_internal_topic(topic)
        for sources in self.copartition_sources:
            topology.copartition_sources(sources)
        self._write(topology)
        topology.validate_copartitioning()
        return topology

    def _write(self, topology: Topology) -> None:
        queue: list[tuple[int, int, GraphNode]] = []
        pushed = 0

        def offer(node: GraphNode) -> None:
            nonlocal pushed
            pushed += 1
            for child in node.children:
                heapq.heappush(queue, (child.build_priority, pushed, child))
                pushed += 1

        offer(self.root)
        while queue:
            node = heapq.heappop(queue)[2]
            if node.written or not all(parent.written for parent in node.parents):
                continue  # written when its last parent offers it again
            try:
                node.write(topology)
            except TopologyError as error:
                raise _placed(error, node.origin) from None
            node.written = True
            offer(node)

    def _enable_versioned_semantics(self) -> None:
        for node in self.versioned_readers:
            if any(self._versioned(parent) for parent in node.parents):
                node.use_versioned_semantics()
        for node in self.suppressors:
            if self._versioned_upstream(node):
                raise TopologyError(
                    f"suppress {node.name} is behind a versioned table",
                    hint="suppress works on tables without versions only",
                    node=node.name,
                )

    def _versioned(self, node: GraphNode) -> bool:
        if node.output_versioned is not None:
            return node.output_versioned
        return self._versioned_upstream(node)

    def _versioned_upstream(self, node: GraphNode) -> bool:
        return node is not self.root and all(self._versioned(parent) for parent in node.parents)


def _placed(error: TopologyError, origin: Origin) -> TopologyError:
    """Return the error with the location where the user made the node that cannot be written."""
    if origin.file is None:
        return error
    place = f"{origin.file}:{origin.line}" if origin.cell is None else f"cell {origin.cell}, line {origin.line}"
    return type(error)(f"{error.message} (made in {place})", hint=error.hint, **{**error.fields, "origin": origin})
