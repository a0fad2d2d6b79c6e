"""The read-only side of a topology: what the runtime, the plan of an edit, pictures and tests ask it.

A `TopologyGraph` never changes what it holds; `topology.Topology` adds the methods that do. Nodes are kept in insertion order,
which is
topological: a node's parents are there before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kstreams_repl.errors import TopologyError, did_you_mean
from kstreams_repl.topology.describe import TopologyDescription, describe
from kstreams_repl.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from kstreams_repl.topology.stores import StoreBuilder
from kstreams_repl.topology.subtopologies import Subtopology, UnionFind, group_nodes


class TopologyGraph:
    """Nodes, stores and internal topics of a topology, for reading.

    `nodes` and `stores` map names to descriptions in insertion order. `internal_topics` maps the logical name of each repartition
    topic (without the application id) to its number of partitions, None where that follows from upstream.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, StoreBuilder] = {}
        self._global_stores: dict[str, StoreBuilder] = {}
        self._internal_topics: dict[str, int | None] = {}
        self._source_of_store: dict[str, str] = {}
        self._copartition_sources: list[set[str]] = []
        self._groups = UnionFind()
        self._global_nodes: set[str] = set()
        self.partition_grouper: Any = None
        """A `partitions.PartitionGrouper` that the topology brings along; None: the default."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        return MappingProxyType(self._nodes)

    @property
    def stores(self) -> Mapping[str, StoreBuilder]:
        """All stores but the global ones."""
        return MappingProxyType({name: self._finished(builder) for name, builder in self._stores.items()})

    @property
    def internal_topics(self) -> Mapping[str, int | None]:
        return MappingProxyType(self._internal_topics)

    def node(self, name: str) -> Node:
        """The node of that name.

        Raises:
            TopologyError: there is none.
        """
        try:
            return self._nodes[name]
        except KeyError:
            raise TopologyError(f"there is no node {name!r}", hint=did_you_mean(name, self._nodes), node=name) from None

    def store(self, name: str) -> StoreBuilder:
        """The store of that name, global or not.

        Raises:
            TopologyError: there is none.
        """
        builder = self._stores.get(name) or self._global_stores.get(name)
        if builder is None:
            raise TopologyError(
                f"there is no store {name!r}", hint=did_you_mean(name, (*self._stores, *self._global_stores)), store=name
            )
        return self._finished(builder)

    def children(self, name: str) -> tuple[str, ...]:
        """Names of the nodes that `name` forwards to, in insertion order."""
        return tuple(node.name for node in self._nodes.values() if not isinstance(node, SourceNode) and name in node.parents)

    def subtopologies(self) -> tuple[Subtopology, ...]:
        """All sub-topologies in id order; those of global stores are marked `global_`."""
        return tuple(self._subtopology(number, names) for number, names in enumerate(group_nodes(self._nodes, self._groups)))

    def global_stores(self) -> Subtopology | None:
        """All global stores with their sources and processors as one sub-topology; None when there are none."""
        parts = [part for part in self.subtopologies() if part.global_]
        if not parts:
            return None
        return Subtopology(
            parts[0].id,
            tuple(node for part in parts for node in part.nodes),
            tuple(store for part in parts for store in part.stores),
            global_=True,
        )

    def source_topics(self) -> tuple[str, ...]:
        """Topics that sources name, global ones included, internal ones by logical name."""
        sources = (node for node in self._nodes.values() if isinstance(node, SourceNode))
        return tuple(dict.fromkeys(topic for node in sources for topic in node.topics))

    def sink_topics(self) -> tuple[str, ...]:
        """Topics that sinks name (not those chosen per record), internal ones by logical name."""
        sinks = (node for node in self._nodes.values() if isinstance(node, SinkNode))
        return tuple(dict.fromkeys(node.topic for node in sinks if node.topic is not None))

    def copartition_groups(self) -> tuple[frozenset[str], ...]:
        """Topics (logical names) that must have the same number of partitions, overlapping groups united."""
        groups: list[set[str]] = []
        for sources in self._copartition_sources:
            merged = {topic for name in sources for topic in self._topics_of(name)}
            if not merged:
                continue
            apart = []
            for group in groups:
                if group & merged:
                    merged |= group
                else:
                    apart.append(group)
            groups = [*apart, merged]
        return tuple(frozenset(group) for group in groups)

    def describe(self) -> TopologyDescription:
        """A description whose `str()` is Kafka Streams' `Topology.describe()` text."""
        return describe(self.subtopologies())

    def __repr__(self) -> str:
        parts = self.subtopologies()
        return f"Topology({len(self._nodes)} nodes, {len(self._stores) + len(self._global_stores)} stores, {len(parts)} sub-topologies)"

    def _topics_of(self, source: str) -> tuple[str, ...]:
        node = self._nodes.get(source)
        return node.topics if isinstance(node, SourceNode) else ()

    def _finished(self, builder: StoreBuilder) -> StoreBuilder:
        topic = self._source_of_store.get(builder.name)
        return builder if topic is None else builder.with_(logging=False, source_topic=topic)

    def _subtopology(self, number: int, names: list[str]) -> Subtopology:
        nodes = tuple(self._nodes[name] for name in names)
        used = dict.fromkeys(store for node in nodes if isinstance(node, ProcessorNode) for store in node.stores)
        return Subtopology(
            number, nodes, tuple(self.store(name) for name in used), global_=any(name in self._global_nodes for name in names)
        )
