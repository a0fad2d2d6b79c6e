"""Rewrites of the DSL's graph before it is written.

Always on: sources of the same topics are merged; repartition topics drop null keys unless a left or outer join downstream needs
them. By ``topology.optimization``: ``reuse.ktable.source.topics``, ``merge.repartition.topics``, ``single.store.self.join``, or
``all``.
Source: Kafka Streams' `InternalStreamsBuilder`, `NodesWithRelaxedNullKeyJoinDownstream`.
"""

from __future__ import annotations

from kstreams_repl.engine.dsl.graph.graph_builder import GraphBuilder
from kstreams_repl.engine.dsl.graph.graph_nodes import (
    GraphNode,
    RepartitionGraphNode,
    SourceGraphNode,
    StreamStreamJoinGraphNode,
    WindowedGraphNode,
    find_parent,
    key_not_none,
)
from kstreams_repl.engine.operators.streams.stream_filter import StreamFilter
from kstreams_repl.engine.topology.optimizations import (
    MERGE_REPARTITION_TOPICS,
    REUSE_TABLE_SOURCE_TOPICS,
    SINGLE_STORE_SELF_JOIN,
)
from kstreams_repl.system.errors import TopologyError


def optimize(builder: GraphBuilder, optimizations: frozenset[str]) -> None:
    """Apply the given optimisations, in Kafka Streams' order."""
    if REUSE_TABLE_SOURCE_TOPICS in optimizations:
        for node in builder.table_sources:
            node.reuse_source_topic = True
    if MERGE_REPARTITION_TOPICS in optimizations:
        _merge_repartition_topics(builder)
    if SINGLE_STORE_SELF_JOIN in optimizations:
        _rewrite_self_joins(builder.root, set())


def merge_duplicate_sources(root: GraphNode) -> None:
    """Merge the sources of the same set of topics or the same pattern.

    Raises:
        TopologyError: sources overlap without being equal, or differ in their offset reset.
    """
    by_topic: dict[str, SourceGraphNode] = {}
    by_pattern: dict[tuple[str, int], SourceGraphNode] = {}
    for node in list(root.children):
        if not isinstance(node, SourceGraphNode):
            continue
        if node.pattern is not None:
            first = by_pattern.setdefault((node.pattern.pattern, node.pattern.flags), node)
            if first is not node:
                first.merge(node)
                root.remove_child(node)
            continue
        merged = False
        for topic in node.topics:
            first = by_topic.setdefault(topic, node)
            if first is node:
                continue
            if set(first.topics) != set(node.topics):
                raise TopologyError(
                    f"sources {first.name} and {node.name} both read topic {topic!r}, but not the same set of topics",
                    hint="read the topics one by one and merge() the streams",
                    node=node.name,
                    topic=topic,
                )
            if not merged:
                first.merge(node)
                root.remove_child(node)
                merged = True


def filter_null_keys(root: GraphNode) -> None:
    """Drop records without a key before a repartition topic, except where a left or outer join follows."""
    visited: dict[GraphNode, None] = {}
    relaxed: set[GraphNode] = set()

    def visit(node: GraphNode) -> None:
        if node in visited:
            return
        for child in node.children:
            visit(child)
            if child.relaxed_null_key or child in relaxed:
                relaxed.add(node)
        visited[node] = None

    visit(root)
    for node in visited:
        if isinstance(node, RepartitionGraphNode) and node.filter_name is not None and node not in relaxed:
            node.filter = StreamFilter(key_not_none)


def _merge_repartition_topics(builder: GraphBuilder) -> None:
    _attribute_to_merge_nodes(builder)
    for changer, replaced in list(builder.repartitions_downstream.items()):
        if not replaced:
            continue
        first = next(iter(replaced))
        single = builder.new_repartition(
            first.topic,
            key_serde=next((node.key_serde for node in replaced if node.key_serde is not None), None),
            value_serde=next((node.value_serde for node in replaced if node.value_serde is not None), None),
        )
        single.build_priority = changer.build_priority  # written before everything downstream
        for node in replaced:
            _replace_repartition(builder, changer, node, single)
        changer.add_child(single)
        del builder.repartitions_downstream[changer]


def _replace_repartition(
    builder: GraphBuilder, changer: GraphNode, node: RepartitionGraphNode, single: RepartitionGraphNode
) -> None:
    below = find_parent(node, lambda n: changer in n.parents)
    if below is None:
        raise TopologyError(
            f"no way from {changer.name} to repartition topic {node.topic}", hint="report this topology", node=node.name
        )
    single.add_child(below)
    changer.remove_child(below)
    parents = list(node.parents)
    for child in list(node.children):
        for parent in parents:
            parent.add_child(child)
    for parent in parents:
        parent.remove_child(node)
    node.clear_children()
    builder.replace_copartition_source(node.name, single.name)


def _attribute_to_merge_nodes(builder: GraphBuilder) -> None:
    """Assign repartition topics after a merge to the merge, not to the key-changing nodes upstream of it."""
    downstream = builder.repartitions_downstream
    changers_of: dict[GraphNode, dict[GraphNode, None]] = {}
    for merge in builder.merge_nodes:
        changers_of[merge] = {}
        for changer, nodes in downstream.items():
            if all(find_parent(node, lambda n, m=merge: m in n.parents) is not None for node in nodes):  # type: ignore[misc]
                if find_parent(merge, lambda n, c=changer: c in n.parents) is not None:  # type: ignore[misc]
                    changers_of[merge][changer] = None
    attributed: dict[GraphNode, None] = {}
    for merge, changers in changers_of.items():
        nodes = {}
        for changer in changers:
            nodes.update(downstream[changer])
            attributed[changer] = None
        downstream[merge] = nodes
    for changer in attributed:
        downstream.pop(changer, None)


def _rewrite_self_joins(node: GraphNode, visited: set[GraphNode]) -> None:
    visited.add(node)
    if isinstance(node, StreamStreamJoinGraphNode) and len(node.parents) == 1 and node.self_join_operator is not None:
        parent = next(iter(node.parents))
        windowed = {child.name: child for child in parent.children if isinstance(child, WindowedGraphNode)}
        left, right = windowed.get(node.left.windowed), windowed.get(node.right.windowed)
        if left is None or right is None or left.build_priority >= right.build_priority:
            raise TopologyError(f"self join {node.name} lost its windowed nodes", hint="report this topology", node=node.name)
        parent.remove_child(right)
        node.self_join = True
    for child in list(node.children):
        if child not in visited:
            _rewrite_self_joins(child, visited)
