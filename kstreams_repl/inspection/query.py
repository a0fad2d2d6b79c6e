"""SQL over named things: find the names in the query, have each resolved to a table, register it, run the query in the sandbox.

Names are resolved outside (`TableSource`); here it is only known that a table is Arrow columns or a dataframe. A JSON value that is an
object shows its fields as columns of their own; the whole struct is there too, as ``value``, when the query names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import duckdb
import pyarrow as pa

from kstreams_repl.display.table import MAX_ROWS, Table
from kstreams_repl.errors import SqlError, did_you_mean
from kstreams_repl.extras import extras
from kstreams_repl.inspection.columns import TableData
from kstreams_repl.inspection.json_values import JsonColumn, read_json
from kstreams_repl.inspection.running import interruptible
from kstreams_repl.inspection.sandbox import open_sandbox, quote_identifier

EXACT = 2**53
"""Up to here a float holds every integer."""
T = TypeVar("T")
HINT = "one SELECT statement; see duckdb.org/docs/sql"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what a query reads: records of each topic, rows of each store; None = all."""

    records: int | None = 500_000
    rows: int | None = 5_000_000
    since_ms: int | None = None
    until_ms: int | None = None


class TableSource(Protocol):
    """Who knows what a name in a query means."""

    def table(self, schema: str, name: str, limits: Limits) -> TableData | Any | None:
        """The table of that name: `TableData`, or anything DuckDB registers (Arrow, pandas, …); None when there is none."""

    def names(self) -> Iterable[str]:
        """All names there are, for "did you mean"."""

    def expect(self, tables: Sequence[tuple[str, str]]) -> None:
        """Told before the first `table`: every (schema, name) of the query, so that what belongs together can be read together."""


class SqlResult:
    """The answer of one query: shows its first rows; `df()`, `arrow()`, `relation` and `fetchall()` give all of them.

    Attributes:
        relation: the DuckDB relation, to go on with; it lives in a locked database of its own.
        bounds: what was read of each topic and store.
        notes: what else there is to know (cells that could not be read).
    """

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        relation: duckdb.DuckDBPyRelation,
        bounds: tuple[str, ...],
        notes: tuple[str, ...],
        empty: Sequence[str] = (),
    ) -> None:
        self._database = database
        self._empty = empty
        self.relation = relation
        self.bounds = bounds
        self.notes = notes

    @property
    def columns(self) -> list[str]:
        return list(self.relation.columns)

    def df(self) -> Any:
        """A pandas DataFrame of all rows. Integers that no float holds are Python's own where they stand beside NULLs, or are over 64 bits
        in their column."""
        return self._run(self._frame)

    pandas = df

    def arrow(self) -> pa.Table:
        """An Arrow table of all rows."""
        return self._run(self.relation.to_arrow_table)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples.

        Raises:
            SqlError: a value does not do for what the query makes of it, which shows with the rows only.
        """
        return self._run(self.relation.fetchall)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def table(self, rows: int = MAX_ROWS) -> Table:
        """The first rows for showing."""
        found = self._run(self.relation.limit(rows + 1).fetchall)
        note = [f"the first {rows} rows are shown; .df() gives all"] if len(found) > rows else []
        note += [*self.bounds, *self.notes]
        return Table.of(self.columns, found[:rows], note="\n".join(note))

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()

    def _run(self, call: Callable[[], T]) -> T:
        """A query that fails only when its rows are fetched fails like one that fails at once; an interrupt ends it."""
        try:
            return interruptible(self._database, call)
        except duckdb.Error as error:
            raise explain(error, self._empty) from error

    def _frame(self) -> Any:
        with extras():
            import pandas  # noqa: F401 - DuckDB needs it, and would say so in words of its own
        frame = self.relation.df()
        rounded = self._rounded(frame)
        return self._exact(frame, rounded) if rounded else frame

    def _rounded(self, frame: Any) -> list[int]:
        """Columns of integers that pandas has made floats of, and whose values floats do not hold."""
        kinds = [str(kind) for kind in self.relation.types]
        floats = (index for index, kind in enumerate(frame.dtypes) if str(kind) == "float64" and kinds[index].endswith("INT"))
        return [index for index in floats if (frame.iloc[:, index].abs() >= EXACT).any()]

    def _exact(self, frame: Any, columns: Sequence[int]) -> Any:
        """The frame made again, all of it from one run of the query, with Python's integers in these columns."""
        rows = self.relation.to_arrow_table()
        again = self._database.from_arrow(rows).df()
        again.columns = frame.columns
        for index in columns:
            whole = [None if value is None else int(value) for value in rows.column(index).to_pylist()]
            again.isetitem(index, type(again.iloc[:, index])(whole, dtype=object))
        return again


def run_sql(query: str, source: TableSource, *, limits: Limits | None = None) -> SqlResult:
    """Run one SELECT (also FROM, WITH, PIVOT, DESCRIBE, SUMMARIZE) or EXPLAIN.

    Raises:
        SqlError: it is no query, or DuckDB refuses it; an unknown table comes with the nearest name.
    """
    try:
        return _run_sql(query, source, limits, typed=True)
    except duckdb.FatalException:  # JSON that is nested hundreds of levels deep ends the database that looks for its structure
        result = _run_sql(query, source, limits, typed=False)
        result.notes += ("a value is nested too deep to be looked into: JSON stays text",)
        return result


def _run_sql(query: str, source: TableSource, limits: Limits | None, *, typed: bool) -> SqlResult:
    database = open_sandbox()
    empty: list[str] = []
    try:
        query = _single_query(database, query, source)
        bounds: list[str] = []
        notes: list[str] = []
        tables = table_names(database, query)
        source.expect([(schema, name) for schema, name, _ in tables])
        seen: dict[tuple[str, str], str] = {}
        for schema, name, is_cte in tables:
            same = seen.setdefault((schema.lower(), name.lower()), name)
            if same != name:  # SQL takes them for one
                _refuse_two(same, name, source)
                continue
            found = source.table(schema, name, limits or Limits())
            if found is not None:
                if isinstance(found, TableData) and found.rows == 0:
                    empty.append(name)
                if isinstance(found, TableData) and not typed:
                    found = replace(found, json_columns=())
                data = _register(
                    database, schema, name, found, with_value=re.search(r"\bvalue\b", query, re.IGNORECASE) is not None
                )
                bounds += data[0]
                notes += data[1]
            elif not is_cte and not _is_catalog(schema, name):
                raise _unknown(schema, name, source)
        return SqlResult(database, _relation(database, query, empty), tuple(bounds), tuple(notes), empty)
    except duckdb.FatalException:
        database.close()
        raise
    except duckdb.Error as error:
        database.close()
        raise explain(error, empty) from error
    except BaseException:
        database.close()
        raise


def table_names(database: duckdb.DuckDBPyConnection, query: str) -> list[tuple[str, str, bool]]:
    """(schema or "", name, is also the name of a WITH clause) of each table in a query, as DuckDB parses it."""
    inner = re.sub(r"^\s*explain(\s+analyze)?\b", "", query, flags=re.IGNORECASE)
    parsed = json.loads(database.execute("SELECT json_serialize_sql(?)", [inner]).fetchall()[0][0])
    if parsed.get("error"):
        raise SqlError(f"DuckDB cannot read this query: {parsed.get('error_message')}", hint=HINT)
    tables: dict[tuple[str, str], None] = {}
    ctes: set[str] = set()
    pending = [parsed]
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
        hint = 'quote the column: "offset" is a word of SQL' if 'near "offset"' in str(error) else _unquoted(query, source) or HINT
        raise SqlError(f"DuckDB cannot read this query: {str(error).strip()}", hint=hint) from error
    kinds = [str(statement.type).rpartition(".")[2] for statement in statements]
    text = query.strip().rstrip(";")
    if kinds == ["MULTI"]:
        raise SqlError("a PIVOT must name its columns here", hint="PIVOT flights ON origin IN ('EWR', 'JFK') USING count(*)")
    if len(kinds) != 1 or kinds[0] not in ("SELECT", "EXPLAIN"):
        raise SqlError(
            f"this is {'no query' if len(kinds) == 1 else f'{len(kinds)} statements, not one query'}",
            hint="topics and stores are read-only tables here: one SELECT at a time",
        )
    return text


def _unquoted(query: str, source: TableSource) -> str:
    """What to do about a name that is none for SQL unless it is quoted; "" when there is none in the query."""
    for name in source.names():
        if not re.fullmatch(r"\w+", name) and re.search(rf'(?<![\w."-]){re.escape(name)}(?![\w."-])', query):
            return f"a name with other characters than letters, digits and _ goes in double quotes: FROM {quote_identifier(name)}"
    return ""


def _refuse_two(one: str, other: str, source: TableSource) -> None:
    names = set(source.names())
    if one in names and other in names:
        raise SqlError(
            f"{one!r} and {other!r} cannot be in one query: SQL does not tell large letters from small ones",
            hint=f"one of them under another name: session.sql(query, other=session.sql('SELECT * FROM {quote_identifier(other)}'))",
            table=other,
        )


def _register(
    database: duckdb.DuckDBPyConnection, schema: str, name: str, found: Any, *, with_value: bool
) -> tuple[list[str], list[str]]:
    place = quote_identifier(name)
    if schema:
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(schema)}")
        place = f"{quote_identifier(schema)}.{place}"
    raw = f"rows of {schema} {name}"
    if not isinstance(found, TableData):
        database.register(raw, found)
        database.execute(f"CREATE VIEW {place} AS SELECT * FROM {quote_identifier(raw)}")
        return [], []
    database.register(raw, pa.table(found.columns))
    selected, notes = _selection(database, raw, name, found, with_value)
    database.execute(f"CREATE VIEW {place} AS SELECT {', '.join(selected)} FROM {quote_identifier(raw)}")
    return [found.bound], [*found.notes, *notes]


def _selection(
    database: duckdb.DuckDBPyConnection, raw: str, name: str, found: TableData, with_value: bool
) -> tuple[list[str], list[str]]:
    """What the view selects, and notes."""
    json = {
        column: read_json(database, quote_identifier(raw), quote_identifier(column), label=f"{name}.{column}")
        for column in (found.json_columns if found.rows else ())
    }
    return selection(tuple(found.columns), json, with_value=with_value), [typed.note for typed in json.values() if typed.note]


def selection(columns: Sequence[str], json: Mapping[str, JsonColumn], *, with_value: bool) -> list[str]:
    """The columns of a view over a raw table: a JSON ``value`` that is an object shows its fields, and itself where it is asked for."""
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


def _relation(database: duckdb.DuckDBPyConnection, query: str, empty: list[str]) -> duckdb.DuckDBPyRelation:
    try:
        relation = database.sql(query)
    except duckdb.Error as error:
        raise explain(error, empty) from error
    if relation is None:
        raise SqlError("this statement gives no rows", hint="topics and stores are read-only tables here: one SELECT at a time")
    return relation


def explain(error: duckdb.Error, empty: Sequence[str]) -> SqlError:
    """DuckDB's error in ours: its message without the trace, its own hints kept."""
    hint = (
        f"{', '.join(empty)}: no record yet, so the fields of the values are not known"
        if empty
        else "DESCRIBE name lists a table's columns"
    )
    return SqlError(str(error).strip().split("\n\n")[0], hint=hint)


def _unknown(schema: str, name: str, source: TableSource) -> SqlError:
    known = sorted(name for name in source.names() if not name.startswith("_"))  # IPython's _1, _2, … are dataframes, too
    shown = f"{schema}.{name}" if schema else name
    if schema and shown in known:
        raise SqlError(
            f"there is no {schema!r} with a {name!r}", hint=f"the name has a dot, so quote it: FROM {quote_identifier(shown)}", table=shown
        )
    listed = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
    return SqlError(
        f"there is no topic, store or dataframe {shown!r}",
        hint=did_you_mean(name, known) or (f"there are {listed}" if known else "no topic exists yet; produce one first"),
        table=shown,
    )


def _is_catalog(schema: str, name: str) -> bool:
    """DuckDB's own tables."""
    catalog = ("duckdb_", "sqlite_", "pg_", "pragma_")
    return schema.lower() in ("information_schema", "pg_catalog") or name.lower().startswith(catalog)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
