"""The read-only side of a topology, for the runtime, the plan of an edit, pictures and tests.

A `TopologyGraph` never changes its contents; `topology.Topology` adds the methods that do. Nodes are kept in insertion order,
which is
topological: a node's parents are added before it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

from kstreams_repl.engine.topology.description.describe import TopologyDescription, describe
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.engine.topology.subtopologies import Subtopology, UnionFind, group_nodes
from kstreams_repl.system.errors import TopologyError, did_you_mean


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
        """A `partitions.PartitionGrouper` of the topology's own; None: the default."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Return all nodes by name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> list(topology.nodes)
            ['words', 'count', 'changes', 'sink']
        """
        return MappingProxyType(self._nodes)

    @property
    def stores(self) -> Mapping[str, StoreBuilder]:
        """Return all stores except global stores.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> list(topology.stores)
            ['counts']
        """
        return MappingProxyType({name: self._finished(builder) for name, builder in self._stores.items()})

    def with_stores(self, change: Callable[[StoreBuilder], StoreBuilder]) -> Self:
        """Return a copy in which the description of each store, except global ones, is changed.

        Args:
            change: takes a store's description and returns the new one.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology().with_stores(lambda store: store)
        """
        changed = copy.copy(self)
        changed._stores = {name: change(store) for name, store in self._stores.items()}
        return changed

    def with_nodes(self, change: Callable[[Node], Node], topics: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Return a copy in which nodes are changed. Their names, and which of them forward to which, stay.

        Args:
            change: takes a node and returns the one in its place.
            topics: names of source topics that are a store's changelog, with the names in their place.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology().add_source("in", "words").with_nodes(lambda node: node)
        """
        changed = copy.copy(self)
        changed._nodes = {name: change(node) for name, node in self._nodes.items()}
        changed._source_of_store = {store: topics.get(topic, topic) for store, topic in self._source_of_store.items()}
        return changed

    @property
    def internal_topics(self) -> Mapping[str, int | None]:
        """Return the topics that the application creates, and their numbers of partitions where fixed.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> dict(topology.internal_topics)
            {}
        """
        return MappingProxyType(self._internal_topics)

    def node(self, name: str) -> Node:
        """Return the node of that name.

        Raises:
            TopologyError: no node has that name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> topology.node('sink').topic
            'counted'
        """
        try:
            return self._nodes[name]
        except KeyError:
            raise TopologyError(f"there is no node {name!r}", hint=did_you_mean(name, self._nodes), node=name) from None

    def store(self, name: str) -> StoreBuilder:
        """Return the store of that name, global or not.

        Raises:
            TopologyError: no store has that name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> str(topology.store('counts').kind)
            'timestamped-key-value'
        """
        builder = self._stores.get(name) or self._global_stores.get(name)
        if builder is None:
            raise TopologyError(
                f"there is no store {name!r}", hint=did_you_mean(name, (*self._stores, *self._global_stores)), store=name
            )
        return self._finished(builder)

    def children(self, name: str) -> tuple[str, ...]:
        """Return the names of the nodes to which `name` forwards, in insertion order.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> topology.children('words')
            ('count',)
        """
        return tuple(node.name for node in self._nodes.values() if not isinstance(node, SourceNode) and name in node.parents)

    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Return all sub-topologies in id order; those of global stores are marked `global_`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> [len(part.nodes) for part in topology.subtopologies()]
            [4]
        """
        return tuple(self._subtopology(number, names) for number, names in enumerate(group_nodes(self._nodes, self._groups)))

    def global_stores(self) -> Subtopology | None:
        """Return all global stores with their sources and processors as one sub-topology; None if there are none.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> topology.global_stores() is None
            True
        """
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
        """Return the topics that sources name, including global ones; internal topics by logical name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> topology.source_topics()
            ('words',)
        """
        sources = (node for node in self._nodes.values() if isinstance(node, SourceNode))
        return tuple(dict.fromkeys(topic for node in sources for topic in node.topics))

    def sink_topics(self) -> tuple[str, ...]:
        """Return the topics that sinks name (not those chosen per record); internal topics by logical name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> topology.sink_topics()
            ('counted',)
        """
        sinks = (node for node in self._nodes.values() if isinstance(node, SinkNode))
        return tuple(dict.fromkeys(node.topic for node in sinks if node.topic is not None))

    def copartition_groups(self) -> tuple[frozenset[str], ...]:
        """Return groups of topics (logical names) that must have the same number of partitions; overlapping groups are united.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> topology.copartition_groups()
            ()
        """
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
        """Return a description whose `str()` is Kafka Streams' `Topology.describe()` text.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
            >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
            >>> topology = builder.build()
            >>> print(topology.describe())
            Topologies:
               Sub-topology: 0
                Source: words (topics: [words])
            ...
        """
        return describe(self.subtopologies())

    def __repr__(self) -> str:
        stores, parts = len(self._stores) + len(self._global_stores), len(self.subtopologies())
        return (
            f"Topology({len(self._nodes)} node{'s' * (len(self._nodes) != 1)}, {stores} store{'s' * (stores != 1)}, "
            f"{parts} sub-topolog{'y' if parts == 1 else 'ies'})"
        )

    def _topics_of(self, source: str) -> tuple[str, ...]:
        node = self._nodes.get(source)
        return node.topics if isinstance(node, SourceNode) else ()

    def _finished(self, builder: StoreBuilder) -> StoreBuilder:
        topic = self._source_of_store.get(builder.name)
        return builder if topic is None else replace(builder, logging=False, source_topic=topic)

    def _subtopology(self, number: int, names: list[str]) -> Subtopology:
        nodes = tuple(self._nodes[name] for name in names)
        used = dict.fromkeys(store for node in nodes if isinstance(node, ProcessorNode) for store in node.stores)
        return Subtopology(
            number, nodes, tuple(self.store(name) for name in used), global_=any(name in self._global_nodes for name in names)
        )
