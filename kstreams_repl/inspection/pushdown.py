"""Determine what a query needs of its topics, the columns and whether the first rows suffice, from the query as parsed by DuckDB.

When in doubt, everything is read: only a query whose every name is understood can leave a column out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

TOPIC_COLUMNS = frozenset({"key", "value", "partition", "offset", "timestamp", "headers", "window_start", "window_end"})
_WHOLE_ROWS = frozenset({"STAR", "POSITIONAL_REFERENCE", "SHOW_REF", "PIVOT", "NATURAL"})
_ROW_BY_ROW = frozenset({"COLUMN_REF", "STAR", "CONSTANT"})


def columns_needed(parsed: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the topic columns that a parsed query can use; None: all. Any other name is a field of ``value``."""
    qualifiers: set[str] = set()
    for node in _nodes(parsed):
        if any(str(node.get(part)) in _WHOLE_ROWS for part in ("type", "class", "ref_type")) or node.get("column_name_alias"):
            return None
        if node.get("type") == "BASE_TABLE":
            qualifiers |= {str(node.get(field)).lower() for field in ("schema_name", "table_name", "alias") if node.get(field)}
        elif node.get("alias") and "from_table" not in node and "class" not in node:
            qualifiers.add(str(node["alias"]).lower())
    needed: set[str] = set()
    for node in _nodes(parsed):
        for names in _references(node):
            parts = [name.lower() for name in names]
            while parts and parts[0] in qualifiers:
                parts.pop(0)
            if not parts:  # a reference to the row itself
                return None
            needed.add(parts[0] if parts[0] in TOPIC_COLUMNS else "value")
    return frozenset(needed)


def rows_needed(parsed: Mapping[str, Any]) -> int | None:
    """Return how many rows of its only table answer a parsed query, whichever rows they are; None: it needs all rows.

    Such a query has a LIMIT and no condition, order, group or function.
    """
    statements = parsed.get("statements") or [{}]
    node = statements[0].get("node") or {}
    source = node.get("from_table") or {}
    if len(statements) != 1 or node.get("type") != "SELECT_NODE" or source.get("type") != "BASE_TABLE":
        return None
    if any(node.get(part) for part in ("where_clause", "having", "qualify", "sample", "group_expressions", "group_sets")):
        return None
    if source.get("sample") or (node.get("cte_map") or {}).get("map"):
        return None
    if node.get("aggregate_handling") != "STANDARD_HANDLING":  # GROUP BY ALL
        return None
    modifiers = node.get("modifiers") or []
    if len(modifiers) != 1 or modifiers[0].get("type") != "LIMIT_MODIFIER":
        return None
    if any("class" in inner and inner["class"] not in _ROW_BY_ROW for inner in _nodes(node.get("select_list"))):
        return None
    if modifiers[0].get("limit_type", "ROW_COUNT") != "ROW_COUNT" or not modifiers[0].get("limit"):
        return None
    counts = [_constant(modifiers[0].get(part)) for part in ("limit", "offset")]
    return None if counts[0] is None or counts[1] is None else counts[0] + counts[1]


def _references(node: Mapping[str, Any]) -> Iterator[list[str]]:
    if node.get("class") == "COLUMN_REF":
        yield list(node.get("column_names") or ())
    for name in node.get("using_columns") or ():
        yield [name]


def _constant(node: Any) -> int | None:
    """Return the number in an expression; 0 for no expression; None for anything other than a number."""
    if not node:
        return 0
    literal = node.get("literal") or {}
    text = literal.get("text", "") if node.get("class") == "CONSTANT" and literal.get("kind") == "INTEGER" else ""
    if not text:
        value = (node.get("value") or {}).get("value") if node.get("class") == "CONSTANT" else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    return int(text) if text.isdigit() else None


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    pending = [tree]
    while pending:
        here = pending.pop()
        if isinstance(here, list):
            pending += here
        elif isinstance(here, dict):
            yield here
            pending += here.values()
