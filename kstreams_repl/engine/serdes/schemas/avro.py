"""Avro, with the schema in a Schema Registry or without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Unpack

from kstreams_repl.engine.serdes.schemas.avro_defaults import filled, with_defaults
from kstreams_repl.engine.serdes.schemas.schema_registry import (
    GUID_PREFIX_BYTES,
    RegistryArguments,
    RegistryOptions,
    expect_whole_id,
    registry_serde,
    shown_id,
    with_id,
)
from kstreams_repl.engine.serdes.schemas.value_types import from_value_type, to_value_type
from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes
from kstreams_repl.system.errors import ConfigError, SerializationError
from kstreams_repl.system.extras import extras
from kstreams_repl.system.types import Deserialize

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import SerializationContext

References = tuple[tuple[str, str, int], ...]
"""(name, subject, version) of each type of another subject, sorted."""


def references_of(given: Mapping[str, tuple[str, int]] | None) -> References:
    """Return the argument ``references`` of a serde in one form."""
    return tuple(sorted((name, *logical) for name, logical in (given or {}).items()))


def schema_with(references: References, text: str, kind: str) -> Schema:
    """Return a schema as the registry's client takes it."""
    from confluent_kafka.schema_registry import Schema, SchemaReference

    return Schema(text, kind, [SchemaReference(name=name, subject=subject, version=version) for name, subject, version in references])


def avro(
    schema: str | Mapping[str, object] | list[Any] | None = None,
    *,
    value_type: type | None = None,
    references: Mapping[str, tuple[str, int]] | None = None,
    without_registry: bool = False,
    **registry: Unpack[RegistryArguments],
) -> Serde:
    """Return a serde of Avro values, with the bytes of Confluent's serializers.

    Values are dicts (lists, numbers, … as the schema says). Logical types have their Python types: `decimal.Decimal`, `datetime.date`,
    `datetime.datetime` in UTC, `uuid.UUID`.

    Args:
        schema: the schema, as JSON text or as Python values. Values are written with it, and read as it says whichever version they
            were written with. None: read with the writer's schema; write with the subject's newest (``use_latest``).
        value_type: a dataclass or pydantic model; values are its objects instead of dicts.
        references: named types of other subjects that the schema uses: name -> (subject, version).
        without_registry: bare Avro: bytes have no schema id, and readers and writers share `schema`.
        registry: address of the registry, or the settings of its client; None: that of the application or session.
        subject: ``"topic"`` (the topic's name and ``-key`` or ``-value``), ``"record"``, ``"topic_record"``, or a name.
        auto_register: register the schema when it is first used; default true.
        use_latest: write with the subject's newest schema when the task starts, register nothing.
        normalize: let the registry normalise schemas before it compares them.
        schema_id_serializer: ``"prefix"``: the schema's id is in front of the payload; ``"header"``: its GUID is in a header of the record.

    Raises:
        ConfigError: the schema is not Avro, or arguments exclude each other.
        SerializationError: when used, for a value that the schema cannot write, or bytes that it cannot read.

    Example:
        >>> from kstreams_repl import serdes
        >>> point = serdes.avro({"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}, without_registry=True)
        >>> point.deserialize(point.serialize({"x": 3}))
        {'x': 3}
    """
    text = None if schema is None else schema if isinstance(schema, str) else json.dumps(schema)
    if text is not None and not references:
        parsed(text)
    if without_registry:
        if text is None:
            raise ConfigError("avro without a registry needs a schema", hint="serdes.avro(schema, without_registry=True)")
        return bare(text, value_type)
    if text is None and "use_latest" not in registry:
        registry["use_latest"] = True
    return registry_serde(AvroFormat(text, value_type, references_of(references), RegistryOptions.of(registry)))


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """Avro with a registry (`schema_registry.SchemaFormat`)."""

    schema: str | None
    value_type: type | None
    references: References
    options: RegistryOptions
    name = "avro"

    @property
    def record_schema(self) -> tuple[str, ...] | None:
        if self.schema is None or self.value_type is not None or self.references:
            return None
        return self.name, self.schema

    def _registered(self) -> Schema | None:
        return None if self.schema is None else schema_with(self.references, self.schema, "AVRO")

    @property
    def text(self) -> str:
        return "" if self.schema is None else json.dumps([json_of(self.schema), self.references], sort_keys=True)

    def registered(self, client: SchemaRegistryClient, context: SerializationContext) -> tuple[str, Schema]:
        with extras():
            from confluent_kafka.schema_registry.avro import AvroSerializer

        library = AvroSerializer(client, self._registered(), conf=self.options.library_settings())
        return _subject(library, context), library._schema

    def writer(self, client: SchemaRegistryClient, context: SerializationContext) -> Callable[[object], bytes]:
        with extras():
            from confluent_kafka.schema_registry.avro import AvroSerializer
            from fastavro import schemaless_writer

        library = AvroSerializer(client, self._registered(), conf=self.options.library_settings())
        convert, own = from_value_type(self.value_type), None
        prefix, call = b"", with_id(library, context, self.options)

        def first(value: object) -> bytes:
            nonlocal own, prefix
            latest = library._get_reader_schema(_subject(library, context)) if self.options.use_latest else None
            if latest is not None and latest.schema.rule_set is not None:  # rules are applied by the library, value by value
                return call(value)
            form, _ = with_defaults(library._parsed_schema if latest is None else library._get_parsed_schema(latest.schema), shared=True)
            if latest is None:
                library._parsed_schema = form
            else:
                library._parsed_schemas.set(latest.schema, form)
            data = call(value)
            own, prefix = form, data[: GUID_PREFIX_BYTES if self.options.in_header else 5]
            return data

        def write(value: object) -> bytes:
            if convert is not None:
                value = convert(value)
            try:
                if own is None or own == "bytes":
                    return first(value)
                out = BytesIO()
                out.write(prefix)
                schemaless_writer(out, own, value)
                return out.getvalue()
            except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
                raise misfit("avro", value, error) from error

        return write

    def reader(self, client: SchemaRegistryClient, schema: Schema, prefix: bytes) -> Deserialize:
        with extras():
            from confluent_kafka.schema_registry.avro import AvroDeserializer

        if schema.schema_type not in (None, "AVRO"):
            raise wrong_bytes("avro", prefix, f"an Avro value, not one of {schema.schema_type}")
        library = AvroDeserializer(client, self._registered(), conf={"subject.name.strategy.type": "TOPIC"})
        written, reader, convert = library._get_parsed_schema(schema), library._reader_schema, to_value_type(self.value_type)
        reader, changeable = (None, False) if reader in (None, written) else with_defaults(reader, shared=False)
        start = len(prefix)  # above: equal ones would be compared for each value
        decode = decoder(written)

        def read(data: bytes) -> object:
            expect_whole_id("avro", data, start)
            stream = BytesIO(data)
            stream.seek(start)
            try:
                value = data[start:] if written == "bytes" else decode(stream, written, reader)
            except Exception as error:
                raise wrong_bytes("avro", data, f"a value of schema {shown_id(prefix)} ({error or type(error).__name__})") from error
            if changeable:
                value = filled(value)
            return value if convert is None else convert(value)

        return read

    def id_size(self, data: bytes) -> int:
        return GUID_PREFIX_BYTES


def _subject(library: AvroSerializer, context: SerializationContext) -> str:
    return str(library._subject_name_func(context, library._schema_name))


@cache
def parsed(schema: str) -> Any:
    """Return fastavro's form of a schema.

    Raises:
        ConfigError: it is not an Avro schema.
    """
    with extras():
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType
    try:
        return parse_schema(json_of(schema))
    except (ValueError, SchemaParseException, UnknownType, KeyError, TypeError) as error:
        reason = f"this is not an Avro schema: {type(error).__name__}: {error}"
        raise ConfigError(reason, hint="JSON text, or the same as Python values") from error


def json_of(schema: str) -> Any:
    """Return a schema's text as Python values; the name of a primitive type needs no quotes."""
    text = schema.strip()
    return json.loads(text) if text[:1] in ("{", "[", '"') else text


def layout_of(schema: str) -> object:
    """Return what decides about the bytes of bare Avro: equal for schemas that read each other's without a writer's schema."""
    return _layout(parsed(schema))


_LAYOUT = ("type", "name", "fields", "symbols", "items", "values", "size", "logicalType", "precision", "scale")


def _layout(schema: object) -> Any:
    if isinstance(schema, list):
        return [_layout(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    layout = {key: _layout(schema[key]) if key not in ("name", "symbols") else schema[key] for key in _LAYOUT if key in schema}
    return layout["type"] if layout.keys() == {"type"} else layout


def unreadable(written: Any, reader: Any, samples: int = 100) -> str:
    """Return why values of one schema cannot be read as another says, with the field; "" if all made-up values can.

    Args:
        written, reader: schemas as fastavro parses them.
        samples: number of values to try; each takes another path through unions and enums.
    """
    from fastavro import schemaless_reader, schemaless_writer
    from fastavro.utils import generate_one

    values = []
    for _ in range(samples):
        out = BytesIO()
        with suppress(RecursionError):  # a value of a recursive schema may be made up without an end
            schemaless_writer(out, written, generate_one(written))
            values.append(out.getvalue())

    def failure(schema: Any) -> str:
        for value in values:
            try:
                schemaless_reader(BytesIO(value), written, schema)
            except Exception as error:  # whatever fastavro raises, a reader of records gets it too
                return str(error) or type(error).__name__
        return ""

    reason = failure(reader)
    for field in reader["fields"] if reason and isinstance(reader, dict) and "fields" in reader else ():
        own = failure({**reader, "fields": [field]})
        if own:
            return f"field {field['name']!r}: {own}"
    return reason


_SAFE_DEPTH = 2000
"""Values of so many bytes cannot be nested deeper than fastavro's compiled reader can go; at twice the depth it ends the process."""


def decoder(schema: object) -> Callable[[BytesIO, Any, Any], object]:
    """Return fastavro's reader; for types that contain themselves the one in Python, which refuses what is nested too deeply."""
    from fastavro import schemaless_reader

    if not _contains_itself(schema, ()):
        quick: Callable[[BytesIO, Any, Any], object] = schemaless_reader
        return quick
    from fastavro._read_py import schemaless_reader as careful

    def read(stream: BytesIO, written: Any, reader: Any) -> object:
        return (schemaless_reader if len(stream.getbuffer()) <= _SAFE_DEPTH else careful)(stream, written, reader)

    return read


def _contains_itself(schema: Any, inside: tuple[str, ...]) -> bool:
    if isinstance(schema, list):
        return any(_contains_itself(one, inside) for one in schema)
    if isinstance(schema, str):
        return schema in inside
    inside = (*inside, schema["name"]) if "name" in schema else inside
    parts = [field["type"] for field in schema.get("fields", ())]
    parts += [schema[part] for part in ("items", "values", "type") if part in schema]
    return any(_contains_itself(part, inside) for part in parts)


def bare(schema: str, value_type: type | None) -> Serde:
    """Return the serde of bare Avro: readers and writers share one schema."""
    from fastavro import schemaless_writer

    form, convert, back = parsed(schema), from_value_type(value_type), to_value_type(value_type)
    written, _ = with_defaults(form, shared=True)
    decode = decoder(form)

    def serialize(value: object) -> bytes:
        out = BytesIO()
        try:
            schemaless_writer(out, written, value if convert is None else convert(value))
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            raise misfit("avro", value, error) from error
        return out.getvalue()

    def deserialize(data: bytes) -> object:
        try:
            value = decode(BytesIO(data), form, None)
        except Exception as error:
            raise wrong_bytes("avro", data, f"a value of its schema ({error or type(error).__name__})") from error
        return value if back is None else back(value)

    declared = ("avro", schema) if value_type is None else None
    return Serde(serialize, deserialize, name="avro", recipe=(bare, (schema, value_type)), record_schema=declared)


def misfit(serde: str, value: object, error: Exception) -> SerializationError:
    """Return the error for a value that does not fit its schema."""
    return SerializationError(
        f"the {serde} serde cannot write this {type(value).__name__}: {error or type(error).__name__}",
        hint="map the value to the schema's fields and types first, or give the serde another schema",
        serde=serde,
    )
