"""Convert JSON text to typed columns inside DuckDB, with one structure for all rows, found from a sample and verified on every row.

The sample's structure is checked strictly (no field missing, unknown or of another type). If it does not hold for all rows, the structure
of all rows is used, in which fields of differing types stay JSON text. Invalid JSON becomes NULL and is counted. Fields whose names
differ only in case cannot both be in one structure: the first one is, and the whole value stays JSON. Numbers that a DOUBLE would round are
HUGEINT if all of the field are integers, else the note counts them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from kstreams_repl.pictures.wording import counted
from kstreams_repl.system.types import JsonObject

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
        whole: SQL that returns the whole value, if the typed one lacks fields; empty: `expression`.
    """

    expression: str
    fields: tuple[str, ...] = ()
    note: str = ""
    structure: str = ""
    whole: str = ""


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
        sample = f"(SELECT {column} FROM {table} USING SAMPLE reservoir({SAMPLE} ROWS) REPEATABLE (1))"
        structure, twins = _structure(database, sample, column)
        if structure is None:
            return JsonColumn(column)
        if not twins:
            try:
                structure, note = _without_rounding(database, table, column, structure, label, "from_json_strict({0}, {1})")
                return JsonColumn(f"from_json_strict({column}, {_text(structure)})", _fields(structure), note, structure)
            except duckdb.FatalException:
                raise
            except duckdb.Error:  # other rows have other fields or types
                pass
        return _mixed(database, table, column, label)
    except duckdb.FatalException:
        raise
    except duckdb.Error as error:
        return JsonColumn(column, note=f"{label} stays JSON text: {str(error).splitlines()[0]}")


def _mixed(database: duckdb.DuckDBPyConnection, table: str, column: str, label: str) -> JsonColumn:
    text = f"try_cast({column} AS JSON)"
    structure, twins = _structure(database, table, column)
    bad = database.execute(f"SELECT count(*) FROM {table} WHERE {column} IS NOT NULL AND NOT json_valid({column})").fetchall()[0][
        0
    ]
    notes = [f"{counted(bad, 'cell')} of {label} {'is not JSON and is' if bad == 1 else 'are not JSON and are'} NULL"] if bad else []
    if structure is None:
        return JsonColumn(text, note="; ".join(notes))
    # from_json raises for malformed text, and the optimizer may move a cast around a CASE: filter the bad rows before it
    safe = "from_json(CASE WHEN json_valid({0}) THEN {0} END, {1})"
    structure, note = _without_rounding(database, table, column, structure, label, safe)
    for field, twin in twins.items():
        notes.append(f"{label} stays JSON: the names {twin!r} and {field!r} differ only in case; the column is {twin!r}, "
                     f"value->>{_text(field)} reads the other")  # fmt: skip
    notes += [note] if note else []
    whole = text if twins else ""
    return JsonColumn(safe.format(column, _text(structure)), _fields(structure), "; ".join(notes), structure, whole)


def _structure(database: duckdb.DuckDBPyConnection, table: str, column: str) -> tuple[str | None, dict[str, str]]:
    """Return DuckDB's structure of the column, with integers as BIGINT where all fit (None if it should stay JSON text), and the fields
    left out of it, with the names that differ from theirs only in case."""
    row = database.execute(
        f"SELECT json_group_structure(try_cast({column} AS JSON)), coalesce(bool_or(regexp_matches({column}, '{_LARGE}')), false)"
        f" FROM {table}"
    ).fetchall()[0]
    if row[0] is None:
        return None, {}
    structure = json.loads(row[0])
    if structure in ("JSON", "NULL") or _size(structure) > MAX_FIELDS:
        return None, {}
    twins = _twins(structure) if isinstance(structure, dict) else {}
    if twins:
        structure = {name: inner for name, inner in structure.items() if name not in twins}
    return json.dumps(_with_integers(structure, "HUGEINT" if row[1] else "BIGINT")), twins


def _twins(structure: JsonObject) -> dict[str, str]:
    """Return the names that differ only in case from an earlier one, with that one: SQL takes them for the same name."""
    first: dict[str, str] = {}
    return {name: earlier for name in structure if (earlier := first.setdefault(name.lower(), name)) != name}


def _with_integers(structure: object, integer: str) -> object:
    if isinstance(structure, dict):
        return {
            name: "JSON" if isinstance(inner, dict) and _twins(inner) else _with_integers(inner, integer)
            for name, inner in structure.items()
        }
    if isinstance(structure, list):
        return ["JSON" if isinstance(inner, dict) and _twins(inner) else _with_integers(inner, integer) for inner in structure]
    if structure in ("UBIGINT", "BIGINT", "HUGEINT"):
        return integer
    return "JSON" if structure == "NULL" else structure


def _without_rounding(
    database: duckdb.DuckDBPyConnection, table: str, column: str, structure: str, label: str, reader: str
) -> tuple[str, str]:
    """Read all rows with a structure, which raises if it does not hold; return it with fields as HUGEINT whose integers a DOUBLE would
    round, and a note on integers that are rounded because others of their field have fractions."""
    parsed = json.loads(structure)
    doubles = list(_doubles(parsed, "$"))
    suspect = f"coalesce(bool_or(regexp_matches({column}, '[0-9]{{16}}')), false)" if doubles else "false"
    read = reader.format(column, _text(structure))
    if not database.execute(f"SELECT count({read}), {suspect} FROM {table}").fetchall()[0][1]:
        return structure, ""
    notes = []
    for path, place, name in doubles:
        found = f"json_extract_string(CASE WHEN json_valid({column}) THEN {column} END, {_text(path)})"
        if "[*]" not in path:
            found = f"[{found}]"
        whole, other = database.execute(
            f"SELECT count(*) FILTER (regexp_full_match(s, '-?[0-9]{{16,}}') AND coalesce(try_cast(s AS HUGEINT) <> "
            f"try_cast(try_cast(s AS DOUBLE) AS HUGEINT), true)), count(*) FILTER (NOT regexp_full_match(s, '-?[0-9]{{1,38}}')) "
            f"FROM (SELECT unnest({found}) AS s FROM {table}) WHERE s IS NOT NULL"
        ).fetchall()[0]
        if whole and not other:
            place[name] = "HUGEINT"
        elif whole:
            notes.append(f"{counted(whole, 'integer')} of {label} at {path} {'is' if whole == 1 else 'are'} rounded to a DOUBLE, as other "
                         "values there have fractions; session.read has the digits")  # fmt: skip
    return json.dumps(parsed), "; ".join(notes)


def _doubles(structure: object, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the JSON path of each DOUBLE of a structure, and where it stands: a dict or list of the structure, and its name there."""
    for name, inner in structure.items() if isinstance(structure, dict) else enumerate(structure) if isinstance(structure, list) else ():
        if isinstance(name, str) and not set(name).isdisjoint('"\\'):
            continue
        here = f'{path}."{name}"' if isinstance(name, str) else f"{path}[*]"
        if inner == "DOUBLE":
            yield here, structure, name
        else:
            yield from _doubles(inner, here)


def _size(structure: object) -> int:
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
