"""Which class reads and writes the log of which format; each imports its library only here."""

from __future__ import annotations

from collections.abc import Callable

from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.system.extras import extras
from kstreams_repl.table_files.table_log import TableLog


def open_log(table: TableFiles) -> TableLog:
    """Return the log of a table's format.

    Raises:
        KStreamsError: the format's library is not installed.
    """
    return _opener(table.format)(table)


def _opener(kind: str) -> Callable[[TableFiles], TableLog]:
    with extras():
        if kind == "delta":
            from kstreams_repl.table_files.delta_log import DeltaLog

            return DeltaLog
        if kind == "iceberg":
            from kstreams_repl.table_files.iceberg_log import IcebergLog

            return IcebergLog
    from kstreams_repl.table_files.parquet_log import ParquetLog

    return ParquetLog
