"""From records to columns: what a column takes, and what it refuses instead of another value."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import kstreams_repl as ks
from kstreams_repl.engine.dsl.streams.table_file_operators import _type
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.table_files.row_batches import RowBatches, record_batch

AT = datetime(2013, 1, 1, 5, 15, 0, 1000, tzinfo=UTC)
AT_MS = 1_357_017_300_001
MOMENTS = pa.schema([("at", pa.timestamp("us", "UTC"))])


def column(values: list[Any], kind: Any) -> list[Any]:
    table = TableFiles("t", "parquet", pa.schema([("x", kind)]))
    return list(record_batch(table, [{"x": value} for value in values], [], [0] * len(values)).column(0).to_pylist())


def test_an_integer_in_a_timestamp_column_is_milliseconds() -> None:
    """They were read as microseconds: moments of 1970, without an error."""
    assert column([AT_MS, 0, -1, None], pa.timestamp("us", "UTC"))[:2] == [AT, datetime(1970, 1, 1, tzinfo=UTC)]
    assert column([AT_MS], pa.timestamp("us")) == [AT.replace(tzinfo=None)]
    assert column([AT], pa.timestamp("us", "UTC")) == column(["2013-01-01T05:15:00.001Z"], pa.timestamp("us", "UTC")) == [AT]


def test_integers_are_milliseconds_inside_of_structs_and_lists_whatever_the_unit() -> None:
    nested = pa.struct([("seen", pa.list_(pa.timestamp("ms", "UTC"))), ("n", pa.int64())])
    assert column([{"seen": [AT_MS, None], "n": 1}, None], nested) == [{"seen": [AT, None], "n": 1}, None]


def test_numbers_of_json_are_decimals() -> None:
    assert column([12.34, 3, "0.10", None][:2], pa.decimal128(6, 2)) == [Decimal("12.34"), Decimal("3.00")]
    assert column(["0.10", None], pa.decimal128(6, 2)) == [Decimal("0.10"), None]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (AT_MS * 1000, pa.timestamp("us", "UTC")),  # microseconds
        (2**63, pa.timestamp("us", "UTC")),
        (True, pa.timestamp("us", "UTC")),
        (1.5, pa.timestamp("us", "UTC")),
        (20_130_101, pa.date32()),
        (15_706, pa.date32()),
        (datetime(2013, 1, 1, 5), pa.date32()),
        (1.5, pa.int64()),
        (Decimal("1.5"), pa.int64()),
        ({"n": 1.5}, pa.struct([("n", pa.int64())])),
        (1e300, pa.float32()),
        (2**63, pa.int64()),
        (2**53 + 1, pa.float64()),
        ("3", pa.int64()),
        (12.345, pa.decimal128(6, 2)),
    ],
)
def test_what_a_column_cannot_keep_is_a_misfit(value: Any, kind: Any) -> None:
    found: list[Exception] = []
    table = TableFiles("t", "parquet", pa.schema([("x", kind)]))
    rows = RowBatches(table, lambda key, value, context, cause: found.append(cause))
    rows.append(None, {"x": value}, 0)
    assert rows.take() == [] and len(found) == 1


def test_records_that_fit_one_by_one_are_kept_together() -> None:
    """A datetime, a text, an integer and a misfit in one batch: the conversion of those that fit failed as a whole."""
    found: list[Any] = []
    rows = RowBatches(TableFiles("t", "parquet", MOMENTS), lambda key, value, context, cause: found.append(value))
    for value in (AT, "2013-01-01T05:15:00.001Z", AT_MS, "soon"):
        rows.append(None, {"at": value}, 0)
    (batch,) = rows.take()
    assert batch.column(0).to_pylist()[:3] == [AT] * 3 and found == [{"at": "soon"}]


@pytest.mark.parametrize(("name", "kind"), [("bigint", pa.int64()), (int, pa.int64()), ("VARCHAR", pa.string()), ("real", pa.float32())])
def test_types_have_the_names_of_sql_columns(name: Any, kind: Any) -> None:
    assert _type("x", name) == kind
    orders = ks.StreamsBuilder().stream("orders", key_serde="string", value_serde="json")
    orders.to_table_files("/data/orders", schema={"x": name})
