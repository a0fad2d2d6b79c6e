"""A table whose columns are those of the stream's Avro, Protobuf or JSON Schema serde."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.system.errors import TopologyError
from tests.unit.table_files.rig import Sink, file_names

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}
FIELDS: list[tuple[str, Any, Any]] = [
    ("flag", "boolean", True),
    ("whole", "int", 3),
    ("long", "long", 1 << 40),
    ("single", "float", 0.5),
    ("double", "double", 0.1),
    ("text", "string", "ü"),
    ("data", "bytes", b"\x00\x01"),
    ("maybe", ["null", "long"], None),
    ("last", ["string", "null"], "x"),
    ("color", {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}, "BLUE"),
    ("hash", {"type": "fixed", "name": "Hash", "size": 2}, b"ab"),
    ("tags", {"type": "array", "items": "string"}, ["a", "b"]),
    ("inner", INNER, {"n": 1}),
    ("again", {"type": "array", "items": ["null", "Inner"]}, [None, {"n": 2}]),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("12.50")),
    ("day", {"type": "int", "logicalType": "date"}, date(2013, 1, 2)),
    ("hour", {"type": "int", "logicalType": "time-millis"}, time(12, 30)),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}, datetime(2013, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("exact", {"type": "long", "logicalType": "timestamp-micros"}, datetime(2013, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
]
VALUE = {name: value for name, _, value in FIELDS}


def record(*fields: tuple[str, Any, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Row", "namespace": "t", "fields": [{"name": name, "type": kind} for name, kind, _ in fields]}


def topology(serde: ks.Serde, path: Path, format: str = "parquet", **given: Any) -> ks.Topology:
    builder = ks.StreamsBuilder()
    builder.stream("rows", key_serde="string", value_serde=serde).to_table_files(str(path), format, name="table", **given)
    return builder.build()


def test_every_type_that_arrow_converts_has_a_column(tmp_path: Path) -> None:
    serde = serdes.avro(record(*FIELDS), without_registry=True)
    driver = ks.testing.TopologyTestDriver(topology(serde, tmp_path))
    driver.create_input_topic("rows", "string", serde).pipe_input("a", VALUE, timestamp=0)
    assert driver.read_table_files(str(tmp_path)) == [VALUE]


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_each_format_stores_them(tmp_path: Path, format: str) -> None:
    fields = [field for field in FIELDS if field[0] != "hour" or format != "delta"]  # Delta has no times of a day
    files: Any = topology(serdes.avro(record(*fields), without_registry=True), tmp_path / "t", format).node("table")
    names = {name: column.nullable for name, column in zip(files.table.schema.names, files.table.schema, strict=True)}
    assert names["maybe"] and names["last"] and not names["whole"]
    sink = Sink(files.table)
    sink.rows[0].append(None, {name: value for name, _, value in fields}, 0)
    sink.commit()
    sink.tables.finish()
    assert sink.tables.written["rows"] == 1


def test_a_serde_of_the_registry_has_the_columns_of_its_schema_without_asking_it(tmp_path: Path) -> None:
    files: Any = topology(serdes.avro(record(*FIELDS[:3]), registry="http://localhost:1"), tmp_path).node("table")
    assert files.table.schema.names == ["flag", "whole", "long"]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("string", "is not a record"),
        (record(("m", {"type": "map", "values": "int"}, None)), "'m' is a map"),
        (record(("u", {"type": "string", "logicalType": "uuid"}, None)), "'u' is a uuid"),
        (record(("x", ["int", "string"], None)), "'x' is a union of several types"),
        (record(("next", ["null", "Row"], None)), "'next' has the type t.Row"),
    ],
)
def test_a_schema_without_columns_is_refused_with_the_reason(tmp_path: Path, schema: Any, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        topology(serdes.avro(schema, without_registry=True), tmp_path)
    with pytest.raises(TopologyError, match="needs the columns"):
        topology(serdes.avro(), tmp_path)


def test_given_columns_come_first(tmp_path: Path) -> None:
    files: Any = topology(serdes.avro(record(*FIELDS), without_registry=True), tmp_path, schema={"text": "string"}).node("table")
    assert files.table.schema.names == ["text"]


PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1; uint64 serial = 2; uint32 count = 3; double amount = 4; bool paid = 5; bytes raw = 6;
  optional string note = 7; Kind kind = 8; Place place = 9; repeated Place stops = 10; repeated string tags = 11;
  google.protobuf.Timestamp at = 12; google.protobuf.StringValue maybe = 13;
  enum Kind { NEW = 0; OLD = 1; }
}
message Place { string city = 1; optional float height = 2; }
"""
ORDER = {
    "id": 1 << 40, "serial": (1 << 64) - 1, "count": (1 << 32) - 1, "amount": 0.1, "paid": True, "raw": b"\x00", "note": None,
    "kind": "OLD", "place": {"city": "Basel", "height": None}, "stops": [{"city": "Bern", "height": 0.5}], "tags": ["a"],
    "at": datetime(2013, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "maybe": None,
}  # fmt: skip
OPTIONAL_OF_ORDER = {"note", "place", "at", "maybe"}

JSON_ORDER = {
    "title": "Order", "type": "object", "required": ["id", "amount", "stops", "kind"],
    "properties": {
        "id": {"type": "integer"}, "amount": {"type": "number"}, "paid": {"type": "boolean"}, "note": {"type": ["string", "null"]},
        "kind": {"enum": ["NEW", "OLD"]}, "place": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/place"}]},
        "stops": {"type": "array", "items": {"$ref": "#/definitions/place"}}, "at": {"type": "string", "format": "date-time"},
    },
    "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
}  # fmt: skip
JSON_VALUE = {
    "id": 3, "amount": 5.0, "paid": None, "note": None, "kind": "NEW", "place": {"city": "Basel"}, "stops": [{"city": "Bern"}],
    "at": "2013-01-02T03:04:05Z",
}  # fmt: skip


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize(
    ("serde", "value", "optional"),
    [
        (serdes.protobuf(schema=PROTO, registry="http://localhost:1"), ORDER, OPTIONAL_OF_ORDER),
        (serdes.json_schema(JSON_ORDER, registry="http://localhost:1"), JSON_VALUE, {"paid", "note", "place", "at"}),
    ],
    ids=["protobuf", "json_schema"],
)
def test_protobuf_and_json_schema_have_columns_without_asking_the_registry(
    tmp_path: Path, serde: ks.Serde, value: dict[str, Any], optional: set[str], format: str
) -> None:
    files: Any = topology(serde, tmp_path / "t", format).node("table")
    assert {field.name for field in files.table.schema if field.nullable} == optional
    sink = Sink(files.table)
    sink.rows[0].append(None, {name: item for name, item in value.items() if item is not None}, 0)
    sink.commit()
    sink.tables.finish()
    assert pq.ParquetDataset(file_names(files.table)).read().to_pylist() == [value]


@pytest.mark.parametrize(
    ("serde", "why"),
    [
        (serdes.protobuf(schema='syntax = "proto3"; message M { map<string, int32> m = 1; }'), "'m' is a map"),
        (serdes.protobuf(schema='syntax = "proto3"; message M { repeated M next = 1; }'), "M contains itself"),
        (serdes.protobuf(schema='syntax = "proto3"; import "google/protobuf/struct.proto"; message M { google.protobuf.Struct s = 1; }'),
         "'s' is a Struct"),
        (serdes.json_schema({"title": "T", "type": "string"}), "is not an object"),
        (serdes.json_schema({"title": "T", "type": "object"}), "is an object without properties"),
        (serdes.json_schema({"type": "object", "properties": {"x": {}}}), "'x' has no type"),
        (serdes.json_schema({"type": "object", "properties": {"x": {"type": ["string", "integer"]}}}), "'x' is a union of several types"),
        (serdes.json_schema({"type": "object", "properties": {"x": {"$ref": "#"}}}), "'x' contains itself"),
        (serdes.json_schema({"type": "object", "properties": {"x": {"$ref": "other.json#/y"}}}), "'x' refers to other.json#/y"),
        (serdes.json_schema({"type": "object", "properties": {"x": {"type": "array"}}}), "'x' has no type"),
    ],
)  # fmt: skip
def test_a_protobuf_or_json_schema_without_columns_is_refused_with_the_reason(tmp_path: Path, serde: ks.Serde, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        topology(serde, tmp_path)
