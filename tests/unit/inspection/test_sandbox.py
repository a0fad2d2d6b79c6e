from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from kstreams_repl.errors import KStreamsError
from kstreams_repl.inspection.sandbox import open_sandbox, quote_identifier

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
