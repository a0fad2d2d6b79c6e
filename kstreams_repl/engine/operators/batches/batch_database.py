"""DuckDB for the nodes that take many records at once: queries of `sql`, and JSON text made by the column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kstreams_repl.system.errors import KStreamsError, MissingPackageError
from kstreams_repl.system.forks import undying_when_forked

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation


def open_database() -> DuckDBPyConnection:
    """Return a database in memory for one thread, without files and extensions, whose settings are locked.

    Raises:
        MissingPackageError: duckdb is not installed.
    """
    try:
        import duckdb
        import numpy  # noqa: F401 - results are fetched with it
    except ImportError as cause:
        raise MissingPackageError(
            f"sql() needs {cause.name}, which is not installed", hint="pip install 'kstreams-repl[sql]' numpy"
        ) from cause
    database = duckdb.connect(":memory:", config={"python_enable_replacements": "false", "python_scan_all_frames": "false"})
    undying_when_forked(database)
    for name, value in (
        ("threads", "1"), ("memory_limit", "'1GB'"), ("temp_directory", "''"), ("TimeZone", "'UTC'"), ("enable_progress_bar", "false"),
        ("allow_community_extensions", "false"), ("autoinstall_known_extensions", "false"), ("autoload_known_extensions", "false"),
        ("enable_external_access", "false"), ("lock_configuration", "true"),
    ):  # fmt: skip
        database.execute(f"SET {name} = {value}")
    return database


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(name: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + name.replace("'", "''") + "'"


class Statement:
    """A prepared query over records that change from run to run: parsed and planned once.

    Args:
        database: of `open_database`.
        number: names the statement and its records in the database.
        query: text of the SELECT, with ``{records}`` where the table stands.
        records: records of the right schema.
    """

    def __init__(self, database: DuckDBPyConnection, number: int, query: str, records: object) -> None:
        self._database, self._current = database, _Current(records)
        self.query = query.format(records=f"records_{number}")
        database.register(f"records_{number}", self._current)
        self._execute = f"EXECUTE statement_{number}"
        self._number = number

    def relation(self) -> DuckDBPyRelation:
        """Return the query as a relation, for its columns and types."""
        return self._database.sql(self.query)

    def prepare(self, query: str) -> None:
        """Prepare the query that is run; ``{query}`` in it is the statement's own."""
        self._database.execute(f"PREPARE statement_{self._number} AS {query.format(query=self.query)}")

    def table(self, records: object) -> pa.Table:
        """Run the query over these records; return the result as an Arrow table."""
        self._current.records = records
        return self._database.sql(self._execute).to_arrow_table()

    def columns(self, records: object) -> list[list[Any]]:
        """Run the query over these records; return the columns of the result, numbers and texts."""
        return [column.tolist() for column in self.arrays(records)]

    def arrays(self, records: object) -> list[Any]:
        """Run the query over these records; return the columns of the result as arrays of numpy, NULL masked."""
        self._current.records = records
        return list(self._database.execute(self._execute).fetchnumpy().values())


class _Current:
    """A table for the database that gives the records of this run (Arrow's PyCapsule interface)."""

    def __init__(self, records: Any) -> None:
        self.records = records

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.records.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.records.schema.__arrow_c_schema__()


class JsonWriter:
    """Writes the rows of Arrow tables as JSON objects, by the column where that gives the text that the json serde would write: numbers
    without a fraction, truth values and texts."""

    _MOST = 16
    """Shapes of tables for which statements are kept."""

    def __init__(self) -> None:
        self._database: DuckDBPyConnection | None = None
        self._missing = False
        self._statements: dict[object, Statement] = {}

    def write(self, table: pa.Table, names: Sequence[str]) -> list[bytes] | None:
        """Return one text per row; None if the rows must be written one by one.

        Args:
            names: the columns that become fields.
        """
        import pyarrow as pa

        kinds = tuple((name, table.schema.field(name).type) for name in names)
        plain = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
        if self._missing or not all(any(is_kind(kind) for is_kind in plain) for _, kind in kinds):
            return None
        chosen = table.select(list(names))
        statement = self._statements.get(kinds)
        if statement is None:
            statement = self._prepared(names, chosen)
            if statement is None:
                return None
            self._statements[kinds] = statement
        return list(map(str.encode, statement.columns(chosen)[0]))

    def _prepared(self, names: Sequence[str], chosen: object) -> Statement | None:
        if len(self._statements) >= self._MOST:
            return None
        if self._database is None:
            try:
                self._database = open_database()
            except KStreamsError:  # duckdb is optional here
                self._missing = True
                return None
        pairs = ", ".join(f"{literal(name)}: {quoted(name)}" for name in names).replace("{", "{{").replace("}", "}}")
        statement = Statement(self._database, len(self._statements), f"SELECT to_json({{{{{pairs}}}}}) AS text FROM {{records}}", chosen)
        statement.prepare("{query}")
        return statement

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
