"""What `sql` takes: the SELECT as DuckDB's own syntax tree, searched for what depends on other records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import JsonObject

ROW = "__row"
"""The column with the number of the record in its batch."""
ONE_SELECT = "write SELECT columns FROM this WHERE condition"
NOT_BY_RECORD = (
    "a batch is an arbitrary part of the stream: aggregate by GROUP BY into a store, sql(..., store=\"totals\"), "
    "or use group_by_key() and count(), reduce() or aggregate() behind it"
)
_REFUSED = ("modifiers", "having", "sample", "qualify")
"""Parts of the SELECT that need other records: modifiers are ORDER BY, DISTINCT and LIMIT."""


def parsed(database: object, query: object) -> JsonObject:
    """Return the syntax tree of a statement that is one SELECT FROM this, without what needs other records than its own group's.

    Raises:
        TopologyError: it is not.
    """
    if not isinstance(query, str):
        raise TopologyError(f"sql() expected a query as text, got {query!r}", hint=ONE_SELECT)
    tree = _tree(database, query)
    if tree["error"]:
        what = "is not a SELECT" if tree["error_type"] == "not implemented" else f"does not parse: {tree['error_message']}"
        raise TopologyError(f"sql() {what}: {query}", hint=ONE_SELECT)
    statements = tree["statements"]
    if len(statements) != 1:
        raise TopologyError(f"sql() expected one SELECT, got {len(statements)} statements", hint=ONE_SELECT)
    node = select_of(tree)
    source = node.get("from_table") or {}
    table = source.get("type"), source.get("table_name"), source.get("schema_name"), source.get("catalog_name")
    if node["type"] != "SELECT_NODE" or table != ("BASE_TABLE", "this", "", ""):
        raise TopologyError(f"sql() reads nothing but the stream, by the name this: {query}", hint=ONE_SELECT)
    inner = list(parts(node))
    if node["cte_map"]["map"] or any(part.get("class") == "SUBQUERY" for part in inner):
        raise TopologyError(f"sql() takes no subquery and no WITH: {query}", hint=f"{ONE_SELECT}; chain two calls of sql()")
    if source.get("sample") or any(node.get(name) for name in _REFUSED) or any(part.get("class") == "WINDOW" for part in inner):
        raise TopologyError(
            f"sql() takes no window function, ORDER BY, DISTINCT, LIMIT, HAVING, QUALIFY or sample: {query}", hint=NOT_BY_RECORD
        )
    return tree


def groups(tree: JsonObject) -> bool:
    """Return whether the SELECT has a GROUP BY."""
    node = select_of(tree)
    return bool(node["group_sets"]) or node["aggregate_handling"] != "STANDARD_HANDLING"


def select_of(tree: JsonObject) -> JsonObject:
    """Return the node of the SELECT."""
    node: JsonObject = tree["statements"][0]["node"]
    return node


def columns_of(tree: JsonObject, given: Sequence[str]) -> tuple[frozenset[str], bool]:
    """Return the names of columns in the query, in lower case, and whether it selects all by ``*``.

    Args:
        given: columns that ``*`` leaves out.
    """
    node = select_of(tree)
    names: set[str] = set()
    stars = []
    for part in parts(node):
        if part.get("class") == "COLUMN_REF":
            names.update(map(str.lower, part["column_names"]))  # as DuckDB compares names
        elif part.get("class") == "STAR":
            stars.append(part)
    hidden = [name for name in given if name in names]
    for part in stars:  # `*` is what the values consist of
        part["exclude_list"] = [*part.get("exclude_list", ()), ROW]
        part["exclude_list"] += [name for name in hidden if name not in part["exclude_list"]]
    return frozenset(names), bool(stars)


def text_of(database: Any, tree: JsonObject) -> str:
    """Return the query as text."""
    ((text,),) = database.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()
    return str(text)


def items_of(database: object, *expressions: str) -> list[JsonObject]:
    """Return expressions as entries of a select list."""
    items: list[JsonObject] = select_of(_tree(database, f"SELECT {', '.join(expressions)}"))["select_list"]
    return items


def expression_text(database: object, item: JsonObject) -> str:
    """Return an entry of a select list as text, without its alias."""
    tree = _tree(database, "SELECT 1")
    select_of(tree)["select_list"] = [{**item, "alias": ""}]
    return text_of(database, tree).removeprefix("SELECT ")


def _tree(database: Any, query: str) -> JsonObject:
    ((text,),) = database.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
    tree: JsonObject = json.loads(text)
    return tree


def parts(tree: object) -> Iterator[JsonObject]:
    """Yield every node below one, itself included."""
    pending = [tree]
    while pending:
        here = pending.pop()
        if isinstance(here, list):
            pending += here
        elif isinstance(here, dict):
            yield here
            pending += here.values()
