"""Evolutions of schemas: a format, a compatibility level, the versions that are there, and a candidate."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message First { int32 n = 1; }
message Line {
  message Item { string name = 1; bytes raw = 2; }
  int64 id = 1;
  repeated Item items = 2;
  map<string, double> prices = 3;
  google.protobuf.Timestamp at = 4;
  State state = 5;
  optional int32 left = 6;
}
enum State { NEW = 0; PAID = 1; }
"""
"""A Protobuf schema with what the tests of the serdes need: a second message, nested ones, a map, an enum, a timestamp, presence."""


class Evolution(NamedTuple):
    """One candidate for a subject, and the field (or place) that decides if it is refused."""

    format: str
    level: str
    versions: tuple[str, ...]
    candidate: str
    field: str = ""


def avro(*fields: Any, name: str = "P") -> str:
    """A record; a field is (name, type) or (name, type, default) or the field itself."""
    keys = ("name", "type", "default")
    return json.dumps({
        "type": "record", "name": name,
        "fields": [one if isinstance(one, dict) else dict(zip(keys, one, strict=False)) for one in fields],
    })  # fmt: skip


def proto(*fields: str, more: str = "") -> str:
    return 'syntax = "proto3"; package shop; message P { ' + " ".join(fields) + " } " + more


def closed(properties: dict[str, Any], *required: str) -> str:
    return opened(properties, *required, additionalProperties=False)


def opened(properties: dict[str, Any], *required: str, **more: Any) -> str:
    return json.dumps({"title": "P", "type": "object", "properties": properties, "required": list(required), **more})


X, Y, YD = ("x", "long"), ("y", "string"), ("y", "string", "")
INT, TEXT = {"type": "integer"}, {"type": "string"}
E_AB, E_A = ({"type": "enum", "name": "E", "symbols": list(symbols)} for symbols in ("AB", "A"))
INNER, WIDER = ({"type": "record", "name": "I", "fields": [{"name": name, "type": "long"} for name in names]} for names in ("a", "ab"))
PX, PY = "int64 x = 1;", "string y = 2;"

EVOLUTIONS = {
    # ---- Avro
    "avro backward: field with default": Evolution("avro", "BACKWARD", (avro(X),), avro(X, YD)),
    "avro backward: field without default": Evolution("avro", "BACKWARD", (avro(X),), avro(X, Y), "y"),
    "avro backward: field removed": Evolution("avro", "BACKWARD", (avro(X, Y),), avro(X)),
    "avro backward: int to long": Evolution("avro", "BACKWARD", (avro(("x", "int")),), avro(X)),
    "avro backward: long to int": Evolution("avro", "BACKWARD", (avro(X),), avro(("x", "int")), "x"),
    "avro backward: string to bytes": Evolution("avro", "BACKWARD", (avro(Y),), avro(("y", "bytes"))),
    "avro backward: type to union": Evolution("avro", "BACKWARD", (avro(X),), avro(("x", ["null", "long"]))),
    "avro backward: union to type": Evolution("avro", "BACKWARD", (avro(("x", ["null", "long"])),), avro(X), "x"),
    "avro backward: symbol added": Evolution("avro", "BACKWARD", (avro(("e", E_A)),), avro(("e", E_AB))),
    "avro backward: symbol removed": Evolution("avro", "BACKWARD", (avro(("e", E_AB)),), avro(("e", E_A)), "e"),
    "avro backward: field in a record in it": Evolution("avro", "BACKWARD", (avro(("i", INNER)),), avro(("i", WIDER)), "i.b"),
    "avro backward: items of an array": Evolution(
        "avro", "BACKWARD", (avro(("a", {"type": "array", "items": "int"})),), avro(("a", {"type": "array", "items": "string"})), "a"),
    "avro backward: values of a map": Evolution(
        "avro", "BACKWARD", (avro(("m", {"type": "map", "values": "int"})),), avro(("m", {"type": "map", "values": "long"}))),
    "avro backward: field renamed with an alias": Evolution(
        "avro", "BACKWARD", (avro(X),), avro({"name": "z", "type": "long", "aliases": ["x"]})),
    "avro backward: record renamed": Evolution("avro", "BACKWARD", (avro(X),), avro(X, name="Q"), "/name"),
    "avro backward: only the last version counts": Evolution("avro", "BACKWARD", (avro(X), avro(X, YD)), avro(X, Y)),
    "avro backward transitive: all versions count": Evolution(
        "avro", "BACKWARD_TRANSITIVE", (avro(X), avro(X, YD)), avro(X, Y), "y"),
    "avro forward: field without default": Evolution("avro", "FORWARD", (avro(X),), avro(X, Y)),
    "avro forward: field without default removed": Evolution("avro", "FORWARD", (avro(X, Y),), avro(X), "y"),
    "avro forward: field with default removed": Evolution("avro", "FORWARD", (avro(X, YD),), avro(X)),
    "avro forward: long to int": Evolution("avro", "FORWARD", (avro(X),), avro(("x", "int"))),
    "avro forward: only the last version counts": Evolution("avro", "FORWARD", (avro(X, Y), avro(X, YD)), avro(X)),
    "avro forward transitive: all versions count": Evolution("avro", "FORWARD_TRANSITIVE", (avro(X, Y), avro(X, YD)), avro(X), "y"),
    "avro full: field with default": Evolution("avro", "FULL", (avro(X),), avro(X, YD)),
    "avro full: field without default": Evolution("avro", "FULL", (avro(X),), avro(X, Y), "y"),
    "avro full: field without default removed": Evolution("avro", "FULL", (avro(X, Y),), avro(X), "y"),
    "avro full: int to long": Evolution("avro", "FULL", (avro(("x", "int")),), avro(X), "x"),
    "avro full transitive: two fields with defaults": Evolution(
        "avro", "FULL_TRANSITIVE", (avro(X), avro(X, YD)), avro(X, YD, ("z", "int", 0))),
    "avro full transitive: a default is taken away": Evolution("avro", "FULL_TRANSITIVE", (avro(X), avro(X, YD)), avro(X, Y), "y"),
    "avro none: anything": Evolution("avro", "NONE", (avro(X),), avro(Y)),
    # ---- Protobuf
    "protobuf backward: field added": Evolution("protobuf", "BACKWARD", (proto(PX),), proto(PX, PY)),
    "protobuf backward: field removed": Evolution("protobuf", "BACKWARD", (proto(PX, PY),), proto(PX), "y"),
    "protobuf backward: another type": Evolution("protobuf", "BACKWARD", (proto(PX, PY),), proto("string x = 1;", PY), "x"),
    "protobuf backward: another number": Evolution("protobuf", "BACKWARD", (proto(PX, PY),), proto("int64 x = 3;", PY), "x"),
    "protobuf backward: message added": Evolution("protobuf", "BACKWARD", (proto(PX),), proto(PX, more="message N { int32 n = 1; }")),
    "protobuf forward: field added": Evolution("protobuf", "FORWARD", (proto(PX),), proto(PX, PY), "y"),
    "protobuf full: another type": Evolution("protobuf", "FULL", (proto(PX),), proto("bool x = 1;"), "x"),
    "protobuf full transitive: field added": Evolution(
        "protobuf", "FULL_TRANSITIVE", (proto(PX), proto(PX, PY)), proto(PX, PY, "bool z = 3;")),
    "protobuf none: another type": Evolution("protobuf", "NONE", (proto(PX),), proto("string x = 1;")),
    # ---- JSON Schema
    "json backward: optional property of a closed object": Evolution(
        "json_schema", "BACKWARD", (closed({"x": INT}),), closed({"x": INT, "y": TEXT})),
    "json backward: optional property of an open object": Evolution(
        "json_schema", "BACKWARD", (opened({"x": INT}),), opened({"x": INT, "y": TEXT}), "y"),
    "json backward: required property": Evolution(
        "json_schema", "BACKWARD", (closed({"x": INT}),), closed({"x": INT, "y": TEXT}, "y"), "y"),
    "json backward: another type": Evolution("json_schema", "BACKWARD", (opened({"x": INT}),), opened({"x": TEXT}), "x"),
    "json backward: integer to number": Evolution("json_schema", "BACKWARD", (opened({"x": INT}),), opened({"x": {"type": "number"}})),
    "json backward: shorter texts": Evolution(
        "json_schema", "BACKWARD", (opened({"y": {**TEXT, "maxLength": 9}}),), opened({"y": {**TEXT, "maxLength": 5}}), "y"),
    "json forward: property of a closed object removed": Evolution(
        "json_schema", "FORWARD", (closed({"x": INT, "y": TEXT}),), closed({"x": INT})),
    "json full: required property": Evolution("json_schema", "FULL", (closed({"x": INT}),), closed({"x": INT, "y": TEXT}, "y"), "y"),
    "json backward transitive: all versions count": Evolution(
        "json_schema", "BACKWARD_TRANSITIVE", (opened({"x": TEXT}), opened({"x": INT})), opened({"x": {"type": "number"}}), "x"),
    "json none: another type": Evolution("json_schema", "NONE", (opened({"x": INT}),), opened({"x": TEXT})),
}  # fmt: skip
