"""Sub-topologies: groups of connected nodes; a task runs one of them for one partition group.

Nodes that forward to each other or share a store are in one group; topics separate groups. Ids follow the order in which the
first node of each group was added; the two nodes of a global store are a group that has an id, though no task runs it.
Source: Kafka Streams' `InternalTopologyBuilder.makeNodeGroups`, `QuickUnion`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kstreams_repl.engine.topology.nodes import Node, SourceNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder, in_application


class UnionFind:
    """Disjoint groups of names that can only be united."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def add(self, name: str) -> None:
        self._parent.setdefault(name, name)

    def root(self, name: str) -> str:
        parent = self._parent
        while parent[name] != name:
            parent[name] = name = parent[parent[name]]
        return name

    def unite(self, name: str, others: Iterable[str]) -> None:
        for other in others:
            root, other_root = self.root(name), self.root(other)
            if root != other_root:
                self._parent[root] = other_root


@dataclass(frozen=True, slots=True)
class Subtopology:
    """Connected nodes and the stores they use.

    Attributes:
        id: first part of task ids ``<id>_<partition>``.
        nodes: in insertion order, parents before children.
        stores: in the order in which the nodes use them.
        global_: whether these are the nodes of a global store, which every instance reads in full and no task runs.
    """

    id: int
    nodes: tuple[Node, ...]
    stores: tuple[StoreBuilder, ...] = ()
    global_: bool = False

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Return the topics that the sources name, by logical name (topics of patterns are resolved at deploy)."""
        return tuple(dict.fromkeys(topic for node in self.nodes if isinstance(node, SourceNode) for topic in node.topics))


def with_default_stores(part: Subtopology, default_store: str, store_format: str) -> Subtopology:
    """Return the sub-topology with ``default.dsl.store`` and ``dsl.store.format`` applied to every store that follows them."""
    stores = tuple(in_application(store, default_store, store_format) for store in part.stores)
    return part if stores == part.stores else replace(part, stores=stores)


def group_nodes(names: Iterable[str], groups: UnionFind) -> list[list[str]]:
    """Return the names by group; a group's index is its id, and its names keep the given order."""
    by_root: dict[str, list[str]] = {}
    for name in names:
        by_root.setdefault(groups.root(name), []).append(name)
    return list(by_root.values())
