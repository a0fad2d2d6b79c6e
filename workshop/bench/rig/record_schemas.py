"""The records of benchmarks as Avro or Protobuf: texts and 64-bit integers, with the names and the order of their JSON values."""

from __future__ import annotations

from typing import Any

from kstreams_repl import serdes

FORMATS = ("avro", "protobuf")


def record_serde(format: str, name: str, fields: str, **registry: Any) -> serdes.Serde:
    """Return the serde of a record.

    Args:
        format: one of `FORMATS`.
        fields: names with spaces between them; `:long` follows that of a number.
        registry: arguments of the serde.

    Example:
        >>> record_serde("avro", "Purchase", "user:long item")
        Serde(avro)
    """
    typed = [(field.removesuffix(":long"), field.endswith(":long")) for field in fields.split()]
    if format == "avro":
        columns = [{"name": field, "type": "long" if number else "string"} for field, number in typed]
        return serdes.avro({"type": "record", "name": name, "fields": columns}, **registry)
    lines = " ".join(f"{'int64' if number else 'string'} {field} = {at};" for at, (field, number) in enumerate(typed, 1))
    return serdes.protobuf(schema=f'syntax = "proto3"; message {name} {{ {lines} }}', **registry)
