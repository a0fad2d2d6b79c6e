"""Nodes that take records and forward none: find them, and explain them as far as a sample of the topics shows the cause.

`silent_nodes` only needs counts: pictures use it, deployed or not. `where_values_end` explains a sample with few values: it walks
up from the requested node, through repartition topics and tables, and names the nodes at which records ended. It reports only
what the sample shows, and says so if the sample has only part of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kstreams_repl.engine.operators.foreign_key.foreign_key_foreign_table_join import ForeignTableJoin
from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_join import SubscriptionJoin
from kstreams_repl.engine.operators.joins.stream_global_table_join import StreamGlobalTableJoin
from kstreams_repl.engine.operators.joins.stream_join_window import StreamJoinWindow
from kstreams_repl.engine.operators.joins.stream_stream_join import StreamStreamJoin
from kstreams_repl.engine.operators.joins.stream_table_join import StreamTableJoin
from kstreams_repl.engine.operators.joins.table_table_join import TableTableJoin
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.operators.tables.table_suppress import TableSuppress
from kstreams_repl.engine.operators.tables.value_getters import StoreGetter, ValueGetter
from kstreams_repl.engine.topology.nodes import ProcessorNode, SinkNode, SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.wording import time_text
from kstreams_repl.repl.session.views.picture.join_keys import difference, keys_of_store
from kstreams_repl.repl.session.views.values.sample import Sample

MUCH = 100
"""A deployed node that has taken this many records and forwarded none is marked."""

_SIDES = (StreamStreamJoin, TableTableJoin, SubscriptionJoin | ForeignTableJoin)


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


def where_values_end(
    topology: Topology, sample: Sample, node: str | None, store: Callable[[str], Any], *, joins_only: bool = False
) -> list[str]:
    """Return one line for each node at which records of a sample ended on their way to a node: "filter paid: 1,000 in, 0 out".

    Args:
        node: the requested node; None: all nodes of the topology.
        store: returns a state store by name, as it is after the sample.
        joins_only: explain only joins that found no partner for some keys.
    """
    last = {
        name
        for name, one in topology.nodes.items()
        if isinstance(one, ProcessorNode) and not topology.children(name) and (name == node or name in sample.keys.arrived)
    }
    passed = {
        name: (count.taken, sample.nodes[name].count if name in last else count.given) for name, count in sample.counts.items()
    }
    above = set(topology.nodes) if node is None else upstream(topology, node)
    silent = {*silent_nodes(topology, passed, at_least=1, waiting=True), *(name for name in last if not passed.get(name, (0, 1))[1])}
    lines = []
    for name in topology.nodes:
        taken, given = passed.get(name, (0, 0))
        if name not in above or not taken:
            continue
        numbers = f"{_word(topology, name)} {_label(topology, name)}: {taken:,} in, "
        missed = _missed_keys(topology, name, sample, store)
        if name in silent and not joins_only:
            why = _why(topology, name, sample, store, missed)
            lines.append(f"{numbers}0 out{': ' if why else ''}{why}")
        elif missed:
            lines.append(f"{numbers}{given:,} out: {missed}")
        elif node is None or joins_only:
            continue
        elif taken >= MUCH and 0 < given <= taken / MUCH:
            lines.append(f"{numbers}{given:,} out")
        elif given and name != node:
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
    kind = next((kind for kind in _SIDES if isinstance(operator, kind)), None)
    if kind is None:
        return []
    siblings = {parent for child in topology.children(name) for parent in getattr(topology.nodes[child], "parents", ())}
    return [other for other in siblings if other != name and isinstance(getattr(topology.nodes[other], "operator", None), kind)]


def upstream(topology: Topology, node: str) -> set[str]:
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


def _why(topology: Topology, name: str, sample: Sample, store: Callable[[str], Any], missed: str) -> str:
    count, operator = sample.counts[name], getattr(topology.nodes[name], "operator", None)
    dropped = [f"{number:,} dropped: {reason}" for reason, number in count.dropped.items()]
    if sum(count.dropped.values()) >= count.taken:
        return ", ".join(dropped)
    why = missed
    if isinstance(operator, StreamTableJoin | StreamGlobalTableJoin) and not operator.left:
        grace = isinstance(operator, StreamTableJoin) and operator.buffer_store is not None
        why = missed if grace else _no_row(topology, name, operator, sample, missed)
    elif isinstance(operator, StreamStreamJoin) and not missed:
        others = sum(sample.counts[side].taken for side in _other_sides(topology, name) if side in sample.counts)
        why = "no record of the other side has the same key within the window" if others else "no record has come to the other side"
    elif isinstance(operator, TableSuppress) or getattr(operator, "emit_on_close", False):
        why = "it forwards when a window closes or a time limit is over"
    return ", ".join(filter(None, [why, *dropped]))


def _missed_keys(topology: Topology, name: str, sample: Sample, store: Callable[[str], Any]) -> str:
    """Return how many keys of a join's records the other side has, and why it lacks the others; "" if it has them all."""
    keys, operator = sample.keys.arrived.get(name), getattr(topology.nodes[name], "operator", None)
    if not keys:
        return ""
    if isinstance(operator, StreamStreamJoin | TableTableJoin):
        sides = [side for side in _other_sides(topology, name) if sample.keys.arrived.get(side)]
        if not sides or (not operator.left_side if isinstance(operator, StreamStreamJoin) else operator.this_is_right):
            return ""
        parents = getattr(topology.nodes[sides[0]], "parents", ())
        label = " and ".join(_label(topology, _above_window(topology, parent)) for parent in parents)
        return difference(keys, sample.keys.arrived[sides[0]], label, guesses_only=True)
    stores = _table_of(operator).stores()
    if len(stores) != 1:
        return ""
    there, owner = keys_of_store(store(stores[0])), _owner(topology, stores[0])
    missed = difference(keys, there, _label(topology, owner)) if there else ""
    return f"{missed}{_left_out(topology, owner, sample)}" if missed else ""


def _above_window(topology: Topology, name: str) -> str:
    """Return the node whose records a join of streams keeps in a window: the parent of the node that keeps them."""
    node = topology.nodes[name]
    return node.parents[0] if isinstance(node, ProcessorNode) and isinstance(node.operator, StreamJoinWindow) else name


def _table_of(join: Any) -> ValueGetter:
    getter: ValueGetter = join.foreign if isinstance(join, SubscriptionJoin) else join.table
    return getter


def _left_out(topology: Topology, owner: str, sample: Sample) -> str:
    part = next((sample.parts[topic] for topic in _topics(topology, owner) if topic in sample.parts), None)
    return "" if part is None else f" (the sample has {part[0]:,} of at most {part[1]:,} records)"


def _no_row(topology: Topology, name: str, join: StreamTableJoin | StreamGlobalTableJoin, sample: Sample, missed: str) -> str:
    """Return why a join with a table found no row for any record.

    Args:
        missed: the keys that the table lacks (`_missed_keys`).
    """
    stores = join.table.stores()
    if len(stores) != 1:
        return "no row for their keys at that time"
    owner = _owner(topology, stores[0])
    table, rows = _label(topology, owner), sample.nodes.get(owner)
    entered = sample.counts[owner].taken if owner in sample.counts else 0
    if not entered:
        return f"{table} has no records" if sample.whole else f"the sample has no records of {table}"
    if missed.startswith("0 of "):
        return missed
    found, left_out = f"{missed}; of the others " if missed else "", _left_out(topology, owner, sample)
    above = [sample.nodes[parent] for parent in topology.nodes[name].parents]  # type: ignore[union-attr]
    last = max((one.latest for one in above if one.count), default=None)
    if rows is not None and rows.count and last is not None and rows.earliest > last:
        return (
            f"{found}no row in {table} at that time; its first is from {time_text(rows.earliest)}, "
            f"the last record to join from {time_text(last)}{left_out}"
        )
    if not isinstance(join.table, StoreGetter):
        return f"{found}{table} has rows for its keys, and what is between the table and the join lets none through{left_out}"
    return f"{found}no row in {table} at that time; rows for their keys came later{left_out}"


def _word(topology: Topology, name: str) -> str:
    return str(getattr(getattr(topology.nodes[name], "operator", None), "word", "node"))


def _label(topology: Topology, name: str) -> str:
    """Return the name that a user knows: for a table or source without a name of its own, its topic."""
    node = topology.nodes.get(name)
    if isinstance(getattr(node, "operator", None), TableSource) and name.startswith(("KTABLE-", "KSTREAM-")):
        return next(iter(_topics(topology, name)), name)
    if isinstance(node, SourceNode) and name.startswith("KSTREAM-") and node.topics:
        return ", ".join(node.topics)
    return name


def _topics(topology: Topology, name: str) -> list[str]:
    parents = [topology.nodes[parent] for parent in getattr(topology.nodes[name], "parents", ())]
    return [topic for parent in parents if isinstance(parent, SourceNode) for topic in parent.topics]
