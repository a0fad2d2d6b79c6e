"""Defaults of Avro fields as values: a schema has them as JSON, and fastavro would hand out that JSON, one object for all records.

`with_defaults` replaces them in a parsed schema by what the same bytes would be read as: bytes for text of bytes, `decimal.Decimal` and
other Python types for logical types. A default that can be changed (an array, a map, a record) is made for each value: a reader finds
a `Default` in its place, and `filled` replaces it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.types import JsonMapping, JsonObject


@dataclass(frozen=True, slots=True)
class Default:
    """The default of a field whose value can be changed.

    Attributes:
        schema: type of the field.
        json: the default as the schema has it.
        named: the schema's named types.
    """

    schema: Any
    json: Any
    named: JsonMapping

    def value(self) -> object:
        """Return a new value."""
        return _value(self.schema, self.json, self.named)


def with_defaults(schema: object, *, shared: bool) -> tuple[Any, bool]:
    """Return a copy of a parsed schema with defaults as values, and whether a value read by it may hold a `Default`.

    Args:
        schema: as fastavro parses it; unchanged.
        shared: every default may be one object, as for writing; otherwise a changeable one is a `Default`.

    Raises:
        ConfigError: a default does not fit its field.
    """
    own, named, seen = copy.deepcopy(schema), _named(schema), set()
    changeable = False

    def convert(part: object, given: Any) -> None:
        nonlocal changeable
        if isinstance(part, list):
            for one, other in zip(part, given, strict=True):
                convert(one, other)
        if not isinstance(part, dict) or id(part) in seen:
            return
        seen.add(id(part))
        for name in ("type", "items", "values"):
            convert(part.get(name), given.get(name))
        for field, declared in zip(part.get("fields", ()), given.get("fields", ()), strict=True):
            convert(field["type"], declared["type"])
            if "default" in field:
                default = Default(declared["type"], declared["default"], named)
                try:
                    value = default.value()
                except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError) as error:
                    raise ConfigError(
                        f"the default of the Avro field {field['name']!r} does not fit its type: {declared['default']!r}",
                        hint="a default is JSON; of a union it is one of the first branch; of bytes a text, one character a byte",
                    ) from error
                if isinstance(value, dict | list) and not shared:
                    changeable, value = True, default
                field["default"] = value

    convert(own, schema)
    for name, part in _named(own).items():
        convert(part, named[name])
    return own, changeable


def _named(schema: object) -> JsonObject:
    parts = schema if isinstance(schema, list) else [schema]
    return {name: kind for part in parts if isinstance(part, dict) for name, kind in part.get("__named_schemas", {}).items()}


def filled(value: Any) -> object:
    """Return a value with new defaults in the places of each `Default`; containers are changed in place."""
    kind = type(value)
    if kind is Default:
        return value.value()
    if kind is dict:
        for key, item in value.items():
            if type(item) in _HOLDERS:
                value[key] = filled(item)
    elif kind is list:
        for index, item in enumerate(value):
            if type(item) in _HOLDERS:
                value[index] = filled(item)
    return value


_HOLDERS = frozenset({dict, list, Default})


def _value(schema: Any, json: Any, named: Mapping[str, object]) -> object:
    """Return a default given as JSON as the value that its bytes would be read as."""
    from fastavro.read import LOGICAL_READERS

    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    if isinstance(schema, list):  # the first branch; since Avro 1.12 any
        return _value(next((branch for branch in schema if _fits(branch, json, named)), schema[0]), json, named)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _value(kind, json, named)
    if kind in ("record", "error"):
        return {
            field["name"]: _value(field["type"], json[field["name"]] if field["name"] in json else field["default"], named)
            for field in schema["fields"]
        }
    if kind == "array":
        return [_value(schema["items"], item, named) for item in json]
    if kind == "map":
        return {key: _value(schema["values"], item, named) for key, item in json.items()}
    if kind in ("bytes", "fixed") and isinstance(json, str):
        json = json.encode("latin-1")
    elif kind in ("float", "double"):
        json = float(json)
    read = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    return json if read is None else read(json, schema, None)


_JSON = {
    "null": type(None), "boolean": bool, "int": int, "long": int, "float": int | float, "double": int | float, "string": str, "enum": str,
    "bytes": str, "fixed": str, "array": list, "map": dict, "record": dict, "error": dict,
}  # fmt: skip


def _fits(branch: Any, json: object, named: Mapping[str, object]) -> bool:
    if isinstance(branch, str):
        branch = named.get(branch, {"type": branch})
    kind = branch["type"]
    return isinstance(json, _JSON.get(kind, object)) and not (isinstance(json, bool) and kind != "boolean")
