"""The DuckDB that the user's SQL runs in: in memory, over registered tables only, locked before the first query.

There is no list of forbidden words: what SQL could reach is switched off, then the switches are locked. Order matters, the lock is last
(`docs`: guarantees, Security). Each query has a database of its own, so nothing is shared and nothing is left.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from functools import cache
from pathlib import Path

import duckdb

from kstreams_repl.errors import KStreamsError
from kstreams_repl.kafka.embedded.jars import cache_directory

MEMORY_LIMIT = "2GB"


def open_sandbox(
    *, memory_limit: str = MEMORY_LIMIT, threads: int | None = None, spill: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """A fresh locked database.

    Args:
        spill: where DuckDB may put what does not fit into `memory_limit`; it is made only when needed. None: in a directory of this user's
            alone, in the cache if that can be written (DuckDB makes directories and files that all may read).
    """
    where = "" if spill is None else str(spill)
    if spill is None and (private := _private_place(os.getpid())) is not None:
        where = str(private / f"{os.getpid()}-{uuid.uuid4().hex}")
    database = duckdb.connect(":memory:", config={"python_enable_replacements": "false", "python_scan_all_frames": "false"})
    for name, value in (
        ("temp_directory", _text(where)),
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


@cache
def _private_place(pid: int) -> Path | None:
    """A directory of this user's alone, for as long as the process lives; None: there can be none."""
    try:
        return _in_the_cache()
    except (OSError, RuntimeError):  # no home, or one that cannot be written, as in a container
        try:
            made = Path(tempfile.mkdtemp(prefix="kstreams-sql-"))
        except OSError:
            return None
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return made


def _in_the_cache() -> Path:
    """This user's directory, without what processes that were killed have left there."""
    place = cache_directory().parent / "sql"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    if place.is_symlink() or place.stat().st_uid != os.getuid():
        raise PermissionError(f"{place} is somebody else's")
    place.chmod(0o700)
    if os.path.exists("/proc/self"):
        for entry in place.iterdir():
            if not os.path.exists(f"/proc/{entry.name.partition('-')[0]}"):
                shutil.rmtree(entry, ignore_errors=True)
    return place


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
