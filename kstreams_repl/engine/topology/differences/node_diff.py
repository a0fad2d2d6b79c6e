"""The nodes' part of the plan of an edit: which are unchanged, changed in code only, changed, new or removed.

The code of a node is compared by what its functions do, not by identity, so that running an unchanged cell again changes nothing.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from kstreams_repl.engine.topology.differences.fingerprint import fields_of, fingerprint, whole_fingerprint
from kstreams_repl.engine.topology.differences.schema_diff import SchemaDiff
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode


class NodeChange(StrEnum):
    UNCHANGED = "unchanged"
    CODE = "code only"
    MOVED = "changed"  # other parents, topics, stores or operator
    NEW = "new"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class NodeDiff:
    """One node's part of the plan."""

    name: str
    change: NodeChange
    reason: str = ""


def whole_code(topology: TopologyGraph) -> dict[str, object]:
    """Return what each node's functions do now, and what they read from the user's modules; omits nodes that cannot be
    inspected."""
    code = {}
    for node in topology.nodes.values():
        with suppress(Exception):  # attributes of user objects may raise
            code[node.name] = _code(node, whole_fingerprint)
    return code


def node_diff(old: Node | None, new: Node | None, ran: object = None, schemas: Sequence[SchemaDiff] = ()) -> NodeDiff:
    """Return what an edit changes in one node; None: there is no such node before, or after.

    Args:
        ran: `whole_code` of the node when it began to run.
        schemas: what was found of its schemas.
    """
    if old is None:
        assert new is not None
        return NodeDiff(new.name, NodeChange.NEW)
    if new is None:
        return NodeDiff(old.name, NodeChange.REMOVED)
    reason = _structure(old, new)
    if not reason and any(schema.edited for schema in schemas):
        reason = f"{'reads' if isinstance(new, SourceNode) else 'writes'} with another schema"
    if reason:
        return NodeDiff(new.name, NodeChange.MOVED, reason)
    if _code(old) != _code(new):
        return NodeDiff(new.name, NodeChange.CODE)
    if ran is not None and ran != _code(new, whole_fingerprint):
        return NodeDiff(new.name, NodeChange.CODE, "a function or value that it uses has changed")
    return NodeDiff(new.name, NodeChange.UNCHANGED)


def _structure(old: Node, new: Node) -> str:
    """Return what differs besides functions, in words; empty if nothing does."""
    if type(old) is not type(new):
        return f"was a {_kind(old)}, is a {_kind(new)}"
    if isinstance(old, SourceNode) and isinstance(new, SourceNode):
        if (old.topics, _pattern(old)) != (new.topics, _pattern(new)):
            return "reads other topics"
        if _serdes(old) != _serdes(new):
            return "reads with another serde"
        return "" if old.offset_reset == new.offset_reset else "another offset reset"
    if isinstance(old, SinkNode) and isinstance(new, SinkNode):
        if (before := _table(old)) != (after := _table(new)):
            return f"writes {after or 'a topic'} instead of {before or 'a topic'}"
        if old.topic != new.topic:
            return f"writes {new.topic or 'topics chosen per record'} instead of {old.topic or 'topics chosen per record'}"
        if _serdes(old) != _serdes(new):
            return "writes with another serde"
    if isinstance(old, ProcessorNode) and isinstance(new, ProcessorNode):
        if _operator_kind(old) != _operator_kind(new):
            return f"was {_operator_kind(old)}, is {_operator_kind(new)}"
        if old.stores != new.stores:
            return "uses other stores"
        changed = _settings(old.operator, new.operator)
        if changed:
            return f"other settings: {', '.join(changed)}"
    if not isinstance(old, SourceNode) and not isinstance(new, SourceNode) and old.parents != new.parents:
        return f"downstream of {', '.join(new.parents)} instead of {', '.join(old.parents)}"
    return ""


def _kind(node: Node) -> str:
    return type(node).__name__.removesuffix("Node").lower()


def _operator_kind(node: ProcessorNode) -> str:
    """Return the class name of the DSL operator. User suppliers all have one kind; their class counts as code."""
    return type(node.operator).__name__ if hasattr(node.operator, "build") else "processor"


def _pattern(node: SourceNode) -> tuple[str, int] | None:
    return None if node.pattern is None else (node.pattern.pattern, node.pattern.flags)


def _table(node: SinkNode) -> str:
    """Return what another table, or another layout of the same one, changes; settings of its commits change nothing."""
    table = node.table
    if table is None:
        return ""
    by = f" by {', '.join(table.partition_by)}" if table.partition_by else ""
    return f"the {table.format} table {table.path}{by} ({', '.join(f'{field.name}: {field.type}' for field in table.schema)})"


def _serdes(node: SourceNode | SinkNode) -> tuple[str | None, str | None]:
    return serde_name(node.key_serde), serde_name(node.value_serde)


def serde_name(serde: object) -> str | None:
    """Return a serde's name; two serdes with the same name are assumed to write the same bytes."""
    if serde is None:
        return None
    return str(getattr(serde, "name", None) or repr(serde))


def _settings(old: object, new: object) -> list[str]:
    """Return the names of an operator's plain fields (numbers, names, flags) that differ."""
    before, after = fields_of(old), fields_of(new)
    return [name for name in after if _plain(before.get(name)) and _plain(after[name]) and before.get(name) != after[name]]


def _plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_plain(item) for item in value)
    return isinstance(value, (str, int, float, bool, types.NoneType))


def _code(node: Node, identify: Callable[[object], object] = fingerprint) -> object:
    if isinstance(node, SourceNode):
        return identify(node.timestamp_extractor)
    if isinstance(node, SinkNode):
        return identify(node.topic_extractor), identify(node.partitioner)
    return identify(node.operator)
