"""The columns of a table whose values are Avro records: the serde's own schema, in Arrow's types.

Values are dicts as fastavro reads them: logical types have their Python types. What Arrow could not convert from such values (maps, UUIDs,
unions of several types, types that contain themselves) has no column type here; the schema is then to be given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kstreams_repl.serdes.schemas.avro import parsed

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


def columns_of(schema: str) -> pa.Schema:
    """Return the columns of a record schema, given as JSON text.

    Raises:
        NoColumnError: it is not a record, or a field has no column type; the text names it.
    """
    record = parsed(schema)
    if not isinstance(record, Mapping) or record.get("type") != "record":
        raise NoColumnError("its Avro schema is not a record")
    return pa.schema(_fields(record, {}))


def _fields(record: Mapping[str, Any], named: dict[str, Any]) -> list[pa.Field]:
    found = []
    for field in record["fields"]:
        kind, nullable = _type(field["type"], named, field["name"])
        found.append(pa.field(field["name"], kind, nullable))
    return found


def _type(schema: Any, named: dict[str, Any], at: str) -> tuple[pa.DataType, bool]:
    """Return the type, and whether it allows null."""
    if isinstance(schema, list):
        others = [item for item in schema if item != "null"]
        if len(others) != 1:
            raise NoColumnError(f"its field {at!r} is a union of several types")
        return _type(others[0], named, at)[0], len(others) < len(schema)
    if isinstance(schema, str):
        if schema not in _PRIMITIVES and schema not in named:
            raise NoColumnError(f"its field {at!r} has the type {schema}")
        return _PRIMITIVES.get(schema) or named[schema], schema == "null"
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        found = pa.decimal128(schema["precision"], schema.get("scale", 0))
    elif logical in _LOGICAL:
        found = _LOGICAL[logical]
    elif logical == "uuid" or kind == "map":
        raise NoColumnError(f"its field {at!r} is a {logical or kind}")
    elif kind == "array":
        item, nullable = _type(schema["items"], named, at)
        found = pa.list_(pa.field("element", item, nullable))
    elif kind in ("record", "error"):
        found = pa.struct(_fields(schema, named))
    else:
        found = _type(kind, named, at)[0]
    if "name" in schema:
        named[schema["name"]] = found
    return found, False
