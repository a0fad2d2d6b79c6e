"""Convert JSON text to typed columns inside DuckDB, with one structure for all rows, found from a sample and verified on every row.

The sample's structure is checked strictly (no field missing, unknown or of another type). If it does not hold for all rows, the structure
of all rows is used, in which fields of differing types stay JSON text. Invalid JSON becomes NULL and is counted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import duckdb

from kstreams_repl.display.wording import counted

SAMPLE = 2000
MAX_FIELDS = 500
_LARGE = r"(^|[^0-9.])([0-9]{20}|9[2-9][0-9]{17})"
"""Matches an integer that may exceed 64 bits."""


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """How to read a JSON column.

    Attributes:
        expression: SQL that returns the typed value from the raw table.
        fields: names of the object's fields; empty for other values.
        note: information for the user.
        structure: DuckDB's structure of the values; empty if they stay text.
    """

    expression: str
    fields: tuple[str, ...] = ()
    note: str = ""
    structure: str = ""


def lenient(column: str, structure: str) -> JsonColumn:
    """Return how to read values whose structure was found in other rows: values that do not fit it, such as invalid JSON, become NULL."""
    text = f"CASE WHEN json_valid({column}) THEN {column} END"
    return JsonColumn(f"from_json({text}, {_text(structure)})" if structure else text, _fields(structure) if structure else ())


def read_json(database: duckdb.DuckDBPyConnection, table: str, column: str, *, label: str) -> JsonColumn:
    """Decide how to read a column of JSON text.

    Args:
        table, column: quoted names in the database.
        label: the user's name of the column, for notes.
    """
    try:
        structure = _structure(
            database, f"(SELECT {column} FROM {table} USING SAMPLE reservoir({SAMPLE} ROWS) REPEATABLE (1))", column
        )
        if structure is None:
            return JsonColumn(column)
        strict = f"from_json_strict({column}, {_text(structure)})"
        try:
            database.execute(f"SELECT count({strict}) FROM {table}").fetchall()
            return JsonColumn(strict, _fields(structure), structure=structure)
        except duckdb.Error:
            return _mixed(database, table, column, label)
    except duckdb.Error as error:
        return JsonColumn(column, note=f"{label} stays JSON text: {str(error).splitlines()[0]}")


def _mixed(database: duckdb.DuckDBPyConnection, table: str, column: str, label: str) -> JsonColumn:
    text = f"try_cast({column} AS JSON)"
    structure = _structure(database, table, column)
    bad = database.execute(f"SELECT count(*) FROM {table} WHERE {column} IS NOT NULL AND NOT json_valid({column})").fetchall()[0][
        0
    ]
    note = f"{counted(bad, 'cell')} of {label} {'is not JSON and is' if bad == 1 else 'are not JSON and are'} NULL" if bad else ""
    if structure is None:
        return JsonColumn(text, note=note)
    # from_json raises for malformed text, and the optimizer may move a cast around a CASE: filter the bad rows before it
    safe = f"from_json(CASE WHEN json_valid({column}) THEN {column} END, {_text(structure)})"
    database.execute(f"SELECT count({safe}) FROM {table}").fetchall()
    return JsonColumn(safe, _fields(structure), note, structure)


def _structure(database: duckdb.DuckDBPyConnection, table: str, column: str) -> str | None:
    """Return DuckDB's structure of the column, with integers as BIGINT where all fit; None if it should stay JSON text."""
    row = database.execute(
        f"SELECT json_group_structure(try_cast({column} AS JSON)), coalesce(bool_or(regexp_matches({column}, '{_LARGE}')), false)"
        f" FROM {table}"
    ).fetchall()[0]
    if row[0] is None:
        return None
    structure = json.loads(row[0])
    if structure in ("JSON", "NULL") or _size(structure) > MAX_FIELDS:
        return None
    return json.dumps(_with_integers(structure, "HUGEINT" if row[1] else "BIGINT"))


def _with_integers(structure: Any, integer: str) -> Any:
    if isinstance(structure, dict):
        return {name: _with_integers(inner, integer) for name, inner in structure.items()}
    if isinstance(structure, list):
        return [_with_integers(inner, integer) for inner in structure]
    if structure in ("UBIGINT", "BIGINT", "HUGEINT"):
        return integer
    return "JSON" if structure == "NULL" else structure


def _size(structure: Any) -> int:
    if isinstance(structure, dict):
        return sum(map(_size, structure.values())) + 1
    if isinstance(structure, list):
        return sum(map(_size, structure))
    return 1


def _fields(structure: str) -> tuple[str, ...]:
    parsed = json.loads(structure)
    return tuple(parsed) if isinstance(parsed, dict) else ()


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
