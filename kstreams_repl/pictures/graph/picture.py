"""What of a topology is drawn: shapes for topics, nodes and stores, links between them, a cluster per sub-topology.

A `Picture` is a value: the same topology gives an equal picture, so a layout can be reused while only `Mark`s (state and numbers
of a running application) change. This module knows neither pixels nor markup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath

from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.nodes import Node, Origin, ProcessorNode, SinkNode, SourceNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.pictures.wording import counted, duration


class Kind(StrEnum):
    """What a shape stands for."""

    TOPIC = "topic"
    INTERNAL_TOPIC = "internal topic"
    SOURCE = "source"
    PROCESSOR = "processor"
    SINK = "sink"
    STORE = "store"
    REPARTITION = "repartition"
    SUBTOPOLOGY = "sub-topology"


@dataclass(frozen=True, slots=True)
class Shape:
    """One element of a picture.

    Attributes:
        id: unique in the picture: ``topic:…``, ``node:…``, ``store:…``.
        name: name of the topic, node or store.
        detail: a second line: the node's operator, or the kind of store.
        cluster: the sub-topology it belongs to; None for topics.
        origin: where the user made it.
        label: drawn instead of the name; empty: the name is drawn.
    """

    id: str
    kind: Kind
    name: str
    detail: str = ""
    cluster: int | None = None
    origin: Origin = field(default=Origin(), compare=False)
    label: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """Records flow from one shape to another, or a node uses a store (``state``)."""

    source: str
    target: str
    state: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """One sub-topology."""

    id: int
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The current state of one shape, and lines of numbers.

    Attributes:
        rate: records per second that enter the shape; lag: records that it has not read yet. None: unknown.
    """

    state: str | None = None
    lines: tuple[str, ...] = ()
    rate: float | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """A topology as shapes, links and clusters.

    Attributes:
        state: the state of the application as a whole.
    """

    title: str
    shapes: tuple[Shape, ...]
    links: tuple[Link, ...]
    clusters: tuple[Cluster, ...]
    marks: Mapping[str, Mark] = field(default_factory=dict, compare=False, hash=False)
    state: str | None = field(default=None, compare=False, hash=False)

    @property
    def common_state(self) -> str | None:
        """Return the state that all boxes share and none repeats. An application fails at one node, which is marked as failed."""
        return None if self.state == "failed" else self.state

    @property
    def summary(self) -> str:
        """Return one sentence for screen readers."""
        nodes = sum(shape.kind in (Kind.SOURCE, Kind.PROCESSOR, Kind.SINK) for shape in self.shapes)
        stores = sum(shape.kind is Kind.STORE for shape in self.shapes)
        topics = sum(shape.kind in (Kind.TOPIC, Kind.INTERNAL_TOPIC) for shape in self.shapes)
        counts = ", ".join((counted(nodes, "node"), counted(stores, "store"), counted(topics, "topic")))
        return f"{self.title[:200]}: {counts}, {counted(len(self.clusters), 'sub-topology', 'sub-topologies')}"


def picture_of(
    topology: TopologyGraph, *, title: str = "Topology", marks: Mapping[str, Mark] | None = None, state: str | None = None
) -> Picture:
    """Return the picture of a topology.

    Args:
        marks: by shape id (``node:NAME``, ``store:NAME``, ``topic:NAME``).
        state: the state of the application as a whole.
    """
    shapes: dict[str, Shape] = {}
    links: dict[Link, None] = {}
    clusters = []
    for subtopology in topology.subtopologies():
        clusters.append(Cluster(subtopology.id, _cluster_label(subtopology)))
        for node in subtopology.nodes:
            _draw_node(topology, subtopology, node, shapes, links)
        for store in subtopology.stores:
            shapes[f"store:{store.name}"] = Shape(
                f"store:{store.name}", Kind.STORE, store.name, store_detail(store), subtopology.id
            )
        for node in subtopology.nodes:
            for store_name in node.stores if isinstance(node, ProcessorNode) else ():
                links[Link(f"node:{node.name}", f"store:{store_name}", state=True)] = None
    return Picture(title, tuple(shapes.values()), tuple(links), tuple(clusters), dict(marks or {}), state)


def _draw_node(
    topology: TopologyGraph, subtopology: Subtopology, node: Node, shapes: dict[str, Shape], links: dict[Link, None]
) -> None:
    here = f"node:{node.name}"
    kind = {SourceNode: Kind.SOURCE, SinkNode: Kind.SINK}.get(type(node), Kind.PROCESSOR)
    shapes[here] = Shape(here, kind, node.name, _node_detail(node), subtopology.id, node.origin)
    if isinstance(node, SourceNode):
        for topic in node.topics or (f"/{node.pattern.pattern}/" if node.pattern else "",):
            links[Link(_topic(topology, topic, shapes), here)] = None
        return
    for parent in node.parents:
        links[Link(f"node:{parent}", here)] = None
    if isinstance(node, SinkNode) and node.table is not None:
        table = f"table:{node.table.path}"
        shapes.setdefault(table, Shape(table, Kind.TOPIC, PurePath(node.table.path).name, f"{node.table.format} table"))
        links[Link(here, table)] = None
    elif isinstance(node, SinkNode):
        links[Link(here, _topic(topology, node.topic if node.topic is not None else "(chosen per record)", shapes))] = None


def _topic(topology: TopologyGraph, name: str, shapes: dict[str, Shape]) -> str:
    here = f"topic:{name}"
    if here not in shapes:
        internal = name in topology.internal_topics
        shapes[here] = Shape(
            here, Kind.INTERNAL_TOPIC if internal else Kind.TOPIC, name, "internal topic" if internal else "topic"
        )
    return here


def _node_detail(node: Node) -> str:
    if isinstance(node, SourceNode):
        return "source"
    if isinstance(node, SinkNode):
        return "sink"
    operator = node.operator
    if hasattr(operator, "build"):
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(operator).__name__).lower()
    return str(getattr(operator, "__name__", None) or type(operator).__name__)


def store_detail(store: StoreBuilder) -> str:
    """Return a short description of a store: ``timestamped-window, 1 h``."""
    parts = [str(store.kind)]
    if store.window_size_ms:
        parts.append(duration(store.window_size_ms))
    if not store.logging and store.source_topic is None:
        parts.append("no changelog")
    return ", ".join(parts)


def _cluster_label(subtopology: Subtopology) -> str:
    return f"global store (sub-topology {subtopology.id})" if subtopology.global_ else f"sub-topology {subtopology.id}"
