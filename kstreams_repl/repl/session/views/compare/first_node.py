"""Which node is the first at which two sides differ for one input record: what it got is equal, what it made of it is not.

Nodes are compared in topological order, across repartition topics. A node that only one side has is the first one if the node behind it got
something else although all nodes before are equal: a filter that was removed, a node that was put between.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from kstreams_repl.engine.topology.differences.fingerprint import canonical
from kstreams_repl.engine.topology.differences.node_diff import whole_code
from kstreams_repl.engine.topology.nodes import Node, SinkNode, SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session.views.compare.side import TABLE
from kstreams_repl.repl.session.views.compare.values import fields_that_differ, without
from kstreams_repl.repl.session.views.past.replay.record_trace import WRITES, NodeVisit, TracedRecord

_GOT = "got"
_NUMBER = re.compile(r"-\d{10}")


class FirstNode(NamedTuple):
    """Where two sides begin to differ.

    Attributes:
        node: its name.
        before, after: what it did on each side.
    """

    node: str
    before: str
    after: str


@dataclass(slots=True)
class _Work:
    """What a node did with one input record."""

    got: list[dict[str, Any]] = field(default_factory=list)
    forwarded: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    wrote: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)

    def compared(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def text(self, *, whole: bool = False) -> str:
        """Return it in words.

        Args:
            whole: with headers and partitions, too.
        """
        done = [f"{record['key']!r}: {record['value']!r} at {record['timestamp']}" for record in self.forwarded]
        done += [f"sent {record['key']!r}: {record['value']!r}" for record in self.sent]
        done += [f"{write['store']}[{write['key']!r}] = {write['row']!r}" for write in self.wrote]
        if whole:
            done += [f"headers {record['headers']!r}" for record in (*self.forwarded, *self.sent)]
            done += [f"partition {record['partition']}" for record in self.sent]
        return (
            "; ".join([*done, *(f"dropped: {each}" for each in self.dropped), *(f"raised {each}" for each in self.raised)])
            or "nothing"
        )


def first_node(
    before: Sequence[NodeVisit],
    after: Sequence[NodeVisit],
    again: Sequence[NodeVisit],
    topologies: tuple[Topology, Topology],
    *,
    stores: Collection[str],
    outputs: Collection[str] = (),
    logs: Collection[str] = (),
) -> FirstNode | None:
    """Return the first node at which two sides differ; None: at no node.

    Args:
        before, after: the visits of one record on both sides.
        again: the visits of an unchanged side, once more: what differs from `before` is noise.
        stores: those that both sides have.
        outputs, logs: the outputs, and the stores, that differ with this record: only nodes that lead there are looked at. None of both:
            all.
    """
    names = _names(*topologies)
    one, other, same = (_by_node(visits, stores, each) for visits, each in ((before, {}), (after, names), (again, {})))
    ours, theirs = topologies[0].nodes, {names.get(name, name): node for name, node in topologies[1].nodes.items()}
    nodes: dict[str, Node] = {**theirs, **ours}
    parents = _parents(nodes, topologies, ({}, names))
    alone = ours.keys() ^ theirs.keys()
    ends = [name for name, node in nodes.items() if _ends(node, outputs, logs)]
    above = _above(ends or nodes, parents)
    for name in _sorted(nodes, parents):
        if name not in above:
            continue
        mine, others = one.get(name, _Work()), other.get(name, _Work())
        if name in alone:
            if isinstance(nodes[name], SinkNode) and (mine.sent or others.sent):
                return _answer(_head(name, alone, parents), one, other)
            continue
        fields = list(fields_that_differ(mine.compared(), others.compared()))
        if fields:
            noise = set(fields_that_differ(mine.compared(), same.get(name, _Work()).compared()))
            fields = without(fields, noise)
        if not fields:
            continue
        if isinstance(nodes[name], SourceNode) and not parents[name]:
            return _answer(name, one, other)  # it read the same bytes
        if any(each == _GOT or each.startswith((f"{_GOT}.", f"{_GOT}[")) for each in fields):
            between = [parent for parent in parents[name] if parent in alone]
            if between:
                return _answer(_head(between[0], alone, parents), one, other)
            if len(parents[name]) != 1:
                return _answer(name, one, other)
            to = [f"{len(work.got)} to {name}" for work in (mine, others)]
            return FirstNode(parents[name][0], *to)  # it forwarded the same, to another node
        return _answer(name, one, other)
    return None


def _answer(name: str, one: Mapping[str, _Work], other: Mapping[str, _Work]) -> FirstNode:
    before, after = (side[name].text() if name in side else "no such record" for side in (one, other))
    if before == after:
        before, after = (side[name].text(whole=True) for side in (one, other))
    return FirstNode(name, before, after)


def _ends(node: Node, outputs: Collection[str], logs: Collection[str]) -> bool:
    """Return whether a node writes one of these outputs, or uses one of these stores."""
    if not isinstance(node, SinkNode):
        return any(store in logs for store in getattr(node, "stores", ()))
    table = None if node.table is None else f"{TABLE}{node.table.path}"
    return (
        bool(outputs) and (table or node.topic or next(iter(outputs))) in outputs
    )  # a topic that is chosen by record may be any


def _above(names: Iterable[str], parents: Mapping[str, Sequence[str]]) -> set[str]:
    """Return nodes and all those from which they get records."""
    found, left = set[str](), list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += parents[name]
    return found


def _head(name: str, alone: Collection[str], parents: Mapping[str, Sequence[str]]) -> str:
    """Return the first of the nodes in a row that only one side has."""
    while upper := [parent for parent in parents[name] if parent in alone]:
        name = upper[0]
    return name


def _by_node(visits: Sequence[NodeVisit], stores: Collection[str], names: Mapping[str, str]) -> dict[str, _Work]:
    found: dict[str, _Work] = {}
    for visit in visits:
        work = found.setdefault(names.get(visit.node, visit.node), _Work())
        if visit.input is not None:
            work.got.append(_fields(visit.input))
        work.forwarded += map(_fields, visit.outputs)
        work.sent += [
            {
                "key": sent.key,
                "value": sent.value,
                "timestamp": sent.timestamp,
                "headers": sent.headers,
                "partition": sent.partition,
            }
            for sent in visit.sent
        ]
        work.wrote += [
            {"store": access.store, "key": access.key, "row": access.after}
            for access in visit.stores
            if access.call in WRITES and access.store in stores
        ]
        work.dropped += visit.drops
        work.raised += [] if visit.error is None else [repr(visit.error)]
    return found


def _fields(record: TracedRecord) -> dict[str, Any]:
    return {"key": record.key, "value": record.value, "timestamp": record.timestamp, "headers": record.headers}


def _names(before: Topology, after: Topology) -> dict[str, str]:
    """Return by generated name of a node after the change the name that the same node had before: one node more shifts their numbers."""
    one, other = list(before.nodes), list(after.nodes)
    names: dict[str, str] = {}
    matcher = SequenceMatcher(None, _tokens(before), _tokens(after), autojunk=False)
    for what, start, stop, other_start, other_stop in matcher.get_opcodes():
        pairs = zip(one[start:stop], other[other_start:other_stop], strict=False) if what in ("equal", "replace") else ()
        names |= {new: old for old, new in pairs if _kind(before.nodes[old]) == _kind(after.nodes[new]) and _generated(old, new)}
    return {new: f"{new} (new)" for new in other if _generated(new) and new in before.nodes} | names


def _tokens(topology: Topology) -> list[tuple[str, str]]:
    code = whole_code(topology)
    return [(_kind(node), canonical(code.get(name))) if _generated(name) else ("", name) for name, node in topology.nodes.items()]


def _generated(*names: str) -> bool:
    return all(_NUMBER.search(name) for name in names)


def _kind(node: Node) -> str:
    return type(getattr(node, "operator", node)).__name__


def _parents(
    nodes: Mapping[str, Node], topologies: Sequence[Topology], names: Sequence[Mapping[str, str]]
) -> dict[str, list[str]]:
    """Return the nodes from which each node gets records on either side, through repartition topics, too."""
    parents: dict[str, dict[str, None]] = {name: {} for name in nodes}
    for topology, known in zip(topologies, names, strict=True):
        writers: dict[str | None, list[str]] = {}
        for node in topology.nodes.values():
            if isinstance(node, SinkNode) and node.topic is not None:
                writers.setdefault(node.topic, []).append(node.name)
        for node in topology.nodes.values():
            if isinstance(node, SourceNode):
                above = [name for topic in node.topics for name in writers.get(topic, ())]
            else:
                above = list(node.parents)
            parents[known.get(node.name, node.name)] |= dict.fromkeys(known.get(name, name) for name in above)
    return {name: list(above) for name, above in parents.items()}


def _sorted(nodes: Mapping[str, Node], parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the nodes so that each comes after those from which it gets records, as far as there is such an order."""
    left, done = dict.fromkeys(nodes), dict[str, None]()
    while left:
        ready = next((name for name in left if all(parent in done for parent in parents[name])), next(iter(left)))
        done[ready] = left.pop(ready)
    return list(done)
