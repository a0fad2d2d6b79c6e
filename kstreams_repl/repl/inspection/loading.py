"""Load a topic into DuckDB in pieces. DuckDB spills to disk what exceeds its memory, so topics of any size can be queried.

Each partition has its own table, so that rows stay in offset order although partitions are read interleaved. Pieces with different
column types (from the user's own serdes: integers in one, fractions in another) are converted to common types once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import duckdb
import pyarrow as pa

from kstreams_repl.pictures.columns import as_texts
from kstreams_repl.repl.inspection.sandbox import quote_identifier
from kstreams_repl.repl.inspection.topics import TopicScan
from kstreams_repl.system.errors import SqlError

_PIECE = "kstreams next piece"


def load(database: duckdb.DuckDBPyConnection, name: str, scan: TopicScan) -> tuple[str, ...]:
    """Read a topic to its end as the view `name`; return its columns.

    Raises:
        BrokerUnavailableError: no records arrived for some time.
    """
    tables: dict[tuple[int, int], tuple[str, pa.Schema]] = {}
    latest: dict[int, tuple[str, pa.Schema]] = {}
    for partition, data in scan.pieces():
        rows = pa.table(data.columns)
        known = latest.get(partition)
        if known is None or known[1] != rows.schema:
            number = len(tables)
            known = latest[partition] = tables[partition, number] = (f"{name} #{number}", rows.schema)
            _put(database, f"CREATE TABLE {quote_identifier(known[0])} AS FROM {quote_identifier(_PIECE)}", rows)
        else:
            _put(database, f"INSERT INTO {quote_identifier(known[0])} FROM {quote_identifier(_PIECE)}", rows)
    ordered = [tables[place] for place in sorted(tables)]
    schema = _common([schema for _, schema in ordered])
    for table, own in ordered:
        if own != schema:
            _remake(database, table, own, schema)
    union = " UNION ALL ".join(f"FROM {quote_identifier(table)}" for table, _ in ordered)
    database.execute(f"CREATE VIEW {quote_identifier(name)} AS {union}")
    return tuple(schema.names)


def _put(database: duckdb.DuckDBPyConnection, statement: str, rows: pa.Table) -> None:
    database.register(_PIECE, rows)
    try:
        database.execute(statement)
    finally:
        database.unregister(_PIECE)


def _remake(database: duckdb.DuckDBPyConnection, table: str, own: pa.Schema, schema: pa.Schema) -> None:
    rows = database.table(quote_identifier(table)).to_arrow_table()
    columns = []
    for field in schema:
        here = own.get_field_index(field.name)
        if here < 0 or pa.types.is_null(own.field(here).type):
            columns.append(pa.nulls(rows.num_rows, field.type))
        elif own.field(here).type == field.type:
            columns.append(rows.column(field.name))
        else:
            columns.append(_as_type(rows.column(field.name).to_pylist(), field.type))
    made_alike = pa.table(columns, schema=schema)
    _put(database, f"CREATE OR REPLACE TABLE {quote_identifier(table)} AS FROM {quote_identifier(_PIECE)}", made_alike)


def _as_type(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return as_texts(values)
    try:
        return pa.array(values, kind)
    except pa.ArrowException as error:
        raise SqlError(
            f"the values of a column have no common type that keeps them: {error}",
            hint="integers of more than 53 bits and fractions: topic_limit= reads the last records only, session.read all as they are",
        ) from error


def _common(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return one schema for all: the columns of each, in the order of the largest one, each with a type that fits all values."""
    names = dict.fromkeys(name for schema in sorted(schemas, key=len, reverse=True) for name in schema.names)
    kinds = {name: [schema.field(name).type for schema in schemas if name in schema.names] for name in names}
    return pa.schema([pa.field(name, _one_type(found)) for name, found in kinds.items()])


def _one_type(kinds: Iterable[pa.DataType]) -> pa.DataType:
    try:
        return pa.unify_schemas([pa.schema([pa.field("x", kind)]) for kind in kinds], promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()
