from __future__ import annotations

import os
from pathlib import Path
from tempfile import mkdtemp

import duckdb
import pytest

from kstreams_repl.repl.inspection import sandbox
from kstreams_repl.repl.inspection.sandbox import open_sandbox, quote_identifier
from kstreams_repl.system.errors import KStreamsError

HOSTILE = ['a"b', 'x"; DROP TABLE t; --', "flights.2013", "../../etc/passwd", "select", "ünï", "a\nb", "'", "", "x" * 5000]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '/tmp/kstreams-escaped.csv'",
        "EXPORT DATABASE '/tmp/kstreams-escaped'",
        "ATTACH '/tmp/kstreams-escaped.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT * FROM read_parquet('http://127.0.0.1:1/x')",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET temp_directory = '/'",
        "RESET memory_limit",
        "PRAGMA enable_logging",
        "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    ],
)
def test_sql_reaches_nothing_outside(query: str) -> None:
    with open_sandbox() as database, pytest.raises(duckdb.Error):
        database.execute(query).fetchall()
    assert not list(Path("/tmp").glob("kstreams-escaped*"))


def test_python_variables_are_out_of_reach() -> None:
    import pyarrow

    hidden = pyarrow.table({"secret": [1]})
    with open_sandbox() as database, pytest.raises(duckdb.CatalogException):
        database.execute("SELECT * FROM hidden").fetchall()
    assert hidden.num_rows == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_only_a_name(name: str) -> None:
    if not name:
        return
    with open_sandbox() as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS one")
        database.execute(f"CREATE TABLE {quote_identifier(name)} AS SELECT 42 AS x")
        assert database.execute(f"SELECT x FROM {quote_identifier(name)}").fetchall() == [(42,)]
        assert database.execute("SELECT one FROM t").fetchall() == [(1,)]


def test_a_nul_is_no_name() -> None:
    with pytest.raises(KStreamsError, match="cannot be a name"):
        quote_identifier("a\0b")


def spilling(database: duckdb.DuckDBPyConnection) -> Path:
    """Where a query that does not fit into the memory puts its rows."""
    database.execute("SELECT range AS a, range::VARCHAR || 'of a topic' AS b FROM range(1500000) ORDER BY hash(range)").fetchone()
    (place,) = database.execute("SELECT current_setting('temp_directory')").fetchall()[0]
    return Path(place)


def test_what_does_not_fit_into_memory_is_for_no_other_users_eyes_and_goes_with_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KSTREAMS_CACHE", str(tmp_path / "cache"))
    sandbox._private_directory.cache_clear()
    try:
        left = tmp_path / "cache" / "sql" / "999999999-of-a-killed-process"
        left.mkdir(parents=True)
        with open_sandbox(memory_limit="40MB", threads=1) as database:
            place = spilling(database)
            assert list(place.iterdir()) and not left.exists()
            assert any(not parent.stat().st_mode & 0o077 for parent in (place, *place.parents) if parent.is_relative_to(tmp_path / "cache"))
            with open_sandbox(memory_limit="40MB", threads=1) as other:  # one that ends must not take another's rows along
                assert spilling(other) != place
            assert list(place.iterdir())
        assert not os.listdir(place.parent)
    finally:
        sandbox._private_directory.cache_clear()


@pytest.mark.parametrize("reason", ["no directory", "no home"])
def test_without_a_cache_that_can_be_written_the_place_is_private_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KSTREAMS_CACHE", str(tmp_path / "file" / "cache"))
    if reason == "no home":
        monkeypatch.setattr(sandbox, "cache_directory", lambda: Path("~nobody-of-this-name").expanduser())
    monkeypatch.setattr(sandbox.tempfile, "mkdtemp", lambda prefix: mkdtemp(prefix=prefix, dir=tmp_path))
    sandbox._private_directory.cache_clear()
    try:
        with open_sandbox(memory_limit="40MB", threads=1) as database:
            place = spilling(database)
            assert place.parent.parent == tmp_path and place.parent.stat().st_mode & 0o777 == 0o700
    finally:
        sandbox._private_directory.cache_clear()
