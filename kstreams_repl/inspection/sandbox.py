"""The DuckDB that the user's SQL runs in: in memory, over registered tables only, locked before the first query.

There is no list of forbidden words: what SQL could reach is switched off, then the switches are locked. Order matters, the lock is last
(`docs`: guarantees, Security). Each query has a database of its own, so nothing is shared and nothing is left.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import duckdb

from kstreams_repl.errors import KStreamsError

MEMORY_LIMIT = "2GB"


def open_sandbox(
    *, memory_limit: str = MEMORY_LIMIT, threads: int | None = None, spill: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """A fresh locked database.

    Args:
        spill: where DuckDB may put what does not fit into `memory_limit`; it is made only when needed. None: the temporary directory.
    """
    where = spill or Path(tempfile.gettempdir()) / f"kstreams-sql-{os.getpid()}"
    database = duckdb.connect(":memory:", config={"python_enable_replacements": "false", "python_scan_all_frames": "false"})
    for name, value in (
        ("temp_directory", _text(str(where))),
        ("memory_limit", _text(memory_limit)),
        ("threads", str(threads or os.cpu_count() or 1)),
        ("allow_community_extensions", "false"),
        ("autoinstall_known_extensions", "false"),
        ("autoload_known_extensions", "false"),
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
    ):
        database.execute(f"SET {name} = {value}")
    return database


def quote_identifier(name: str) -> str:
    """A name as SQL takes it, whatever is in it: in double quotes, with those inside doubled.

    Raises:
        KStreamsError: the name holds a NUL, which no SQL name can.

    Example:
        >>> quote_identifier('flights"; DROP')
        '"flights""; DROP"'
    """
    if "\0" in name:
        raise KStreamsError(f"{name!r} cannot be a name in SQL", hint="it holds a NUL character")
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
