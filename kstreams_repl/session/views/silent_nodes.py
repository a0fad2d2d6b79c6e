"""Nodes that take records and forward none: find them, and explain them as far as a sample of the topics shows the cause.

`silent_nodes` only needs counts: pictures use it, deployed or not. `where_values_end` explains a peek with few values: it walks
up from the requested node, through repartition topics and tables, and names the nodes at which records ended. It reports only
what the sample shows, and says so if the sample has only part of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kstreams_repl.display.markup import one_line
from kstreams_repl.operators.stream_global_table_join import StreamGlobalTableJoin
from kstreams_repl.operators.stream_stream_join import StreamStreamJoin
from kstreams_repl.operators.stream_table_join import StreamTableJoin
from kstreams_repl.operators.table_source import TableSource
from kstreams_repl.operators.table_suppress import TableSuppress
from kstreams_repl.operators.table_table_join import TableTableJoin
from kstreams_repl.operators.value_getters import StoreGetter
from kstreams_repl.session.topics.records import time_text
from kstreams_repl.session.views.sample import Sample
from kstreams_repl.topology.nodes import ProcessorNode, SinkNode, SourceNode
from kstreams_repl.topology.topology import Topology

MUCH = 100
"""A deployed node that has taken this many records and forwarded none is marked."""

_SIDES = (StreamStreamJoin, TableTableJoin)


def silent_nodes(
    topology: Topology, passed: Mapping[str, tuple[int, int]], *, at_least: int = MUCH, caches: bool = True, waiting: bool = False
) -> list[str]:
    """Return the nodes that have taken records and forwarded none, though others are below them.

    A join of two streams or two tables has a node for each side, and the side whose records always come first forwards none: such
    nodes are silent only when all sides are.

    Args:
        passed: (taken, forwarded) by node.
        at_least: records taken.
        caches: include nodes with a record cache; they forward at a commit, so exclude them for a running application.
        waiting: include nodes that forward when a window closes.
    """
    return [
        name
        for name, (taken, given) in passed.items()
        if taken >= at_least and not given and _may_be_silent(topology, name, passed, caches=caches, waiting=waiting)
    ]


def where_values_end(topology: Topology, sample: Sample, node: str | None, store: Callable[[str], Any]) -> list[str]:
    """Return one line for each node at which records of a sample ended on their way to a node: "filter paid: 1,000 in, 0 out".

    Args:
        node: the requested node; None: all nodes of the topology.
        store: returns a state store by name, as it is after the sample.
    """
    passed = {name: (count.taken, count.given) for name, count in sample.counts.items()}
    above = set(topology.nodes) if node is None else _above(topology, node)
    silent = silent_nodes(topology, passed, at_least=1, waiting=True)
    lines = []
    for name in topology.nodes:
        taken, given = passed.get(name, (0, 0))
        if name not in above:
            continue
        numbers = f"{_word(topology, name)} {_label(topology, name)}: {taken:,} in, "
        if name in silent:
            why = _why(topology, name, sample, store)
            lines.append(f"{numbers}0 out{': ' if why else ''}{why}")
        elif node is not None and taken >= MUCH and 0 < given <= taken / MUCH:
            lines.append(f"{numbers}{given:,} out")
        elif node is not None and given and name != node:
            to = [child for child in topology.children(name) if child in above and not passed.get(child, (0, 0))[0]]
            lines += [f"{numbers}0 to {child}" for child in to]
    return lines


def _may_be_silent(topology: Topology, name: str, passed: Mapping[str, tuple[int, int]], *, caches: bool, waiting: bool) -> bool:
    node, children = topology.nodes[name], topology.children(name)
    if not children or not isinstance(node, ProcessorNode):
        return False
    if not waiting and (isinstance(node.operator, TableSuppress) or getattr(node.operator, "emit_on_close", False)):
        return False
    if not caches and any(topology.store(store).caching and _owner(topology, store) == name for store in node.stores):
        return False
    return not any(passed.get(side, (0, 0))[1] for side in _other_sides(topology, name))


def _other_sides(topology: Topology, name: str) -> list[str]:
    """Return the other nodes of a join that has one for each side."""
    operator = getattr(topology.nodes[name], "operator", None)
    if not isinstance(operator, _SIDES):
        return []
    siblings = {parent for child in topology.children(name) for parent in getattr(topology.nodes[child], "parents", ())}
    return [other for other in siblings if other != name and type(getattr(topology.nodes[other], "operator", None)) is type(operator)]


def _above(topology: Topology, node: str) -> set[str]:
    """Return the node and everything upstream of it: parents, repartition topics, joined tables."""
    found: set[str] = set()
    left = [node]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        at = topology.nodes[name]
        if isinstance(at, SourceNode):
            left += [n.name for n in topology.nodes.values() if isinstance(n, SinkNode) and n.topic in at.topics]
        else:
            left += at.parents
        if isinstance(at, ProcessorNode):
            left += [_owner(topology, store) for store in at.stores]
    return found


def _owner(topology: Topology, store: str) -> str:
    """Return the node that writes a store: the first one that has it."""
    shared = topology.global_stores()
    nodes = [*(() if shared is None else shared.nodes), *topology.nodes.values()]
    return next(node.name for node in nodes if isinstance(node, ProcessorNode) and store in node.stores)


def _why(topology: Topology, name: str, sample: Sample, store: Callable[[str], Any]) -> str:
    count, operator = sample.counts[name], getattr(topology.nodes[name], "operator", None)
    dropped = [f"{number:,} dropped: {reason}" for reason, number in count.dropped.items()]
    if sum(count.dropped.values()) >= count.taken:
        return ", ".join(dropped)
    why = ""
    if isinstance(operator, StreamTableJoin | StreamGlobalTableJoin) and not operator.left:
        grace = isinstance(operator, StreamTableJoin) and operator.buffer_store is not None
        why = "" if grace else _no_row(topology, name, operator, sample, store)
    elif isinstance(operator, StreamStreamJoin):
        others = sum(sample.counts[side].taken for side in _other_sides(topology, name) if side in sample.counts)
        why = "no record of the other side has the same key within the window" if others else "no record has come to the other side"
    elif isinstance(operator, TableSuppress) or getattr(operator, "emit_on_close", False):
        why = "it forwards when a window closes or a time limit is over"
    return ", ".join(filter(None, [why, *dropped]))


def _no_row(
    topology: Topology, name: str, join: StreamTableJoin | StreamGlobalTableJoin, sample: Sample, store: Callable[[str], Any]
) -> str:
    """Return why a join with a table found no row for any record."""
    stores = join.table.stores()
    if len(stores) != 1:
        return "no row for their keys at that time"
    owner = _owner(topology, stores[0])
    table, rows = _label(topology, owner), sample.nodes[owner]
    entered = sample.counts[owner].taken if owner in sample.counts else 0
    if not entered:
        return f"{table} has no records" if sample.whole else f"the sample has no records of {table}"
    part = next((sample.parts[topic] for topic in _topics(topology, owner) if topic in sample.parts), None)
    left_out = "" if part is None else f" (the sample has {part[0]:,} of its {part[1]:,} records)"
    above = [sample.nodes[parent] for parent in topology.nodes[name].parents]  # type: ignore[union-attr]
    last = max((one.latest for one in above if one.count), default=None)
    if rows.count and last is not None and rows.earliest > last:
        return (
            f"no row in {table} at that time; its first is from {time_text(rows.earliest)}, "
            f"the last record to join from {time_text(last)}{left_out}"
        )
    if isinstance(join, StreamGlobalTableJoin):  # looked up by other keys than the records have
        return f"no row in {table} for their keys{left_out}"
    keys = [record.key for one in above for record in one.last if record.key is not None]
    if not keys:
        return f"no row in {table} for their keys at that time{left_out}"
    if not any(_has(store(stores[0]), key) for key in keys):
        like = [*dict.fromkeys(one_line(repr(key), limit=40) for key in reversed(keys))][:1]
        there = [one_line(repr(record.key), limit=40) for record in rows.last][-1:]
        examples = f"; it has keys like {there[0]}" if there else ""
        return f"no row in {table} for keys like {like[0]}{examples}{left_out}"
    if not isinstance(join.table, StoreGetter):
        return f"{table} has rows for its keys, and what is between the table and the join lets none through{left_out}"
    return f"no row in {table} at that time; rows for their keys came later{left_out}"


def _has(store: Any, key: Any) -> bool:
    get = getattr(store, "get", None)
    return get is not None and get(key) is not None


def _word(topology: Topology, name: str) -> str:
    return str(getattr(getattr(topology.nodes[name], "operator", None), "word", "node"))


def _label(topology: Topology, name: str) -> str:
    """Return the name that a user knows: for a table without a name of its own, its topic."""
    operator = getattr(topology.nodes[name], "operator", None)
    if isinstance(operator, TableSource) and name.startswith(("KTABLE-", "KSTREAM-")):
        return next(iter(_topics(topology, name)), name)
    return name


def _topics(topology: Topology, name: str) -> list[str]:
    parents = [topology.nodes[parent] for parent in getattr(topology.nodes[name], "parents", ())]
    return [topic for parent in parents if isinstance(parent, SourceNode) for topic in parent.topics]
