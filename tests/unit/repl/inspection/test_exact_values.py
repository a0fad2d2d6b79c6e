"""What cannot be kept exactly is told: names that differ only in case, integers in columns of fractions, one unusual field."""

from __future__ import annotations

from decimal import Decimal

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.pictures.columns import as_array, milliseconds
from kstreams_repl.repl.inspection import run_sql
from kstreams_repl.repl.inspection.stores import LogRows, store_table
from kstreams_repl.system.types import RecordBatch
from tests.unit.repl.inspection.test_query import Tables, ask, topic

LARGE = 9_007_199_254_740_993


def test_fields_that_differ_only_in_case_leave_the_others_typed() -> None:
    """One such field made text of the whole topic's value, and the documented to_json(value)->>'ID' gave NULL."""
    orders = topic([{"id": 1, "amount": 2.5}, {"ID": 2, "amount": 3}, {"id": 4, "amount": 1}])
    found = ask("SELECT id, amount, to_json(value)->>'ID' AS other, value->>'id' AS own FROM orders ORDER BY \"offset\"", orders=orders)
    assert found.fetchall() == [(1, 2.5, None, "1"), (None, 3.0, "2", None), (4, 1.0, None, "4")]
    assert any("'id' and 'ID' differ only in case" in note for note in found.notes)
    nested = ask("SELECT amount, o->>'ID' FROM orders", orders=topic([{"amount": 1, "o": {"id": 1}}, {"amount": 2, "o": {"ID": 2}}]))
    assert nested.fetchall() == [(1, None), (2, "2")]


def test_integers_that_fractions_would_round_are_told() -> None:
    """9007199254740993 was read as …992 without a word."""
    mixed = topic([{"x": LARGE, "id": LARGE}, {"x": 0.5, "id": 1}, {"x": 3, "id": LARGE + 2}])
    found = ask("SELECT x, id FROM t", t=mixed)
    assert [row[1] for row in found.fetchall()] == [LARGE, 1, LARGE + 2]
    assert [note for note in found.notes if '1 integer of t.value at $."x" is rounded to a DOUBLE' in note]
    assert ask("SELECT x, id FROM t", t=topic([{"x": 2**53, "id": LARGE}, {"x": 0.5, "id": 1}])).notes == ()
    listed = ask("SELECT x FROM t", t=topic([{"x": [{"y": LARGE}, {"y": 0.5}]}]))
    assert any('$."x"[*]."y"' in note for note in listed.notes)


@pytest.mark.parametrize("number", [10**29 + 1, -(10**20) - 1, 2**64])
def test_integers_of_up_to_38_digits_are_exact(number: int) -> None:
    values = [b'{"n":%d,"o":{"n":1}}' % number, b'{"n":1,"o":{"n":%d}}' % number]
    found = ask("SELECT n, o.n FROM t ORDER BY \"offset\"", t=topic(values))
    assert found.fetchall() == [(number, 1), (1, number)] and found.notes == ()


def test_one_unusual_field_leaves_the_others_typed() -> None:
    """A Protobuf uint64 of 2^63 or more made Python's repr of the whole value."""
    values = [{"n": 2**63 + 1, "m": -1, "x": "a"}, {"n": 1, "m": 2**64, "x": 5}, None, {"n": -1, "tags": [1, "b"]}]
    found = as_array(values).to_pylist()
    assert [row and row["n"] for row in found] == [2**63 + 1, 1, None, -1]
    assert [row and row["m"] for row in found] == [-1, 2**64, None, None]
    assert [row and row["x"] for row in found] == ["a", "5", None, None]
    assert found[3]["tags"] == ["1", "b"]
    assert as_array([2**64 - 1, 1]).to_pylist() == [2**64 - 1, 1]
    assert as_array([1.5, LARGE]).to_pylist() == ["1.5", str(LARGE)]


def test_times_after_the_year_9999_are_told() -> None:
    assert milliseconds([253_402_300_800_000]).null_count == 1
    far = topic([{"n": 1}])
    far.columns["timestamp"] = milliseconds([253_402_300_800_000])
    assert run_sql("SELECT timestamp FROM t", Tables(t=far)).fetchall() == [(None,)]


def test_decimals_that_a_float_would_round_stay_decimals_in_a_dataframe() -> None:
    query = "SELECT 12345678901234567.89::DECIMAL(38, 2) AS x, 1.5::DECIMAL(4, 1) AS y, sum(n) AS s FROM t"
    frame = ask(query, t=topic([{"n": LARGE}])).df()
    assert frame["x"][0] == Decimal("12345678901234567.89") and frame["y"][0] == 1.5 and frame["s"][0] == LARGE


def test_two_columns_of_one_name_are_numbered_in_every_conversion() -> None:
    """df() renamed the second, pl() failed."""
    found = ask("SELECT 1 AS a, 2 AS a, 3 AS b")
    assert list(found.df().columns) == list(found.pl().columns) == found.arrow().column_names == ["a", "a_1", "b"]


def test_a_file_is_refused_with_a_hint_about_files() -> None:
    with pytest.raises(Exception, match="files") as told:
        ask("SELECT * FROM read_csv('/etc/passwd')").fetchall()
    assert "dataframe" in str(told.value)


def test_header_values_are_text_where_they_are_utf8() -> None:
    """They were shown as b'TypeError'."""
    found = ask("SELECT headers[1].value AS h, headers FROM t WHERE headers[1].value = '1'", t=topic([{"n": 1}]))
    assert found.fetchall() == [("1", [{"name": "h", "value": "1"}])] and "b'" not in repr(found)




def test_records_that_are_no_rows_are_left_out_of_a_store_and_told() -> None:
    """One short key in a window store's changelog shifted the times of all rows behind it."""
    builder = StoreBuilder("s", StoreKind.WINDOW, serdes.string, serdes.long, retention_ms=600_000, window_size_ms=10)
    log = LogRows(builder, 0)
    keys: list[bytes | None] = [b"a" + (50).to_bytes(8, "big") + bytes(4), b"short", b"b" + (70).to_bytes(8, "big") + bytes(4)]
    log.add(RecordBatch(keys, [bytes(8)] * 3, [0, 0, 0], [0, 1, 2], None))
    made = store_table(builder, [log.rows()], key_serde=serdes.string, value_serde=serdes.long)
    assert made.columns["key"].to_pylist() == ["a", "b"]
    assert [moment.microsecond for moment in made.columns["window_start"].to_pylist()] == [50_000, 70_000]
    assert made.notes == ("store s: 1 record of its changelog is not a row of such a store and left out",)
