"""The DuckDB database for the user's SQL: in memory, with registered tables only, locked before the first query.

There is no list of forbidden words: external access is disabled, then the settings are locked. The order matters, the lock comes last
(`docs`: guarantees, Security). Each query has its own database, so queries share nothing and leave nothing behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from functools import cache
from pathlib import Path

import duckdb

from kstreams_repl.host.kafka.embedded.jars import cache_directory
from kstreams_repl.system.errors import SqlError
from kstreams_repl.system.forks import finalizer_of, undying_when_forked
from kstreams_repl.system.process_info import start_time

MEMORY_LIMIT = "2GB"


def open_sandbox(
    *, memory_limit: str = MEMORY_LIMIT, threads: int | None = None, spill: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a new locked database.

    Args:
        spill: directory for data that exceed `memory_limit`, created only when needed. None: a directory that only this user can access,
            in the cache if that can be written to (DuckDB creates directories and files that everybody can read).
    """
    where = "" if spill is None else str(spill)
    if spill is None and (private := _private_directory(os.getpid())) is not None:
        where = str(private / f"{os.getpid()}-{uuid.uuid4().hex}")
    database = duckdb.connect(":memory:", config={"python_enable_replacements": "false", "python_scan_all_frames": "false"})
    undying_when_forked(database)
    for name, value in (
        ("temp_directory", _text(where)),
        ("memory_limit", _text(memory_limit)),
        ("threads", str(threads or os.cpu_count() or 1)),
        ("TimeZone", "'UTC'"),  # times without a zone are UTC: else now() and times with a zone are compared as local time
        ("enable_progress_bar", "false"),  # in a notebook it is a black bar that stays
        ("allow_community_extensions", "false"),
        ("autoinstall_known_extensions", "false"),
        ("autoload_known_extensions", "false"),
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
    ):
        database.execute(f"SET {name} = {value}")
    return database


def quote_identifier(name: str) -> str:
    """Return a name as an SQL identifier: in double quotes, with double quotes inside doubled.

    Raises:
        SqlError: the name contains a NUL character, which SQL names cannot contain.

    Example:
        >>> quote_identifier('flights"; DROP')
        '"flights""; DROP"'
    """
    if "\0" in name:
        raise SqlError(f"{name!r} cannot be a name in SQL", hint="remove the NUL character from the name")
    return '"' + name.replace('"', '""') + '"'


@cache
def _private_directory(pid: int) -> Path | None:
    """Return a directory that only this user can access, which exists until the process ends; None if none can be created."""
    try:
        return _in_the_cache()
    except (OSError, RuntimeError):  # no home directory, or a read-only one, as in a container
        try:
            made = Path(tempfile.mkdtemp(prefix="kstreams-sql-"))
        except OSError:
            return None
        finalizer_of(_private_directory, shutil.rmtree, made, True)
        return made


def _in_the_cache() -> Path:
    """Return this user's directory in the cache, after removing what killed processes left there."""
    place = cache_directory().parent / "sql"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    if place.is_symlink() or place.stat().st_uid != os.getuid():
        raise PermissionError(f"{place} belongs to another user")
    place.chmod(0o700)
    for entry in place.iterdir():
        pid = entry.name.partition("-")[0]
        if not pid.isdecimal() or not start_time(int(pid)):
            shutil.rmtree(entry, ignore_errors=True)
    return place


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
