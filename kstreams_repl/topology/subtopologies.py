"""Which nodes belong together: sub-topologies, the unit of which a task runs one partition group.

Nodes that forward to each other or share a store are united; topics separate. Ids count up in the order in which the first node
of each group was added; a global store's two nodes are a group of their own and use an id up, though no task runs them.
Source: Kafka Streams' `InternalTopologyBuilder.makeNodeGroups`, `QuickUnion`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kstreams_repl.topology.nodes import Node, SourceNode
from kstreams_repl.topology.stores import StoreBuilder


class UnionFind:
    """Groups of names that only ever grow together."""

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
        id: the first half of task ids ``<id>_<partition>``.
        nodes: in insertion order: parents before children.
        stores: in the order in which the nodes use them.
        global_: the nodes of a global store: read by every instance in full, run by no task.
    """

    id: int
    nodes: tuple[Node, ...]
    stores: tuple[StoreBuilder, ...] = ()
    global_: bool = False

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Topics the sources name (those that patterns match are found at deploy), by logical name."""
        return tuple(dict.fromkeys(topic for node in self.nodes if isinstance(node, SourceNode) for topic in node.topics))

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)


def with_default_stores(part: Subtopology, default_store: str) -> Subtopology:
    """The sub-topology with every store that follows ``default.dsl.store`` kept as that says."""
    if all(store.on_disk(default_store) == store.persistent for store in part.stores):
        return part
    return replace(part, stores=tuple(store.with_(persistent=store.on_disk(default_store)) for store in part.stores))


def group_nodes(names: Iterable[str], groups: UnionFind) -> list[list[str]]:
    """Names by group; a group's position is its id, its names stay in the given order."""
    by_root: dict[str, list[str]] = {}
    for name in names:
        by_root.setdefault(groups.root(name), []).append(name)
    return list(by_root.values())
