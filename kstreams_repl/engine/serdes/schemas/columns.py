"""The columns of a table whose values follow a schema of Avro, Protobuf or JSON Schema: the serde's own schema, in Arrow's types.

Values are dicts as the serde reads them: Avro's logical types and Protobuf's timestamps have their Python types, JSON has only its
own. What Arrow could not convert from such values (maps, UUIDs, unions of several types, types that contain themselves) has no column
type here; the schema is then to be given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kstreams_repl.engine.serdes.schemas.avro import parsed
from kstreams_repl.engine.serdes.schemas.protobuf import compiled
from kstreams_repl.system.types import JsonMapping, JsonObject

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_PRIMITIVES = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip
_LOGICAL = {
    "date": pa.date32(), "time-millis": pa.time64("us"), "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"), "local-timestamp-micros": pa.timestamp("us"),
}  # fmt: skip


class NoColumnError(ValueError):
    """A part of the schema has no column type."""


def columns_of(declared: Sequence[str]) -> pa.Schema:
    """Return the columns of a serde's values.

    Args:
        declared: `Serde.record_schema`: the format's name, then the schema's text and, for Protobuf, the name of the message.

    Raises:
        NoColumnError: it does not describe an object, or a field has no column type; the text names it.

    Example:
        >>> columns_of(("protobuf", 'syntax = "proto3"; message Point { int64 x = 1; optional string name = 2; }', "Point"))
        x: int64 not null
        name: string
    """
    kind, schema, *message = declared
    if kind == "protobuf":
        return pa.schema(_of_message(compiled(schema, message[0] if message else None).DESCRIPTOR, ()))
    if kind == "json_schema":
        return _of_json_schema(json.loads(schema))
    record = parsed(schema)
    if not isinstance(record, Mapping) or record.get("type") != "record":
        raise NoColumnError("its Avro schema is not a record")
    return pa.schema(_fields(record, {}))


# ---- Avro


def _fields(record: JsonMapping, named: JsonObject) -> list[pa.Field]:
    fields = []
    for field in record["fields"]:
        kind, nullable = _type(field["type"], named, field["name"])
        fields.append(pa.field(field["name"], kind, nullable))
    return fields


def _type(schema: Any, named: JsonObject, path: str) -> tuple[pa.DataType, bool]:
    """Return the type, and whether it allows null."""
    if isinstance(schema, list):
        others = [item for item in schema if item != "null"]
        if len(others) != 1:
            raise NoColumnError(f"its field {path!r} is a union of several types")
        return _type(others[0], named, path)[0], len(others) < len(schema)
    if isinstance(schema, str):
        if schema not in _PRIMITIVES and schema not in named:
            raise NoColumnError(f"its field {path!r} has the type {schema}")
        return _PRIMITIVES.get(schema) or named[schema], schema == "null"
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        column = pa.decimal128(schema["precision"], schema.get("scale", 0))
    elif logical in _LOGICAL:
        column = _LOGICAL[logical]
    elif logical == "uuid" or kind == "map":
        raise NoColumnError(f"its field {path!r} is a {logical or kind}")
    elif kind == "array":
        item, nullable = _type(schema["items"], named, path)
        column = pa.list_(pa.field("element", item, nullable))
    elif kind in ("record", "error"):
        column = pa.struct(_fields(schema, named))
    else:
        column = _type(kind, named, path)[0]
    if "name" in schema:
        named[schema["name"]] = column
    return column, False


# ---- Protobuf

_NUMBERS = {
    "BOOL": pa.bool_(), "STRING": pa.string(), "BYTES": pa.binary(), "ENUM": pa.string(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(),
    "INT32": pa.int32(), "SINT32": pa.int32(), "SFIXED32": pa.int32(), "UINT32": pa.int64(), "FIXED32": pa.int64(),
    "INT64": pa.int64(), "SINT64": pa.int64(), "SFIXED64": pa.int64(), "UINT64": pa.decimal128(20), "FIXED64": pa.decimal128(20),
}  # fmt: skip
"""No unsigned columns: neither Delta nor Iceberg has them."""


def _of_message(message: Descriptor, inside: tuple[str, ...]) -> list[pa.Field]:
    if message.full_name in inside:
        raise NoColumnError(f"its message {message.full_name} contains itself")
    fields = []
    for field in message.fields:
        column = _of_field(field, (*inside, message.full_name))
        if field.is_repeated:
            fields.append(pa.field(field.name, pa.list_(pa.field("element", column, nullable=False)), nullable=False))
        else:
            fields.append(pa.field(field.name, column, nullable=field.has_presence))
    return fields


def _of_field(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    message = field.message_type
    if message is None:
        kinds = {getattr(field, f"TYPE_{name}"): column for name, column in _NUMBERS.items()}
        if field.type not in kinds:
            raise NoColumnError(f"its field {field.name!r} is a group")
        return kinds[field.type]
    if message.full_name == "google.protobuf.Timestamp":
        return pa.timestamp("us", "UTC")
    if message.GetOptions().map_entry:
        raise NoColumnError(f"its field {field.name!r} is a map")
    if message.file.package == "google.protobuf":
        if message.name.endswith("Value") and [item.name for item in message.fields] == ["value"]:
            return _of_field(message.fields[0], inside)
        raise NoColumnError(f"its field {field.name!r} is a {message.name}")
    return pa.struct(_of_message(message, inside))


# ---- JSON Schema

_JSON = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "null": pa.null()}


def _of_json_schema(root: object) -> pa.Schema:
    kind, _ = _json_type(root, root, (), "")
    if not pa.types.is_struct(kind):
        raise NoColumnError("its JSON Schema is not an object with properties")
    return pa.schema(list(kind))


def _json_type(schema: object, root: object, inside: tuple[str, ...], path: str) -> tuple[pa.DataType, bool]:
    """Return the type, and whether it allows null."""
    where = f"its field {path!r}" if path else "its JSON Schema"
    if not isinstance(schema, Mapping):
        raise NoColumnError(f"{where} has no type")
    if "$ref" in schema:
        target = schema["$ref"]
        if target in inside:
            raise NoColumnError(f"{where} contains itself ({target})")
        return _json_type(_resolved(target, root, where), root, (*inside, target), path)
    choices = schema.get("oneOf") or schema.get("anyOf")
    kinds = schema.get("type", _of_constants(schema))
    if choices is None and isinstance(kinds, list):
        choices = [{**schema, "type": kind} for kind in kinds]
    if choices is not None:
        columns = [_json_type(choice, root, inside, path) for choice in choices]
        others = [kind for kind, _ in columns if not pa.types.is_null(kind)]
        if any(kind != others[0] for kind in others):
            raise NoColumnError(f"{where} is a union of several types")
        return (others or [pa.null()])[0], any(nullable for _, nullable in columns)
    if kinds == "array":
        item, nullable = _json_type(schema.get("items"), root, inside, path)
        return pa.list_(pa.field("element", item, nullable)), False
    if kinds == "object" and schema.get("properties"):
        fields, required = [], schema.get("required", ())
        for name, part in schema["properties"].items():
            column, nullable = _json_type(part, root, inside, name)
            fields.append(pa.field(name, column, nullable or name not in required))
        return pa.struct(fields), False
    if kinds not in _JSON:
        raise NoColumnError(f"{where} is an object without properties" if kinds == "object" else f"{where} has no type")
    return _JSON[kinds], kinds == "null"


def _of_constants(schema: JsonMapping) -> list[str] | None:
    """Return the types of `enum` or `const`, for a schema that gives no type."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return sorted({names.get(type(value), "object") for value in values}) or None


def _resolved(target: str, root: object, where: str) -> object:
    """Return the part of the schema that a reference within it names."""
    inner = root
    path, _, pointer = target.partition("#")
    for name in pointer.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        inner = inner.get(name) if isinstance(inner, Mapping) else None
    if path or inner is None:
        raise NoColumnError(f"{where} refers to {target}, which is not in the schema")
    return inner
