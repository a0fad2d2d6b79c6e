"""SQL over topics, stores and dataframes: find the names in the query, resolve each to a table, register it, run the query in the sandbox.

Names are resolved elsewhere (`TableCatalog`); this module only knows that a table is Arrow columns or a dataframe. The fields of a JSON
object become columns; the whole struct is available as ``value`` if the query names it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Protocol

import duckdb
import pyarrow as pa

from kstreams_repl.engine.operators.batches.sql_syntax import expression_text, parts
from kstreams_repl.pictures.columns import TableData
from kstreams_repl.repl.inspection.interruptible_query import interruptible
from kstreams_repl.repl.inspection.json_values import JsonColumn, read_json
from kstreams_repl.repl.inspection.loading import load
from kstreams_repl.repl.inspection.pushdown import Bounds, bounds_of, columns_needed, rows_needed
from kstreams_repl.repl.inspection.result import SqlResult, explain, missing_column
from kstreams_repl.repl.inspection.sandbox import open_sandbox, quote_identifier
from kstreams_repl.repl.inspection.topics import FIRST_READ, TopicScan
from kstreams_repl.system.errors import SqlError, did_you_mean
from kstreams_repl.system.types import JsonMapping, JsonObject

HINT = "one SELECT statement; see duckdb.org/docs/sql"
ALIKE = 0.8
"""Similarity from which an unknown name is taken for a mistyped one, as of `difflib`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What to read of a topic or store, as the caller limits it and as far as the query needs it.

    Attributes:
        topic_limit: number of records of each topic, the last ones; None = all.
        store_limit: number of rows of each store in each task; None = all.
        since_ms, until_ms: time range of topics, epoch milliseconds.
        columns: the topic columns that the query needs; None = all.
        bounds: by column, the rows that the query needs of this table.
        first: so many of those rows may suffice, whichever they are; None = it needs all of them.
    """

    topic_limit: int | None = None
    store_limit: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    columns: frozenset[str] | None = None
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    first: int | None = None


@dataclass(frozen=True, slots=True)
class _Pushed:
    """What is pushed down into the read."""

    first_rows: bool = True
    bounds: bool = True
    typed: bool = True


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of one topic or store."""

    name: str
    rows: int
    bound: str
    notes: tuple[str, ...]
    cut: str
    commits: str


class TableCatalog(Protocol):
    """Resolves the names in a query."""

    def table(self, schema: str, name: str, limits: Limits) -> object:
        """Return the table of that name: one that is read while it is loaded, one that has been read, or any object that DuckDB can
        register (Arrow, pandas, …); None if it does not exist."""

    def names(self) -> Iterable[str]:
        """Return all existing names, for "did you mean"."""

    def expect(self, tables: Sequence[tuple[str, str]]) -> None:
        """Receive every (schema, name) of the query before the first `table` call, so that related tables can be read together."""


def run_sql(query: str, source: TableCatalog, *, limits: Limits | None = None) -> SqlResult:
    """Run one SELECT (also FROM, WITH, PIVOT, DESCRIBE, SUMMARIZE) or EXPLAIN.

    Raises:
        SqlError: it is not a query, or DuckDB rejects it; for an unknown table the hint is the most similar name.
    """
    limits, pushed = limits or Limits(), _Pushed()
    while True:
        try:
            result = _run_sql(query, source, limits, pushed)
            if not pushed.typed:
                result.notes += ("a value is nested too deeply for DuckDB: JSON stays text",)
            return result
        except _MoreRowsNeeded:
            pushed = replace(pushed, first_rows=False)
        except _OtherColumnsNeeded:
            pushed = replace(pushed, first_rows=False, bounds=False)
        except duckdb.FatalException:  # DuckDB fails fatally on JSON nested hundreds of levels deep
            if not pushed.typed:
                raise
            pushed = replace(pushed, typed=False)


class _MoreRowsNeeded(Exception):
    """The first rows are not enough for the LIMIT of the query."""


class _OtherColumnsNeeded(Exception):
    """The query names a field that none of the records read has."""


def _run_sql(query: str, source: TableCatalog, limits: Limits, pushed: _Pushed) -> SqlResult:
    database = open_sandbox()
    empty: list[str] = []
    try:
        query = _single_query(database, query, source)
        parsed = _parsed(database, query)
        needed = rows_needed(parsed) if pushed.first_rows else None
        limits = replace(limits, columns=columns_needed(parsed), first=max(needed[1], FIRST_READ) if needed else None)
        view = _Views(database, with_value=re.search(r"\bvalue\b", query, re.IGNORECASE) is not None, typed=pushed.typed)
        tables = _tables(database, parsed, source, limits, bounds=pushed.bounds)
        scans = {name: table for name, table in tables.items() if isinstance(table, TopicScan)}
        reads = {name: view.of(*name, table) for name, table in tables.items() if name not in scans}
        if any(scan.offsets > FIRST_READ for scan in scans.values()) and (limits.columns is None or "value" in limits.columns):
            _check_columns(database, query, view, scans)
        reads |= {name: view.of(*name, scan) for name, scan in scans.items()}
        of_tables = [read for read in (reads[name] for name in tables) if read is not None]
        empty += [read.name for read in of_tables if not read.rows]
        relation = _relation(database, query, empty, partly=any(getattr(table, "narrowed", False) for table in tables.values()))
        if needed is not None and any(scan.is_part for scan in scans.values()) and _rows_of(database, relation) < needed[0]:
            raise _MoreRowsNeeded
        return SqlResult(
            database,
            relation,
            tuple(read.bound for read in of_tables),
            tuple(note for read in of_tables for note in read.notes),
            empty,
            tuple(read.cut for read in of_tables if read.cut),
            tuple(read.commits for read in of_tables if read.commits),
        )
    except duckdb.FatalException:
        database.close()
        raise
    except duckdb.Error as error:
        database.close()
        raise explain(error, empty) from error
    except BaseException:
        database.close()
        raise


def _tables(
    database: duckdb.DuckDBPyConnection, parsed: JsonMapping, source: TableCatalog, limits: Limits, *, bounds: bool
) -> dict[tuple[str, str], object]:
    """Return the tables that a query names, by schema and name; topics have yet to be read."""
    tables = table_names(parsed)
    source.expect([(schema, name) for schema, name, _ in tables])
    tables_by_name: dict[tuple[str, str], object] = {}
    seen: dict[tuple[str, str], str] = {}
    for schema, name, is_cte in tables:
        same = seen.setdefault((schema.lower(), name.lower()), name)
        if same != name:  # SQL identifiers are case-insensitive
            _refuse_two(same, name, source)
            continue
        needed = bounds_of(parsed, schema, name, lambda moment: _milliseconds(database, moment)) if bounds else {}
        table = source.table(schema, name, replace(limits, bounds=needed))
        if table is not None:
            tables_by_name[schema, name] = table
        elif not is_cte and not _is_catalog(schema, name):
            raise _unknown(schema, name, source)
    return tables_by_name


def _milliseconds(database: duckdb.DuckDBPyConnection, moment: JsonMapping) -> int | None:
    """Return the value of a constant expression in epoch milliseconds, rounded down; None if it is not a time."""
    try:
        text = expression_text(database, {**moment})
        kind, value = database.execute(f"SELECT typeof(x), epoch_ms(x::TIMESTAMP) FROM (SELECT {text}) AS moment(x)").fetchall()[0]
    except duckdb.Error:
        return None
    if value is None or not (kind == "DATE" or kind.startswith("TIMESTAMP") or (kind == "VARCHAR" and moment.get("class") == "CONSTANT")):
        return None
    return int(value)


def _check_columns(
    database: duckdb.DuckDBPyConnection, query: str, view: _Views, scans: Mapping[tuple[str, str], TopicScan]
) -> None:
    """Raise if a few records of its topics show that a query names a column by mistake: it resembles one, and does not exist.

    Raises:
        SqlError: it does. A name that resembles no other may be that of a rare field: the topics must be read.
    """
    for table, scan in scans.items():
        view.of(*table, scan.sample())
    try:
        database.sql(query)
    except duckdb.FatalException:
        raise
    except duckdb.Error as error:
        missing, columns = missing_column(error), _known_columns(database)
        if missing is not None and get_close_matches(missing.lower(), [name.lower() for name in columns], n=1, cutoff=ALIKE):
            mistaken = explain(error, (), columns)
            hint = f"{mistaken.hint} No record of a sample has {missing!r}; to_json(value)->>{_text(missing)} reads a field that few have"
            raise SqlError(mistaken.message, hint=hint) from error


def _known_columns(database: duckdb.DuckDBPyConnection) -> list[str]:
    return [name for (name,) in database.execute("SELECT DISTINCT column_name FROM duckdb_columns() WHERE NOT internal").fetchall()]


def _rows_of(database: duckdb.DuckDBPyConnection, relation: duckdb.DuckDBPyRelation) -> float:
    """Return the number of rows of a result; infinity if it cannot be counted (EXPLAIN, errors of values)."""
    try:
        return float(interruptible(database, lambda: relation.count("*").fetchall())[0][0])
    except duckdb.FatalException:
        raise
    except duckdb.Error:
        return math.inf


def _parsed(database: duckdb.DuckDBPyConnection, query: str) -> JsonObject:
    """Return a query as parsed by DuckDB; for an EXPLAIN the explained query."""
    inner = re.sub(r"^\s*explain(\s+analyze)?\b", "", query, flags=re.IGNORECASE)
    parsed: JsonObject = json.loads(database.execute("SELECT json_serialize_sql(?)", [inner]).fetchall()[0][0])
    if parsed.get("error"):
        raise SqlError(f"DuckDB cannot read this query: {parsed.get('error_message')}", hint=HINT)
    return parsed


def table_names(parsed: JsonMapping) -> list[tuple[str, str, bool]]:
    """Return (schema or "", name, is also the name of a WITH clause) of each table in a parsed query."""
    tables: dict[tuple[str, str], None] = {}
    ctes: set[str] = set()
    for here in parts(parsed):
        if here.get("type") == "BASE_TABLE" and here.get("table_name"):
            tables[here.get("schema_name") or "", here["table_name"]] = None
        for entry in (here.get("cte_map") or {}).get("map", ()) if isinstance(here.get("cte_map"), dict) else ():
            ctes.add(str(entry.get("key", "")).lower())
    return [(schema, name, not schema and name.lower() in ctes) for schema, name in tables]


def _single_query(database: duckdb.DuckDBPyConnection, query: str, source: TableCatalog) -> str:
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


def _unquoted(query: str, source: TableCatalog) -> str:
    """Return a hint about a name that must be quoted in SQL; "" if the query contains none."""
    for name in source.names():
        if not re.fullmatch(r"\w+", name) and re.search(rf'(?<![\w."-]){re.escape(name)}(?![\w."-])', query):
            return f"put names with characters other than letters, digits and _ in double quotes: FROM {quote_identifier(name)}"
    return ""


def _refuse_two(one: str, other: str, source: TableCatalog) -> None:
    names = set(source.names())
    if one in names and other in names:
        raise SqlError(
            f"{one!r} and {other!r} cannot be used in one query: SQL names are case-insensitive",
            hint=f"give one of them another name: session.sql(query, other=session.sql('SELECT * FROM {quote_identifier(other)}'))",
            table=other,
        )


@dataclass(frozen=True, slots=True)
class _Views:
    """Registers tables in a database as the query names them."""

    database: duckdb.DuckDBPyConnection
    with_value: bool
    typed: bool

    def of(self, schema: str, name: str, found: object) -> _Read | None:
        """Create or replace the view of a table; return what was read of a topic or store."""
        place = quote_identifier(name)
        if schema:
            self.database.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(schema)}")
            place = f"{quote_identifier(schema)}.{place}"
        raw = f"{'topic' if isinstance(found, TopicScan) else 'rows'} of {schema} {name}"
        selected, read = ["*"], None
        if isinstance(found, TableData | TopicScan):
            if isinstance(found, TopicScan):
                columns = load(self.database, raw, found)
            else:
                columns = tuple(found.columns)
                self.database.register(raw, pa.table(found.columns))
            selected, notes = _selection(self.database, raw, name, columns, found if self.typed else None, self.with_value)
            read = _Read(name, found.rows, found.bound, (*found.notes, *notes), found.cut, found.commits)
        else:
            self.database.register(raw, found)
        self.database.execute(f"CREATE OR REPLACE VIEW {place} AS SELECT {', '.join(selected)} FROM {quote_identifier(raw)}")
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
            selected.append(f"{typed.whole or typed.expression} AS {quoted}")
            continue
        shown = [f"struct_extract({typed.expression}, {_text(field)}) AS {quote_identifier(field)}"
                 for field in typed.fields if field and field.lower() not in taken and "\0" not in field]  # fmt: skip
        selected += shown
        if with_value or not shown:
            selected.append(f"{typed.whole or typed.expression} AS {quoted}")
    return selected


def _relation(database: duckdb.DuckDBPyConnection, query: str, empty: list[str], *, partly: bool) -> duckdb.DuckDBPyRelation:
    try:
        relation = database.sql(query)
    except duckdb.Error as error:
        if partly and isinstance(error, duckdb.BinderException):
            raise _OtherColumnsNeeded from error
        raise explain(error, empty, _known_columns(database)) from error
    if relation is None:
        raise SqlError("expected a query that returns rows", hint="topics and stores are read-only tables: run one SELECT at a time")
    return relation


def _unknown(schema: str, name: str, source: TableCatalog) -> SqlError:
    names = sorted(name for name in source.names() if not name.startswith("_"))  # IPython's _1, _2, … can be dataframes
    shown = f"{schema}.{name}" if schema else name
    if schema and shown in names:
        raise SqlError(
            f"there is no {schema!r} with a {name!r}", hint=f"quote names that contain a dot: FROM {quote_identifier(shown)}", table=shown
        )
    listed = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return SqlError(
        f"there is no topic, store or dataframe {shown!r}",
        hint=did_you_mean(name, names) or (f"existing names: {listed}" if names else "no topic exists yet; produce one first"),
        table=shown,
    )


def _is_catalog(schema: str, name: str) -> bool:
    """Return whether a name refers to DuckDB's own tables."""
    catalog = ("duckdb_", "sqlite_", "pg_", "pragma_")
    return schema.lower() in ("information_schema", "pg_catalog") or name.lower().startswith(catalog)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
