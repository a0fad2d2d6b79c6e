"""Serdes: conversion between values and bytes. `serdes.string`, `serdes.long`, `serdes.json`, … are predefined;
`serdes.of("json")` looks one up.

They write the bytes of Kafka's serializers: `string`, `bytes`, `short`, `integer`, `long`, `float32` (Java's ``Float``),
`double`, `boolean`, `uuid` (as text), `void`, `list_of(inner)`. The names "float" and "int" have Python's meaning: `double` and
`long`; "list(long)" is `list_of(long)`.

`avro`, `protobuf` and `json_schema` keep their schemas in a Schema Registry; `registry` reads whatever format the registry says.
`message_pack` needs no schema.

Make your own with `Serde(serialize=..., deserialize=..., name=...)`.
"""

from __future__ import annotations

from typing import Any

from kstreams_repl.engine.serdes.json_text import JSON
from kstreams_repl.engine.serdes.list_of import list_of
from kstreams_repl.engine.serdes.message_pack import MESSAGE_PACK
from kstreams_repl.engine.serdes.primitive import BOOLEAN, BYTES, DOUBLE, FLOAT32, INTEGER, LONG, SHORT, STRING, UUID, VOID
from kstreams_repl.engine.serdes.schemas.avro import avro
from kstreams_repl.engine.serdes.schemas.json_schema import REGISTRY, json_schema
from kstreams_repl.engine.serdes.schemas.protobuf import protobuf
from kstreams_repl.engine.serdes.serde import Serde
from kstreams_repl.engine.serdes.windowed import session_windowed, time_windowed
from kstreams_repl.system.errors import ConfigError, did_you_mean

__all__ = [
    "Serde", "avro", "boolean", "bytes_", "double", "float32", "integer", "json", "json_schema", "list_of", "long", "message_pack", "of",
    "protobuf", "registry", "resolve", "session_windowed", "short", "string", "time_windowed", "uuid", "void",
]  # fmt: skip

_BUILT_IN = {
    serde.name: serde for serde in (BYTES, STRING, INTEGER, LONG, DOUBLE, JSON, SHORT, FLOAT32, BOOLEAN, UUID, VOID, MESSAGE_PACK, REGISTRY)
}
for _serde in _BUILT_IN.values():
    _serde._builtin = True

bytes_ = BYTES
string = STRING
integer = INTEGER
long = LONG
double = DOUBLE
json = JSON
short = SHORT
float32 = FLOAT32
boolean = BOOLEAN
uuid = UUID
void = VOID
message_pack = MESSAGE_PACK
registry = REGISTRY

_ALIASES = {"str": "string", "int": "long", "float": "double", "bytearray": "bytes", "bool": "boolean", "UUID": "uuid"}


def of(name: str) -> Serde:
    """Return the built-in serde of that name: bytes, string, short, integer, long, float32, double, boolean, uuid, void, json,
    ...

    Raises:
        ConfigError: no serde has that name.
    """
    if name.startswith("list(") and name.endswith(")"):
        return list_of(of(name[5:-1]))
    serde = _BUILT_IN.get(_ALIASES.get(name, name))
    if serde is None:
        raise ConfigError(f"there is no serde named {name!r}", hint=did_you_mean(name, _BUILT_IN) or f"there are {', '.join(_BUILT_IN)}")
    return serde


def resolve(serde: object, default: object = None) -> Serde:
    """Return a Serde for what users and configurations specify: a Serde, a name, or None for the default (bytes without a
    default)."""
    if serde is None:
        return BYTES if default is None else resolve(default)
    if isinstance(serde, Serde):
        return serde
    if isinstance(serde, str):
        return of(serde)
    if hasattr(serde, "serialize") and hasattr(serde, "deserialize"):
        return Serde(serde.serialize, serde.deserialize, name=type(serde).__name__)
    raise ConfigError(
        f"expected a serde or its name, got {serde!r}",
        hint="use kstreams_repl.engine.serdes.string, .long, .json, ... or Serde(serialize=..., deserialize=...)",
    )


def __getattr__(name: str) -> Any:
    if name == "bytes":  # `serdes.bytes` without hiding the built-in inside this module
        return BYTES
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
