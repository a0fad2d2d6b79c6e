"""`Topology.describe()`: a structured description whose text is, byte for byte, what Kafka Streams prints.

Order of nodes: size of the sub-tree, largest first, then name. The lists behind arrows are sorted by the same rule, but with the
sizes as they were when each neighbour was added. Source: Kafka Streams' `InternalTopologyBuilder.describeSubtopology` and its
inner classes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kstreams_repl.engine.topology.description.java_order import TreeSet, hash_set_order
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.system.errors import TopologyError

_BLOCK = re.compile(r"Sub-topology: (\d+)( for global store.*)?")
_NODE = re.compile(r"(Source|Processor|Sink): (\S+) \((.*)\)")
_ARROW = re.compile(r"(-->|<--) (.+)")


@dataclass(frozen=True, slots=True)
class DescribedNode:
    """One node of a topology description.

    Attributes:
        kind: "Source", "Processor" or "Sink".
        detail: the text in brackets.
        successors, predecessors: names in the order of the text.
    """

    name: str
    kind: str
    detail: str
    successors: tuple[str, ...]
    predecessors: tuple[str, ...]
    stores: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.name} ({self.detail})"]
        if self.kind != "Sink":
            lines.append(f"      --> {', '.join(self.successors) or 'none'}")
        if self.kind != "Source":
            lines.append(f"      <-- {', '.join(self.predecessors) or 'none'}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class DescribedSubtopology:
    """Nodes of one sub-topology (or of one global store) in print order."""

    id: int
    nodes: tuple[DescribedNode, ...]
    global_: bool = False

    def __str__(self) -> str:
        body = "".join(f"    {node}\n" for node in self.nodes)
        if self.global_:
            return f"Sub-topology: {self.id} for global store (will not generate tasks)\n{body}"
        return f"Sub-topology: {self.id}\n{body}\n"


@dataclass(frozen=True, slots=True)
class TopologyDescription:
    """All sub-topologies by id; `str()` returns Kafka Streams' text, which its viewers can read."""

    subtopologies: tuple[DescribedSubtopology, ...]

    def __str__(self) -> str:
        return "Topologies:\n " + "".join(f"  {subtopology}" for subtopology in self._in_print_order())

    def _in_print_order(self) -> list[DescribedSubtopology]:
        # While both kinds remain, a sub-topology is printed only if its id is the number of blocks printed so far.
        tasks = [s for s in self.subtopologies if not s.global_]
        stores = [s for s in self.subtopologies if s.global_]
        printed: list[DescribedSubtopology] = []
        while tasks and stores:
            printed.append(tasks.pop(0) if tasks[0].id == len(printed) else stores.pop(0))
        return printed + tasks + stores

    @property
    def global_stores(self) -> tuple[DescribedSubtopology, ...]:
        return tuple(s for s in self.subtopologies if s.global_)


def describe(subtopologies: Sequence[Subtopology]) -> TopologyDescription:
    """Return the description of sub-topologies given in id order."""
    return TopologyDescription(tuple(_describe_global(s) if s.global_ else _describe_tasks(s) for s in subtopologies))


def _describe_global(subtopology: Subtopology) -> DescribedSubtopology:
    source = next(node for node in subtopology.nodes if isinstance(node, SourceNode))
    processor = next(node for node in subtopology.nodes if isinstance(node, ProcessorNode))
    nodes = (_described(source, (processor.name,), ()), _described(processor, (), (source.name,)))
    return DescribedSubtopology(subtopology.id, nodes, global_=True)


def _describe_tasks(subtopology: Subtopology) -> DescribedSubtopology:
    nodes = {node.name: node for node in subtopology.nodes}
    parents = {name: () if isinstance(node, SourceNode) else node.parents for name, node in nodes.items()}
    order, successors, predecessors = _order(parents)
    return DescribedSubtopology(
        subtopology.id, tuple(_described(nodes[name], tuple(successors[name]), tuple(predecessors[name])) for name in order)
    )


def _order(parents: Mapping[str, Sequence[str]]) -> tuple[list[str], dict[str, list[str]], dict[str, list[str]]]:
    """Return node order, successor lists and predecessor lists of nodes given in insertion order."""
    position = {name: i for i, name in enumerate(parents)}
    size = dict.fromkeys(parents, 1)

    def compare(a: str, b: str) -> int:
        if a == b:
            return 0
        return (size[b] - size[a]) or (1 if a > b else -1)

    successors = {name: TreeSet(compare) for name in parents}
    predecessors = {name: TreeSet(compare) for name in parents}

    def grow(name: str, delta: int) -> None:
        # A node grows once per path from it to `name`. In reverse insertion order all paths to a node are counted before it.
        pending = {name: delta}
        while pending:
            here = max(pending, key=position.__getitem__)
            amount = pending.pop(here)
            size[here] += amount
            for parent in predecessors[here]:
                pending[parent] = pending.get(parent, 0) + amount

    # Kafka Streams copies a HashSet of names into a HashMap by name
    for name in hash_set_order(hash_set_order(parents)):
        for parent in parents[name]:
            predecessors[name].add(parent)
            successors[parent].add(name)
            grow(parent, size[name])
    order = sorted(parents, key=lambda name: (-size[name], name))
    return order, {n: list(s) for n, s in successors.items()}, {n: list(p) for n, p in predecessors.items()}


def _described(node: Node, successors: tuple[str, ...], predecessors: tuple[str, ...]) -> DescribedNode:
    if isinstance(node, SourceNode):
        topics = tuple(hash_set_order(node.topics))
        detail = f"topics: {node.pattern.pattern if node.pattern is not None else _java_list(topics)}"
        return DescribedNode(node.name, "Source", detail, successors, predecessors, topics=topics)
    if isinstance(node, ProcessorNode):
        stores = tuple(hash_set_order(hash_set_order(node.stores)))
        return DescribedNode(node.name, "Processor", f"stores: {_java_list(stores)}", successors, predecessors, stores=stores)
    return DescribedNode(
        node.name, "Sink", _sink_detail(node), successors, predecessors, topics=(node.topic,) if node.topic else ()
    )


def _sink_detail(node: SinkNode) -> str:
    if node.topic is not None:
        return f"topic: {node.topic}"
    if node.table is not None:
        return f"{node.table.format} table: {node.table.path}"
    return f"extractor class: {_extractor_text(node.topic_extractor)}"


def _extractor_text(extractor: object) -> str:
    if "__str__" in vars(type(extractor)) or "__repr__" in vars(type(extractor)) and not hasattr(extractor, "__qualname__"):
        return str(extractor)
    name = getattr(extractor, "__qualname__", None) or type(extractor).__qualname__
    return f"{getattr(extractor, '__module__', type(extractor).__module__)}.{name}"


def _java_list(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def parse_description(text: str) -> TopologyDescription:
    """Return the description that this text is of: the inverse of `str(description)`, also for text of Kafka Streams on the JVM.

    Raises:
        TopologyError: a line is not one of such a text; it is named.
    """
    blocks: list[tuple[int, bool, list[DescribedNode]]] = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if block := _BLOCK.fullmatch(line):
            blocks.append((int(block[1]), block[2] is not None, []))
        elif blocks and (node := _NODE.fullmatch(line)):
            blocks[-1][2].append(_parsed_node(*node.groups()))
        elif blocks and blocks[-1][2] and (arrow := _ARROW.fullmatch(line)):
            names = () if arrow[2] == "none" else tuple(arrow[2].split(", "))
            last = blocks[-1][2].pop()
            blocks[-1][2].append(replace(last, successors=names) if arrow[1] == "-->" else replace(last, predecessors=names))
        elif line not in ("", "Topologies:"):
            raise TopologyError(
                f"line {number} is not one of a topology's description: {line[:80]!r}",
                hint="pass the whole text of topology.describe(), from 'Topologies:' on",
            )
    if not blocks:
        raise TopologyError("the text describes no sub-topology", hint="pass the whole text of topology.describe()")
    parts = (DescribedSubtopology(number, tuple(nodes), global_) for number, global_, nodes in blocks)
    return TopologyDescription(tuple(sorted(parts, key=lambda part: part.id)))


def _parsed_node(kind: str, name: str, detail: str) -> DescribedNode:
    what, _, named = detail.partition(": ")
    listed = named[1:-1] if named[:1] == "[" and named[-1:] == "]" else named
    names = tuple(listed.split(", ")) if listed and (listed != named or what == "topic") else ()
    return DescribedNode(
        name, kind, detail, (), (), stores=names if what == "stores" else (), topics=names if what in ("topic", "topics") else ()
    )
