"""DuckDB for the nodes that take many records at once: queries of `sql`, and JSON text made by the column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kstreams_repl.errors import KStreamsError


def open_database() -> Any:
    """Return a database in memory for one thread, without files and extensions, whose settings are locked.

    Raises:
        KStreamsError: duckdb is not installed.
    """
    try:
        import duckdb
    except ImportError as cause:
        raise KStreamsError("sql() needs duckdb, which is not installed", hint="pip install 'kstreams-repl[sql]'") from cause
    database = duckdb.connect(":memory:", config={"python_enable_replacements": "false", "python_scan_all_frames": "false"})
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


class JsonWriter:
    """Writes the rows of Arrow tables as JSON objects, by the column where that gives the text that the json serde would write: numbers
    without a fraction, truth values and texts."""

    def __init__(self) -> None:
        self._database: Any = None
        self._missing = False

    def write(self, table: Any, names: Sequence[str]) -> list[bytes] | None:
        """Return one text per row; None if the rows must be written one by one.

        Args:
            names: the columns that become fields.
        """
        import pyarrow as pa

        kinds = [table.schema.field(name).type for name in names]
        plain = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
        if self._missing or not all(any(is_kind(kind) for is_kind in plain) for kind in kinds):
            return None
        if self._database is None:
            try:
                self._database = open_database()
            except KStreamsError:  # duckdb is optional here
                self._missing = True
                return None
        self._database.register("rows", table.select(list(names)))
        pairs = ", ".join(f"{literal(name)}: {quoted(name)}" for name in names)
        column = self._database.sql(f"SELECT to_json({{{pairs}}}) AS text FROM rows").to_arrow_table().column(0)
        texts: list[bytes] = column.cast(pa.binary()).to_pylist()
        return texts

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
