"""Determine what a query needs of its topics and stores, from the query as parsed by DuckDB: the columns, the rows that its conditions
admit, and whether the first rows suffice.

DuckDB still evaluates the whole query, so reading too much is never wrong. When in doubt, everything is read: only a query whose every name
is understood leaves a column out, and only a condition on a plain column and a constant leaves rows out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.operators.batches.sql_syntax import parts
from kstreams_repl.system.types import JsonMapping

TOPIC_COLUMNS = frozenset({"key", "value", "partition", "offset", "timestamp", "headers", "window_start", "window_end"})
_WHOLE_ROWS = frozenset({"STAR", "POSITIONAL_REFERENCE", "SHOW_REF", "PIVOT", "NATURAL"})
_ROW_BY_ROW = frozenset(
    {"COLUMN_REF", "STAR", "CONSTANT", "CAST", "TYPE", "COMPARISON", "CONJUNCTION", "BETWEEN", "OPERATOR", "CASE"}
)
"""Expressions that depend on one row."""
_NOW = frozenset({"now", "today", "get_current_timestamp"})
_MADE = frozenset({"make_date", "make_timestamp", "make_timestamp_ms", "epoch_ms", "to_timestamp"})
_SPANS = frozenset(
    {"to_years", "to_months", "to_weeks", "to_days", "to_hours", "to_minutes", "to_seconds", "to_milliseconds", "trunc"}
)
_MIRRORED = {
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
}

Evaluate = Callable[[JsonMapping], int | None]
"""Returns the epoch milliseconds of a constant expression, at most its value; None if they are unknown."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values of a column that a query can use: from `low` to `high` (both included) and one of `among`; None: no such bound."""

    low: int | None = None
    high: int | None = None
    among: frozenset[Any] | None = None

    def __and__(self, other: Bounds) -> Bounds:
        lows = [bounds.low for bounds in (self, other) if bounds.low is not None]
        highs = [bounds.high for bounds in (self, other) if bounds.high is not None]
        sets = [bounds.among for bounds in (self, other) if bounds.among is not None]
        return Bounds(max(lows, default=None), min(highs, default=None), frozenset.intersection(*sets) if sets else None)

    def admit(self, value: int) -> bool:
        """Return whether a value is within the bounds."""
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.among is None or value in self.among)
        )


UNBOUNDED = Bounds()


def columns_needed(parsed: JsonMapping) -> frozenset[str] | None:
    """Return the topic columns that a parsed query can use; None: all. Any other name is a field of ``value``."""
    qualifiers: set[str] = set()
    for node in parts(parsed):
        if any(str(node.get(part)) in _WHOLE_ROWS for part in ("type", "class", "ref_type")) or node.get("column_name_alias"):
            return None
        if node.get("type") == "BASE_TABLE":
            qualifiers |= {str(node.get(field)).lower() for field in ("schema_name", "table_name", "alias") if node.get(field)}
        elif node.get("alias") and "from_table" not in node and "class" not in node:
            qualifiers.add(str(node["alias"]).lower())
    needed: set[str] = set()
    for node in parts(parsed):
        for names in _references(node):
            path = [name.lower() for name in names]
            while path and path[0] in qualifiers:
                path.pop(0)
            if not path:  # a reference to the row itself
                return None
            needed.add(path[0] if path[0] in TOPIC_COLUMNS else "value")
    return frozenset(needed)


def bounds_of(parsed: JsonMapping, schema: str, name: str, milliseconds: Evaluate) -> dict[str, Bounds]:
    """Return bounds by column that every row meets which a parsed query can use of a table; {}: it can use all rows.

    They are those conditions, joined by AND, of the only SELECT that names the table which compare ``partition``, ``offset``, ``timestamp``
    or ``key`` with constants. Bounds of ``timestamp`` are in epoch milliseconds, those of ``key`` are integers or strings.
    """
    wanted = (schema.lower(), name.lower())
    if sum(node.get("type") == "BASE_TABLE" and _table(node) == wanted for node in parts(parsed)) != 1:
        return {}
    for select in parts(parsed):
        if select.get("type") != "SELECT_NODE" or select.get("sample"):
            continue
        tables = list(_joined(select.get("from_table") or {}))
        for table in tables:
            called = str(table.get("alias") or table.get("table_name")).lower()
            if _table(table) != wanted or table.get("sample") or table.get("column_name_alias") or called in TOPIC_COLUMNS:
                continue
            qualifiers: list[list[str]] = [[called], [*wanted]] if len(tables) > 1 else [[], [called], [*wanted]]
            bounds: dict[str, Bounds] = {}
            for condition in _joined_by_and(select.get("where_clause")):
                for column, found in _bounds(condition, qualifiers, milliseconds):
                    bounds[column] = bounds.get(column, UNBOUNDED) & found
            return bounds
    return {}


def _table(node: JsonMapping) -> tuple[str, str]:
    return str(node.get("schema_name") or "").lower(), str(node.get("table_name") or "").lower()


def _joined(source: JsonMapping) -> Iterator[JsonMapping]:
    """Yield the sources of a FROM clause; those of a join whose rows depend on rows that do not match count as one source."""
    plain = source.get("type") == "JOIN" and source.get("ref_type") in ("REGULAR", "CROSS") and source.get("join_type") in ("INNER", "LEFT")
    if plain and not source.get("sample"):
        yield from _joined(source["left"])
        yield from _joined(source["right"])
    else:
        yield source


def _joined_by_and(node: JsonMapping | None) -> Iterator[JsonMapping]:
    if node and node.get("type") == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from _joined_by_and(child)
    elif node:
        yield node


def _bounds(condition: JsonMapping, qualifiers: list[list[str]], milliseconds: Evaluate) -> Iterator[tuple[str, Bounds]]:
    """Yield the bounds that a condition sets to a column of a table; none if it is not a comparison with constants."""
    comparisons = []
    if condition.get("class") == "COMPARISON" and condition["type"] in _MIRRORED:
        left, right, kind = condition["left"], condition["right"], condition["type"]
        comparisons = [(left, kind, right), (right, _MIRRORED[kind], left)]
    elif condition.get("type") == "COMPARE_BETWEEN":
        comparisons = [
            (condition["input"], "COMPARE_GREATERTHANOREQUALTO", condition["lower"]),
            (condition["input"], "COMPARE_LESSTHANOREQUALTO", condition["upper"]),
        ]
    elif condition.get("type") == "COMPARE_IN":
        subject, *values = condition["children"]
        column = _column(subject, qualifiers)
        constants: list[Any] = [None if column is None else _value(column, value, milliseconds) for value in values]
        if column is not None and None not in constants:
            yield column, Bounds(low=min(constants)) if column == "timestamp" else Bounds(among=frozenset(constants))
    for subject, kind, constant in comparisons:
        column = _column(subject, qualifiers)
        value = None if column is None else _value(column, constant, milliseconds)
        if column is None or value is None:
            continue
        if column == "timestamp":  # records need not be in the order of their timestamps: only the first of a time is known
            if not kind.startswith("COMPARE_LESSTHAN"):
                yield column, Bounds(low=value)
        elif kind == "COMPARE_EQUAL":
            yield column, Bounds(among=frozenset((value,)))
        elif column != "key":
            beyond = kind in ("COMPARE_GREATERTHAN", "COMPARE_LESSTHAN")
            yield column, Bounds(low=value + beyond) if kind.startswith("COMPARE_GREATERTHAN") else Bounds(high=value - beyond)


def _column(node: JsonMapping, qualifiers: list[list[str]]) -> str | None:
    names = [name.lower() for name in node.get("column_names") or ()] if node.get("class") == "COLUMN_REF" else []
    known = names and names[-1] in ("partition", "offset", "timestamp", "key") and names[:-1] in qualifiers
    return names[-1] if known else None


def _value(column: str, node: JsonMapping, milliseconds: Evaluate) -> Any:
    """Return a constant to which a column is compared, None if it is not one."""
    if column == "timestamp":
        return milliseconds(node) if _is_moment(node) else None
    literal = (node.get("literal") or {}) if node.get("class") == "CONSTANT" else {}
    if column == "key" and literal.get("kind") == "STRING":
        return str(literal.get("text"))
    text = str(literal.get("text")) if literal.get("kind") == "INTEGER" else ""
    return int(text) if text.removeprefix("-").isdecimal() else None


def _is_moment(node: JsonMapping) -> bool:
    """Return whether an expression is a constant time, or one that moves only forward: an interval before or after now."""
    if node.get("class") == "CAST":
        return _is_moment(node["child"])
    if node.get("class") != "FUNCTION":
        return node.get("class") == "CONSTANT"
    inner = [argument["expression"] for argument in node.get("arguments") or ()]
    if node["function_name"] in _MADE:
        return all(part["class"] in ("CONSTANT", "CAST", "TYPE") for part in parts(inner) if "class" in part)
    if len(inner) != 2:
        return node["function_name"] in _NOW and not inner
    first, second = inner
    if node["function_name"] == "date_trunc":
        return first.get("class") == "CONSTANT" and _is_moment(second)
    return node["function_name"] in ("+", "-") and _is_moment(first) and all(
        part["class"] in ("CONSTANT", "CAST", "TYPE") or part.get("function_name") in _SPANS for part in parts(second) if "class" in part
    )


def rows_needed(parsed: JsonMapping) -> tuple[int, int] | None:
    """Return (rows of its result, rows of its table that meet its condition) which answer a parsed query, whichever rows they are.

    None: it needs all rows. Others have one table, a LIMIT, and no order, group or function outside of their condition.
    """
    statements = parsed.get("statements") or [{}]
    node = statements[0].get("node") or {}
    source = node.get("from_table") or {}
    if len(statements) != 1 or node.get("type") != "SELECT_NODE" or source.get("type") != "BASE_TABLE":
        return None
    if any(node.get(part) for part in ("having", "qualify", "sample", "group_expressions", "group_sets")):
        return None
    if source.get("sample") or (node.get("cte_map") or {}).get("map"):
        return None
    if node.get("aggregate_handling") != "STANDARD_HANDLING":  # GROUP BY ALL
        return None
    modifiers = node.get("modifiers") or []
    if len(modifiers) != 1 or modifiers[0].get("type") != "LIMIT_MODIFIER":
        return None
    if any("class" in inner and not _row_by_row(inner) for inner in parts(node.get("select_list"))):
        return None
    if any("class" in inner and not _row_by_row(inner, function=True) for inner in parts(node.get("where_clause"))):
        return None
    if modifiers[0].get("limit_type", "ROW_COUNT") != "ROW_COUNT" or not modifiers[0].get("limit"):
        return None
    counts = [_constant(modifiers[0].get(part)) for part in ("limit", "offset")]
    return None if counts[0] is None or counts[1] is None else (counts[0], counts[0] + counts[1])


def _row_by_row(node: JsonMapping, *, function: bool = False) -> bool:
    """Return whether an expression has one value for each row, the same each time (a function without arguments may be random)."""
    if node["class"] == "FUNCTION":
        return bool(node.get("arguments")) and (function or bool(node.get("is_operator")))
    return node["class"] in _ROW_BY_ROW


def _references(node: JsonMapping) -> Iterator[list[str]]:
    if node.get("class") == "COLUMN_REF":
        yield list(node.get("column_names") or ())
    for name in node.get("using_columns") or ():
        yield [name]


def _constant(node: JsonMapping | None) -> int | None:
    """Return the number in an expression; 0 for no expression; None for anything other than a number."""
    if not node:
        return 0
    literal = node.get("literal") or {}
    text = literal.get("text", "") if node.get("class") == "CONSTANT" and literal.get("kind") == "INTEGER" else ""
    if not text:
        value = (node.get("value") or {}).get("value") if node.get("class") == "CONSTANT" else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    return int(text) if text.isdigit() else None
