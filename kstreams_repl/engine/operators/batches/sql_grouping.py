"""What a SELECT with GROUP BY computes, found in its syntax tree: the group keys, and how the results of two batches are merged.

A batch is an arbitrary part of the stream, so only aggregates are taken whose result for two batches follows from their results for
each: counts, sums, extremes, conjunctions, and averages as a sum and a count.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kstreams_repl.engine.operators.batches.sql_syntax import expression_text, items_of, parts, select_of
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import JsonObject

AT = "__at"
"""The result's column with the number of the group's latest record."""
RECORDS = "__records"
"""The result's column with the number of the group's records."""
ORDER = "__order"
"""The column with the numbers of the records in the order of time."""
MERGEABLE = "count, count_if, sum, min, max, avg, bool_and and bool_or"
_BEHIND = "compute it behind the table: sql(..., store=...).map_values(...)"


class Merge(StrEnum):
    """How a column of the result is merged with that of earlier batches."""

    SAME = "the same for all records of a group"
    COUNT = "added"
    SUM = "added; NULL for no value"
    MIN = "the smaller"
    MAX = "the larger"
    AND = "whether both are true"
    OR = "whether one is true"
    AVERAGE = "sum and count are added"


_MERGES = {
    "count": Merge.COUNT, "count_star": Merge.COUNT, "count_if": Merge.SUM, "countif": Merge.SUM, "sum": Merge.SUM, "min": Merge.MIN,
    "max": Merge.MAX, "bool_and": Merge.AND, "bool_or": Merge.OR, "avg": Merge.AVERAGE, "mean": Merge.AVERAGE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grouping:
    """The columns of the query over a batch: those of `merges`, one of counts per average, the keys, `RECORDS`, `AT`.

    Attributes:
        merges: of the selected columns.
        keys: the names of the group keys, as the fields of a key of several.
        by_key: the group key is the record's key.
    """

    merges: tuple[Merge, ...]
    keys: tuple[str, ...]
    by_key: bool

    @property
    def averages(self) -> list[int]:
        """Return the numbers of the columns that are averages."""
        return [number for number, merge in enumerate(self.merges) if merge is Merge.AVERAGE]


def group(database: Any, tree: JsonObject, query: str, fields: Collection[str], given: Collection[str]) -> Grouping:
    """Return what a query groups by, and make it one over a batch.

    Args:
        tree: its syntax tree. An average becomes a sum; counts, keys, `RECORDS` and `AT` are added to the select list.
        fields, given: names of the columns of `this`, in lower case, those of the value and the others: in GROUP BY they hide the names
            that AS gives.

    Raises:
        TopologyError: an aggregate cannot be merged, or there is no group key.
    """
    node = select_of(tree)
    items: list[JsonObject] = node["select_list"]
    aggregates = {name for (name,) in database.execute(_AGGREGATES).fetchall()}
    merges = tuple(_merge_of(item, aggregates, query) for item in items)
    keys, names = _keys(database, node, merges, query, {*fields, *given})
    counts = []
    for item in (items[number] for number, merge in enumerate(merges) if merge is Merge.AVERAGE):
        count = deepcopy(item)
        _rename(item, "sum")
        _rename(count, "count")
        counts.append(count)
    own = [["key"], *([source, "key"] for source in ("this", node["from_table"]["alias"].lower()))]
    by_key = len(keys) == 1 and "key" in given and [name.lower() for name in keys[0].get("column_names", ())] in own
    added = [*counts, *keys, *items_of(database, "count(*)", f"arg_max(__row, {ORDER})")]
    aliases = [*map(count_name, range(len(counts))), *map(key_name, range(len(keys))), RECORDS, AT]
    items += [{**item, "alias": alias} for item, alias in zip(added, aliases, strict=True)]
    return Grouping(merges, names, by_key)


def count_name(number: int) -> str:
    """Return the result's column with the count of an average."""
    return f"__count_{number}"


def key_name(number: int) -> str:
    """Return the result's column with a group key."""
    return f"__key_{number}"


_AGGREGATES = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"


def _merge_of(item: JsonObject, aggregates: Collection[str], query: str) -> Merge:
    if item.get("class") == "STAR":
        raise TopologyError(f"sql() cannot select * by group: {query}", hint="name the group keys and the aggregates")
    name = _aggregate(item, aggregates)
    if name is None:
        if any(_aggregate(part, aggregates) for part in parts(item)):
            raise TopologyError(f"sql() takes no expression over aggregates: {query}", hint=_BEHIND)
        return Merge.SAME
    if name not in _MERGES:
        raise TopologyError(
            f"sql() cannot merge {name}() of two batches: {query}",
            hint=f"it takes {MERGEABLE}; for others group_by_key() and aggregate()",
        )
    if item["distinct"] or item["order_bys"]["orders"]:
        raise TopologyError(f"sql() takes no DISTINCT and no ORDER BY in an aggregate: {query}", hint="group_by_key() and aggregate()")
    return _MERGES[name]


def _aggregate(item: JsonObject, aggregates: Collection[str]) -> str | None:
    name = item["function_name"].lower() if item.get("class") == "FUNCTION" else ""
    return name if name in aggregates else None


def _keys(
    database: object, node: JsonObject, merges: tuple[Merge, ...], query: str, columns: Collection[str]
) -> tuple[list[JsonObject], tuple[str, ...]]:
    """Return the group keys as entries of a select list, and their names."""
    items, groups = node["select_list"], node["group_expressions"]
    if node["aggregate_handling"] == "FORCE_AGGREGATES":  # GROUP BY ALL
        groups = [item for item, merge in zip(items, merges, strict=True) if merge is Merge.SAME]
    elif len(node["group_sets"]) != 1:
        raise TopologyError(f"sql() takes one GROUP BY of columns or ALL, without sets: {query}", hint="GROUP BY key")
    if not groups:
        raise TopologyError(f"sql() expected a group key, which is the key of the table: {query}", hint="add GROUP BY key")
    named = {item["alias"].lower(): item for item in items if item["alias"]}
    keys, names = [], []
    for expression in groups:
        text = expression_text(database, expression)
        key = expression
        if text.isdigit() and 0 < int(text) <= len(items):
            key = items[int(text) - 1]
        elif expression.get("class") == "COLUMN_REF" and len(expression["column_names"]) == 1:
            name = expression["column_names"][0].lower()
            key = expression if name in columns else named.get(name, expression)
        keys.append(deepcopy(key))
        names.append(key["alias"] or (key["column_names"][-1] if key.get("class") == "COLUMN_REF" else expression_text(database, key)))
    if len(set(names)) < len(names):
        raise TopologyError(f"sql() groups by two columns named {', '.join(names)}: {query}", hint="name one of them with AS")
    return keys, tuple(names)


def _rename(item: JsonObject, name: str) -> None:
    """Replace the function of a call."""
    item["function_name"] = name
    if "qualified_name" in item:
        item["qualified_name"] = {"path": [name]}
