"""JSON checked against a JSON Schema in a Schema Registry; and values of whatever format the registry says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from kstreams_repl.engine.serdes.json_text import JSON
from kstreams_repl.engine.serdes.schemas.avro import AvroFormat, References, misfit, references_of, schema_with
from kstreams_repl.engine.serdes.schemas.protobuf import ProtobufFormat
from kstreams_repl.engine.serdes.schemas.schema_registry import (
    GUID_PREFIX_BYTES,
    RegistryArguments,
    RegistryOptions,
    SchemaFormat,
    expect_whole_id,
    registry_serde,
    with_id,
)
from kstreams_repl.engine.serdes.schemas.value_types import from_value_type, to_value_type
from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes
from kstreams_repl.system.errors import ConfigError, SerializationError
from kstreams_repl.system.extras import extras
from kstreams_repl.system.types import Deserialize

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.serialization import SerializationContext
    from jsonschema.protocols import Validator



def json_schema(
    schema: str | Mapping[str, object] | None = None,
    *,
    value_type: type | None = None,
    references: Mapping[str, tuple[str, int]] | None = None,
    validate: bool = True,
    **registry: Unpack[RegistryArguments],
) -> Serde:
    """Return a serde of JSON values that follow a JSON Schema, with the bytes of Confluent's serializers.

    Args:
        schema: the schema, as JSON text or as Python values; it needs a ``title`` for the subject ``"record"``. None: read with the
            writer's schema; write with the subject's newest (``use_latest``).
        value_type: a dataclass or pydantic model; values are its objects instead of dicts.
        references: schemas of other subjects that the schema names by ``$ref``: name -> (subject, version).
        validate: check each value against the schema, when it is written and when it is read.
        registry: address of the registry, or the settings of its client; None: that of the application or session.
        subject: ``"topic"`` (the topic's name and ``-key`` or ``-value``), ``"record"``, ``"topic_record"``, or a name.
        auto_register: register the schema when it is first used; default true.
        use_latest: write with the subject's newest schema when the task starts, register nothing.
        normalize: let the registry normalise schemas before it compares them.
        schema_id_serializer: ``"prefix"``: the schema's id is in front of the payload; ``"header"``: its GUID is in a header of the record.

    Raises:
        ConfigError: the schema is not a JSON object, or arguments exclude each other.
        SerializationError: when used, for a value that does not follow the schema.

    Example:
        >>> from kstreams_repl import serdes
        >>> serdes.json_schema({"title": "P", "type": "object", "properties": {"x": {"type": "integer"}}}).name
        'json_schema'
    """
    text = None if schema is None else schema if isinstance(schema, str) else json.dumps(schema)
    if text is not None:
        try:
            json.loads(text)
        except ValueError as error:
            raise ConfigError(f"this is not a JSON Schema: {error}", hint="JSON text, or the same as Python values") from error
    elif "use_latest" not in registry:
        registry["use_latest"] = True
    return registry_serde(JsonSchemaFormat(text, value_type, references_of(references), validate, RegistryOptions.of(registry)))


@dataclass(frozen=True, slots=True)
class JsonSchemaFormat:
    """JSON Schema with a registry (`schema_registry.SchemaFormat`)."""

    schema: str | None
    value_type: type | None
    references: References
    validate: bool
    options: RegistryOptions
    name = "json_schema"

    @property
    def text(self) -> str:
        if self.schema is None:
            return ""
        schema = json.loads(self.schema)
        return json.dumps([schema, self.references] if self.references else schema, sort_keys=True)

    @property
    def record_schema(self) -> tuple[str, ...] | None:
        if self.schema is None or self.value_type is not None or self.references:
            return None
        return self.name, self.schema

    def registered(self, client: SchemaRegistryClient, context: SerializationContext) -> tuple[str, Schema]:
        library = self._serializer(client)
        return str(library._subject_name_func(context, library._schema_name)), library._schema

    def _serializer(self, client: SchemaRegistryClient) -> JSONSerializer:
        with extras():
            from confluent_kafka.schema_registry.json_schema import JSONSerializer

        settings = {**self.options.library_settings(), "validate": self.validate}
        schema = None if self.schema is None else schema_with(self.references, self.schema, "JSON")
        return JSONSerializer(schema, client, conf=settings, json_encode=_encode)

    def writer(self, client: SchemaRegistryClient, context: SerializationContext) -> Callable[[object], bytes]:
        call = with_id(self._serializer(client), context, self.options)
        convert = from_value_type(self.value_type, "json")

        def write(value: object) -> bytes:
            from confluent_kafka.serialization import SerializationError as Misfit

            if convert is not None:
                value = convert(value)
            try:
                return call(value)
            except (Misfit, ValueError, TypeError) as error:
                raise misfit("json_schema", value, error) from error

        return write

    def reader(self, client: SchemaRegistryClient, schema: Schema, prefix: bytes) -> Deserialize:
        if schema.schema_type != "JSON":
            raise wrong_bytes("json_schema", prefix, f"a JSON value, not one of {schema.schema_type or 'AVRO'}")
        convert = to_value_type(self.value_type)
        check, start = _validator(schema, client) if self.validate else None, len(prefix)

        def read(data: bytes) -> object:
            expect_whole_id("json_schema", data, start)
            value = JSON.deserialize(bytes(data[start:]))
            try:
                problem = None if check is None else next(check.iter_errors(value), None)
            except (RecursionError, ArithmeticError) as error:  # nested too deeply; a number too large for multipleOf
                raise wrong_bytes("json_schema", data, f"a value that can be checked ({error or type(error).__name__})") from error
            if problem is not None:
                raise SerializationError(
                    f"a value does not follow its JSON Schema: {problem.message}", hint="json_schema(validate=False) reads it",
                    serde="json_schema", reading=True,
                )  # fmt: skip
            return value if convert is None else convert(value)

        return read

    def id_size(self, data: bytes) -> int:
        return GUID_PREFIX_BYTES


def _encode(value: object) -> str:
    return str((JSON.serialize(value) or b"null").decode())


def _validator(schema: Schema, client: SchemaRegistryClient) -> Validator:
    from confluent_kafka.schema_registry.json_schema import _resolve_named_schema
    from jsonschema.validators import validator_for

    contents = json.loads(schema.schema_str)
    return validator_for(contents)(contents, registry=_resolve_named_schema(schema, client))


@dataclass(frozen=True, slots=True)
class AnyFormat:
    """Values of whatever format the registry says, as dicts; written with the newest schema of the subject."""

    options: RegistryOptions
    name = "registry"
    text = ""
    record_schema = None

    def registered(self, client: SchemaRegistryClient, context: SerializationContext) -> tuple[str, Schema]:
        raise AssertionError("unreachable: its schema is the registry's")

    def writer(self, client: SchemaRegistryClient, context: SerializationContext) -> Callable[[object], bytes]:
        if context.topic == "":
            raise SerializationError("the registry serde cannot write without a topic", hint="serde.for_topic('orders')")
        subject = f"{context.topic}-{context.field}"
        latest = client.get_latest_version(subject).schema
        return self._format(latest.schema_type, latest).writer(client, context)

    def reader(self, client: SchemaRegistryClient, schema: Schema, prefix: bytes) -> Deserialize:
        return self._format(schema.schema_type, None).reader(client, schema, prefix)

    def id_size(self, data: bytes) -> int:
        raise AssertionError("unreachable: it writes no ids into headers")

    def _format(self, kind: str | None, latest: Schema | None) -> SchemaFormat:
        newest = RegistryOptions(self.options.registry, auto_register=False, use_latest=True)
        if kind == "PROTOBUF":
            return ProtobufFormat(None, None, None if latest is None else latest.schema_str, newest)
        if kind == "JSON":
            return JsonSchemaFormat(None, None, (), False, newest)
        return AvroFormat(None, None, (), newest)


REGISTRY = registry_serde(AnyFormat(RegistryOptions(auto_register=False, use_latest=True)))
