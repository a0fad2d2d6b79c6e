"""Writes the DSL's graph to a `Topology`.

1. Sources of the same topics are merged. 2. The configured optimisations are applied. 3. Null-key filters are added before
repartition topics. 4. Versioned semantics are enabled downstream of versioned tables. 5. Nodes are written, lowest build priority
first. 6. Co-partitioning is checked.
Source: Kafka Streams' `InternalStreamsBuilder`.
"""

from __future__ import annotations

import heapq

from kstreams_repl.engine.dsl.graph import optimizer
from kstreams_repl.engine.dsl.graph.graph_builder import GraphBuilder
from kstreams_repl.engine.dsl.graph.graph_nodes import GraphNode
from kstreams_repl.engine.topology.nodes import Origin
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import TopologyError


def build_topology(graph: GraphBuilder, optimizations: frozenset[str]) -> Topology:
    """Write the graph to a fresh topology. This consumes the graph.

    Args:
        optimizations: any of `optimizer.ALL`.

    Raises:
        TopologyError: a problem that is visible only in the whole graph: clashing names, overlapping sources, unsupported
            versions.
    """
    optimizer.merge_duplicate_sources(graph.root)
    optimizer.optimize(graph, optimizations)
    optimizer.filter_null_keys(graph.root)
    _enable_versioned_semantics(graph)
    topology = Topology()
    for topic in graph.internal_topics:
        topology.add_internal_topic(topic)
    for sources in graph.copartition_sources:
        topology.copartition_sources(sources)
    _write(graph.root, topology)
    topology.validate_copartitioning()
    return topology


def _write(root: GraphNode, topology: Topology) -> None:
    queue: list[tuple[int, int, GraphNode]] = []
    pushed = 0

    def offer(node: GraphNode) -> None:
        nonlocal pushed
        pushed += 1
        for child in node.children:
            heapq.heappush(queue, (child.build_priority, pushed, child))
            pushed += 1

    offer(root)
    while queue:
        node = heapq.heappop(queue)[2]
        if node.written or not all(parent.written for parent in node.parents):
            continue  # written when its last parent offers it again
        try:
            node.write(topology)
        except TopologyError as error:
            raise _with_location(error, node.origin) from None
        node.written = True
        offer(node)


def _enable_versioned_semantics(graph: GraphBuilder) -> None:
    for node in graph.versioned_readers:
        if any(_versioned(parent) for parent in node.parents):
            node.use_versioned_semantics()
    for node in graph.suppressors:
        if _versioned_upstream(node):
            raise TopologyError(
                f"suppress() expected a table without history, and {node.name} is downstream of a versioned one",
                hint="call suppress() before the operator with history=",
                node=node.name,
            )


def _versioned(node: GraphNode) -> bool:
    if node.output_versioned is not None:
        return node.output_versioned
    return _versioned_upstream(node)


def _versioned_upstream(node: GraphNode) -> bool:
    return bool(node.parents) and all(_versioned(parent) for parent in node.parents)


def _with_location(error: TopologyError, origin: Origin) -> TopologyError:
    """Return the error with the location where the user made the node that cannot be written."""
    if origin.file is None:
        return error
    where = f"{origin.file}:{origin.line}" if origin.cell is None else f"cell {origin.cell}, line {origin.line}"
    return type(error)(f"{error.message} (made in {where})", hint=error.hint, **{**error.fields, "origin": origin})
