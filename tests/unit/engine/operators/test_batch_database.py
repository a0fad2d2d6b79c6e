"""DuckDB for batch nodes: what happens without it, and JSON by the column."""

from __future__ import annotations

import sys

import orjson
import pyarrow as pa
import pytest

import kstreams_repl as ks
from kstreams_repl.engine.operators.batches.batch_database import JsonWriter, open_database
from kstreams_repl.system.errors import KStreamsError
from tests.unit.engine.operators.test_stream_map_batches import driver_of, results, same


@pytest.mark.parametrize("module", ["duckdb", "numpy"])
def test_sql_says_what_is_not_installed(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    stream = ks.StreamsBuilder().stream("in", key_serde="string", value_serde="string")
    with pytest.raises(KStreamsError, match=f"sql.. needs {module}, which is not installed") as caught:
        stream.sql("SELECT value FROM this")
    assert "pip install" in str(caught.value.hint)


def test_map_batches_does_not_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert results(driver_of(same, columns={"n": int}, mode="deployed"), ("a", {"n": 1}, 1)) == [("a", {"n": 1})]


def test_pyarrow_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(KStreamsError, match="map_batches.. needs pyarrow, which is not installed"):
        driver_of(same, columns={"n": int})


def test_json_by_the_column_is_what_the_serde_writes() -> None:
    rows = [
        {"n": 1, "text": "a\"\\/\u00fc\u2028\U0001f600\n\t", "yes": True}, {"n": None, "text": None, "yes": None},
        {"n": -(2**63), "text": "", "yes": False},
    ]  # fmt: skip
    writer = JsonWriter()
    table = pa.Table.from_pylist(rows)
    assert writer.write(table, ["n", "text", "yes"]) == [orjson.dumps(row) for row in rows]
    assert writer.write(table.slice(1, 1), ["n", "text", "yes"]) == [orjson.dumps(rows[1])]
    assert writer.write(pa.table({"x": [1.5]}), ["x"]) is None, "the text of a fraction may differ"
    writer.close()


def test_a_writer_keeps_a_bounded_number_of_statements() -> None:
    writer = JsonWriter()
    written = [writer.write(pa.table({f"c{number}": [number]}), [f"c{number}"]) for number in range(20)]
    assert written[:16] == [[b'{"c%d":%d}' % (number, number)] for number in range(16)]
    assert written[16:] == [None] * 4
    writer.close()


def test_settings_of_the_database_are_locked() -> None:
    import duckdb

    database = open_database()
    with pytest.raises(duckdb.Error, match="locked|Cannot change"):
        database.execute("SET enable_external_access = true")
    with pytest.raises(duckdb.Error, match="disabled|Permission"):
        database.execute("SELECT * FROM read_text('/etc/hostname')").fetchall()
    database.close()


def test_a_column_never_cuts_a_number() -> None:
    """Its type is that of the first object: 1.5 behind a 1 became 1."""
    from kstreams_repl.engine.operators.batches.record_columns import typed
    from kstreams_repl.system.errors import InvalidRecordError

    with pytest.raises(InvalidRecordError, match=r"1\.5 is not an integer"):
        typed([1, 1.5], None, "value")
    assert typed([1, 2.0], None, "value").to_pylist() == [1, 2]
