"""Declared fields of JSON objects as columns."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kstreams_repl.engine.operators.batches.json_fields import json_reader
from kstreams_repl.system.errors import InvalidRecordError

NOON = datetime(2026, 1, 1, 12)
NESTED = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])


def read(kind: Any, *texts: bytes | None, name: str = "a") -> list[Any]:
    columns, _ = json_reader(pa.schema([(name, kind)])).columns(texts)
    assert columns[name].type == kind
    return list(columns[name].to_pylist())


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), b"-9223372036854775808", -(2**63)),
        (pa.uint8(), b"255", 255),
        (pa.float64(), b"1", 1.0),
        (pa.float64(), b"12345678901234567890123", 1.2345678901234568e22),
        (pa.float32(), b"1.5", 1.5),
        (pa.bool_(), b"true", True),
        (pa.string(), b'"\\u00fc\\n"', "ü\n"),
        (pa.large_string(), b'"a"', "a"),
        (pa.binary(), b'"\\u00fc"', "ü".encode()),
        (pa.decimal128(10, 2), b"1.25", Decimal("1.25")),
        (pa.decimal128(10, 2), b'"1.25"', Decimal("1.25")),
        (pa.timestamp("ms"), b'"2026-01-01T12:00:00"', NOON),
        (pa.timestamp("ms"), b'"2026-01-01T14:00:00+02:00"', NOON),
        (pa.timestamp("ms"), b'"2026-01-01"', datetime(2026, 1, 1)),
        (pa.timestamp("us", "UTC"), b'"2026-01-01T12:00:00Z"', NOON.replace(tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), b'"2026-01-01 12:00:00"', NOON.replace(tzinfo=UTC)),
        (pa.list_(pa.timestamp("s")), b'["2026-01-01T13:00:00+01:00", null]', [NOON, None]),
        (pa.struct([("at", pa.timestamp("s", "UTC"))]), b'{"at": "2026-01-01T12:00"}', {"at": NOON.replace(tzinfo=UTC)}),
        (pa.date32(), b'"2026-01-01"', date(2026, 1, 1)),
        (pa.time32("s"), b"43200", time(12)),
        (pa.list_(pa.int64()), b"[1, null]", [1, None]),
        (NESTED, b'{"x": 1, "y": ["b"], "z": 5}', {"x": 1, "y": ["b"]}),
        (NESTED, b"{}", {"x": None, "y": None}),
        (pa.int64(), b"null", None),
    ],
)
def test_a_field_becomes_a_value_of_its_declared_type(kind: Any, text: bytes, value: Any) -> None:
    assert read(kind, b'{"b": [{}], "a": ' + text + b"}") == [value]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int64(), b"1.0"),
        (pa.int64(), b"true"),
        (pa.int64(), b'"1"'),
        (pa.int64(), b"9223372036854775808"),
        (pa.int32(), b"3000000000"),
        (pa.uint8(), b"-1"),
        (pa.float64(), b'"1"'),
        (pa.float64(), b"1e400"),
        (pa.bool_(), b"1"),
        (pa.string(), b"1"),
        (pa.string(), b'"\xff"'),
        (pa.decimal128(10, 2), b"1.255"),
        (pa.timestamp("ms"), b'"2026-01-01T12:00:00.123456"'),
        (pa.timestamp("ms"), b"5"),
        (pa.list_(pa.int64()), b"1"),
        (NESTED, b"[1]"),
        (pa.int64(), b"1} x"),
    ],
)
def test_no_value_is_changed_to_fit(kind: Any, text: bytes) -> None:
    with pytest.raises(InvalidRecordError, match="does not fit the columns") as caught:
        read(kind, b'{"a": 1}' if kind == pa.int64() else b"{}", b'{"a": ' + text + b"}")
    assert caught.value.hint


def test_a_time_keeps_its_nanoseconds() -> None:
    columns, _ = json_reader(pa.schema([("a", pa.timestamp("ns"))])).columns([b'{"a": "1970-01-01T00:00:00.123456789"}'])
    assert columns["a"].cast(pa.int64()).to_pylist() == [123456789]


def test_times_with_and_without_a_zone_may_share_a_batch() -> None:
    texts = [b'{"a": "2026-01-01T12:00:00"}', b"{}", b'{"a": "2026-01-01T13:00:00+01:00"}', b'{"a": "2026-01-01T12:00:00Z"}'] * 3
    assert read(pa.timestamp("ms"), *texts) == [NOON, None, NOON, NOON] * 3
    with pytest.raises(InvalidRecordError, match="noon"):
        read(pa.timestamp("ms"), *texts, b'{"a": "noon"}')


def test_a_missing_field_a_deletion_and_null_are_null() -> None:
    columns, found = json_reader(pa.schema([("a", pa.int64())])).columns([b"{}", None, b"null", b' {\n"a": 1}\r\n'])
    assert columns["a"].to_pylist() == [None, None, None, 1]
    assert found == [True, False, False, True]
    assert json_reader(pa.schema([("a", pa.int64())])).columns([b"{}"])[1] is None


@pytest.mark.parametrize("name", ["a b", "ü", "{a}", "'", '"', "\\", "\x01"])
def test_a_field_may_have_any_name(name: str) -> None:
    import json

    assert read(pa.int64(), json.dumps({name: 1, "z": 2}).encode(), b"{}", None, name=name) == [1, None, None]


def test_no_records_are_columns_without_rows() -> None:
    assert read(pa.string()) == []
