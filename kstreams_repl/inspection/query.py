"""SQL over topics, stores and dataframes: find the names in the query, resolve each to a table, register it, run the query in the sandbox.

Names are resolved elsewhere (`TableSource`); this module only knows that a table is Arrow columns or a dataframe. The fields of a JSON
object become columns; the whole struct is available as ``value`` if the query names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from kstreams_repl.errors import SqlError, did_you_mean
from kstreams_repl.inspection.columns import TableData
from kstreams_repl.inspection.json_values import JsonColumn, read_json
from kstreams_repl.inspection.loading import load
from kstreams_repl.inspection.pushdown import columns_needed, rows_needed
from kstreams_repl.inspection.result import SqlResult, explain
from kstreams_repl.inspection.sandbox import open_sandbox, quote_identifier
from kstreams_repl.inspection.topics import TopicScan

HINT = "one SELECT statement; see duckdb.org/docs/sql"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a query: the number of records of each topic and of rows of each store to read, None = all.

    Attributes:
        columns: the topic columns to read; None = all.
        enough: this many rows of a topic suffice, whichever they are; None = all rows are needed.
    """

    records: int | None = None
    rows: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    columns: frozenset[str] | None = None
    enough: int | None = None


@dataclass(frozen=True, slots=True)
class _Read:
    """The tables read from one topic or store."""

    rows: int
    bound: str
    notes: tuple[str, ...]
    cut: str
    commits: str


class TableSource(Protocol):
    """Resolves the names in a query."""

    def table(self, schema: str, name: str, limits: Limits) -> TopicScan | TableData | Any | None:
        """Return the table of that name: one that is read while it is loaded, one that has been read, or any object that DuckDB can
        register (Arrow, pandas, …); None if it does not exist."""

    def names(self) -> Iterable[str]:
        """Return all existing names, for "did you mean"."""

    def expect(self, tables: Sequence[tuple[str, str]]) -> None:
        """Receive every (schema, name) of the query before the first `table` call, so that related tables can be read together."""


def run_sql(query: str, source: TableSource, *, limits: Limits | None = None) -> SqlResult:
    """Run one SELECT (also FROM, WITH, PIVOT, DESCRIBE, SUMMARIZE) or EXPLAIN.

    Raises:
        SqlError: it is not a query, or DuckDB rejects it; for an unknown table the hint is the most similar name.
    """
    limits = limits or Limits()
    try:
        return _run_sql(query, source, limits, typed=True)
    except _FirstRowsDoNotDo:
        return _run_sql(query, source, limits, typed=True, first_rows=False)
    except duckdb.FatalException:  # DuckDB fails fatally on JSON nested hundreds of levels deep
        result = _run_sql(query, source, limits, typed=False)
        result.notes += ("a value is nested too deeply for DuckDB: JSON stays text",)
        return result


class _FirstRowsDoNotDo(Exception):
    """A query names a field that only later rows have."""


def _run_sql(query: str, source: TableSource, limits: Limits, *, typed: bool, first_rows: bool = True) -> SqlResult:
    database = open_sandbox()
    empty: list[str] = []
    try:
        query = _single_query(database, query, source)
        bounds: list[str] = []
        notes: list[str] = []
        cuts: list[str] = []
        commits: list[str] = []
        parsed = _parsed(database, query)
        enough = rows_needed(parsed) if first_rows else None
        limits = replace(limits, columns=columns_needed(parsed), enough=enough)
        tables = table_names(parsed)
        source.expect([(schema, name) for schema, name, _ in tables])
        seen: dict[tuple[str, str], str] = {}
        for schema, name, is_cte in tables:
            same = seen.setdefault((schema.lower(), name.lower()), name)
            if same != name:  # SQL identifiers are case-insensitive
                _refuse_two(same, name, source)
                continue
            found = source.table(schema, name, limits)
            if found is not None:
                with_value = re.search(r"\bvalue\b", query, re.IGNORECASE) is not None
                data = _register(database, schema, name, found, with_value=with_value, typed=typed)
                if data is not None:
                    empty += [] if data.rows else [name]
                    bounds += [data.bound]
                    notes += data.notes
                    cuts += [data.cut] if data.cut else []
                    commits += [data.commits] if data.commits else []
            elif not is_cte and not _is_catalog(schema, name):
                raise _unknown(schema, name, source)
        relation = _relation(database, query, empty, partly=enough is not None)
        return SqlResult(database, relation, tuple(bounds), tuple(notes), empty, tuple(cuts), tuple(commits))
    except duckdb.FatalException:
        database.close()
        raise
    except duckdb.Error as error:
        database.close()
        raise explain(error, empty) from error
    except BaseException:
        database.close()
        raise


def _parsed(database: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    """Return a query as parsed by DuckDB; for an EXPLAIN the explained query."""
    inner = re.sub(r"^\s*explain(\s+analyze)?\b", "", query, flags=re.IGNORECASE)
    parsed: dict[str, Any] = json.loads(database.execute("SELECT json_serialize_sql(?)", [inner]).fetchall()[0][0])
    if parsed.get("error"):
        raise SqlError(f"DuckDB cannot read this query: {parsed.get('error_message')}", hint=HINT)
    return parsed


def table_names(parsed: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Return (schema or "", name, is also the name of a WITH clause) of each table in a parsed query."""
    tables: dict[tuple[str, str], None] = {}
    ctes: set[str] = set()
    pending: list[Any] = [parsed]
    while pending:
        here = pending.pop()
        if isinstance(here, list):
            pending += here
        elif isinstance(here, dict):
            if here.get("type") == "BASE_TABLE" and here.get("table_name"):
                tables[here.get("schema_name") or "", here["table_name"]] = None
            for entry in (here.get("cte_map") or {}).get("map", ()) if isinstance(here.get("cte_map"), dict) else ():
                ctes.add(str(entry.get("key", "")).lower())
            pending += here.values()
    return [(schema, name, not schema and name.lower() in ctes) for schema, name in tables]


def _single_query(database: duckdb.DuckDBPyConnection, query: str, source: TableSource) -> str:
    try:
        statements = database.extract_statements(query)
    except duckdb.Error as error:
        hint = 'quote the column: "offset" is an SQL keyword' if 'near "offset"' in str(error) else _unquoted(query, source) or HINT
        raise SqlError(f"DuckDB cannot read this query: {str(error).strip()}", hint=hint) from error
    kinds = [str(statement.type).rpartition(".")[2] for statement in statements]
    text = query.strip().rstrip(";")
    if kinds == ["MULTI"]:
        raise SqlError("a PIVOT must list its values", hint="PIVOT flights ON origin IN ('EWR', 'JFK') USING count(*)")
    if len(kinds) != 1 or kinds[0] not in ("SELECT", "EXPLAIN"):
        raise SqlError(
            f"expected one SELECT statement, got {'another kind of statement' if len(kinds) == 1 else f'{len(kinds)} statements'}",
            hint="topics and stores are read-only tables: run one SELECT at a time",
        )
    return text


def _unquoted(query: str, source: TableSource) -> str:
    """Return a hint about a name that must be quoted in SQL; "" if the query contains none."""
    for name in source.names():
        if not re.fullmatch(r"\w+", name) and re.search(rf'(?<![\w."-]){re.escape(name)}(?![\w."-])', query):
            return f"put names with characters other than letters, digits and _ in double quotes: FROM {quote_identifier(name)}"
    return ""


def _refuse_two(one: str, other: str, source: TableSource) -> None:
    names = set(source.names())
    if one in names and other in names:
        raise SqlError(
            f"{one!r} and {other!r} cannot be used in one query: SQL names are case-insensitive",
            hint=f"give one of them another name: session.sql(query, other=session.sql('SELECT * FROM {quote_identifier(other)}'))",
            table=other,
        )


def _register(
    database: duckdb.DuckDBPyConnection, schema: str, name: str, found: Any, *, with_value: bool, typed: bool
) -> _Read | None:
    """Register a table; return what was read of a topic or store."""
    place = quote_identifier(name)
    if schema:
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(schema)}")
        place = f"{quote_identifier(schema)}.{place}"
    raw = f"rows of {schema} {name}"
    selected, read = ["*"], None
    if isinstance(found, TableData | TopicScan):
        if isinstance(found, TopicScan):
            columns = load(database, raw, found)
        else:
            columns = tuple(found.columns)
            database.register(raw, pa.table(found.columns))
        selected, notes = _selection(database, raw, name, columns, found if typed else None, with_value)
        read = _Read(found.rows, found.bound, (*found.notes, *notes), found.cut, found.commits)
    else:
        database.register(raw, found)
    database.execute(f"CREATE VIEW {place} AS SELECT {', '.join(selected)} FROM {quote_identifier(raw)}")
    return read


def _selection(
    database: duckdb.DuckDBPyConnection,
    raw: str,
    name: str,
    columns: tuple[str, ...],
    found: TableData | TopicScan | None,
    with_value: bool,
) -> tuple[list[str], list[str]]:
    """Return the columns that the view selects, and notes. Without `found` no value is examined."""
    json = {
        column: read_json(database, quote_identifier(raw), quote_identifier(column), label=f"{name}.{column}")
        for column in (found.json_columns if found is not None and found.rows else ())
    }
    return selection(columns, json, with_value=with_value), [typed.note for typed in json.values() if typed.note]


def selection(columns: Sequence[str], json: Mapping[str, JsonColumn], *, with_value: bool) -> list[str]:
    """Return the columns of a view over a raw table: the fields of a JSON ``value`` that is an object, and ``value`` if asked for."""
    selected: list[str] = []
    taken = {column.lower() for column in columns}
    for column in columns:
        quoted = quote_identifier(column)
        typed = json.get(column)
        if typed is None:
            selected.append(quoted)
            continue
        if column != "value" or not typed.fields:
            selected.append(f"{typed.expression} AS {quoted}")
            continue
        shown = [f"struct_extract({typed.expression}, {_text(field)}) AS {quote_identifier(field)}"
                 for field in typed.fields if field and field.lower() not in taken and "\0" not in field]  # fmt: skip
        selected += shown
        if with_value or not shown:
            selected.append(f"{typed.expression} AS {quoted}")
    return selected


def _relation(database: duckdb.DuckDBPyConnection, query: str, empty: list[str], *, partly: bool) -> duckdb.DuckDBPyRelation:
    try:
        relation = database.sql(query)
    except duckdb.Error as error:
        if partly and isinstance(error, duckdb.BinderException):
            raise _FirstRowsDoNotDo from error
        raise explain(error, empty) from error
    if relation is None:
        raise SqlError("expected a query that returns rows", hint="topics and stores are read-only tables: run one SELECT at a time")
    return relation


def _unknown(schema: str, name: str, source: TableSource) -> SqlError:
    known = sorted(name for name in source.names() if not name.startswith("_"))  # IPython's _1, _2, … can be dataframes
    shown = f"{schema}.{name}" if schema else name
    if schema and shown in known:
        raise SqlError(
            f"there is no {schema!r} with a {name!r}", hint=f"quote names that contain a dot: FROM {quote_identifier(shown)}", table=shown
        )
    listed = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
    return SqlError(
        f"there is no topic, store or dataframe {shown!r}",
        hint=did_you_mean(name, known) or (f"existing names: {listed}" if known else "no topic exists yet; produce one first"),
        table=shown,
    )


def _is_catalog(schema: str, name: str) -> bool:
    """Return whether a name refers to DuckDB's own tables."""
    catalog = ("duckdb_", "sqlite_", "pg_", "pragma_")
    return schema.lower() in ("information_schema", "pg_catalog") or name.lower().startswith(catalog)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
