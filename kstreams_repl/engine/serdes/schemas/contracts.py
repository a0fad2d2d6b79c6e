"""Whether a schema may be written under its subject, and whether what is there can be read with it.

The registry answers the first question by its own rules: a candidate is tested against the subject's versions at the subject's
compatibility level. The second one it answers only at the levels BACKWARD and FULL; for Avro it is tried instead: values made up by
the writer's schema are read with the reader's, by the functions that read the records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import quote

from kstreams_repl.engine.serdes.schemas import avro, protobuf
from kstreams_repl.engine.serdes.schemas.schema_registry import (
    SchemaFormat,
    Settings,
    Usage,
    client_of,
    default_registry,
    registry_serde,
    translated,
)
from kstreams_repl.engine.serdes.serde import Serde
from kstreams_repl.system.errors import SchemaRegistryError
from kstreams_repl.system.extras import extras
from kstreams_repl.system.secrets import Secret

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
    from google.protobuf.descriptor import FileDescriptor

T = TypeVar("T")

NOT_IMPLEMENTED = 501
"""Status of what a registry cannot compare."""
_SAMPLES = 100
_MESSAGE = re.compile(r"description: *'(.*?)', *additionalInfo")
"""In the messages of Confluent's registry."""
_REASON = re.compile(r"list of diff types: \[(.*?)\] Causes", re.DOTALL)
"""In the reason that Apicurio gives."""
_PATIENCE = {"timeout": 5, "max.retries": 1}
"""A person waits for the answer."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A schema that the code of a topology gives a serde, where the serde is used.

    Attributes:
        format: None: Avro without a registry.
        text: the schema; empty: whatever the registry has.
    """

    format: SchemaFormat | None
    usage: Usage
    text: str

    @property
    def registry(self) -> Settings:
        """Settings of the registry's client."""
        return (() if self.format is None else self.format.options.registry) or self.usage.registry or default_registry()

    def is_like(self, other: Declared) -> bool:
        """Return whether both have the same schema under the same subject."""
        if self.format is None or other.format is None:
            return self.format is other.format and avro.layout_of(self.text) == avro.layout_of(other.text)
        mine, theirs = ((one.format.name, one.format.options.subject, one.text) for one in (self, other) if one.format is not None)
        return mine == theirs


def declared_by(serde: Serde) -> tuple[Declared, ...]:
    """Return the schemas of a serde that is bound to a topic; of a serde around others, those of all of them."""
    if serde._recipe is None:
        return ()
    make, arguments = serde._recipe
    if make is registry_serde:
        format, usage = arguments
        return (Declared(format, usage, format.text),)
    if make is avro.bare:
        return (Declared(None, Usage(), arguments[0]),)
    return tuple(declared for item in arguments if isinstance(item, Serde) for declared in declared_by(item))


class SubjectFit(NamedTuple):
    """What the registry says of a candidate.

    Attributes:
        accepted: whether it would register it, or has it.
        registered: whether it has it; False if that was not asked.
        compatible: whether it fits the versions that the level compares it with.
        reason: what does not fit.
    """

    subject: str
    level: str
    version: int
    accepted: bool
    registered: bool
    compatible: bool
    reason: str

    @property
    def reads_earlier(self) -> bool:
        """Return whether the level asks if the candidate reads what was written before."""
        return self.level.startswith(("BACKWARD", "FULL"))


class RegistryQuestions:
    """Asks one registry, past the caches of the client that serdes use. Close it.

    Its calls raise what `registry.translated` makes of the client's errors.
    """

    def __init__(self, registry: Settings) -> None:
        given = dict(registry)
        url = given.get("url")
        self._is_apicurio = "/ccompat/" in (url.reveal() if isinstance(url, Secret) else str(url))
        """It says NONE of a subject that follows the global level."""
        self._client = client_of.__wrapped__(tuple(sorted({**_PATIENCE, **given}.items())) if given else registry)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> RegistryQuestions:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def may_write(self, declared: Declared) -> SubjectFit | None:
        """Return whether a schema may be written under its subject; None: the subject has no versions."""
        with _asking(declared):
            subject, schema = self._registered(declared)
            latest = self._latest(subject)
            if latest is None:
                return None
            level = self._level(subject)
            reason = self._misfit(declared, subject, schema, latest, "" if level.endswith("TRANSITIVE") else "/latest")
            registers = declared.format is not None and declared.format.options.auto_register
            has_it = (reason is not None or not registers) and self._has(subject, schema)
            return SubjectFit(subject, level, latest.version, reason is None or has_it, has_it, reason is None, reason or "")

    def unreadable(self, declared: Declared, written: Declared | None = None) -> str:
        """Return why values cannot be read with a schema; "" if they can, or the registry does not say.

        Args:
            written: the schema that they were written with; None: the newest of the subject.
        """
        with _asking(declared):
            subject, schema = self._registered(declared)
            latest = self._latest(subject) if written is None else None
            if written is None and latest is None:
                return ""
            writer = latest.schema if latest is not None else self._registered(written)[1]  # type: ignore[arg-type]
            where = "" if latest is None else f"version {latest.version} of {subject}"
            if (writer.schema_type or "AVRO") != schema.schema_type:
                return f"{where} is {writer.schema_type or 'AVRO'}, not {schema.schema_type}".strip()
            if schema.schema_type == "AVRO":
                reason = self._unreadable_avro(writer, schema)
                return f"{where}: {reason}" if reason and where else reason
            if latest is None or not self._level(subject).startswith("BACKWARD"):
                return ""
            misfit = self._misfit(declared, subject, schema, latest, "/latest")
            return "" if misfit is None else f"{where}: {misfit}"

    def begin(self, declared: Declared) -> None:
        """Register a schema that fits no version of its subject: no row of those is left.

        The subject is deleted as a registry deletes (its schemas are still found by their ids) and begins with this version. Its own
        level stays.
        """
        with _asking(declared):
            subject, schema = self._registered(declared)
            own = self._own_level(subject)
            self._client.delete_subject(subject)
            self._client.clear_caches()  # else a schema that was there before would be taken for registered
            if own is not None:
                self._client.set_compatibility(subject, own)
            self._client.register_schema(subject, schema, declared.format.options.normalize)  # type: ignore[union-attr]

    def _misfit(self, declared: Declared, subject: str, schema: Schema, latest: RegisteredSchema, version: str) -> str | None:
        """Return why a schema does not fit its subject's versions, with the fields that have changed; None: it fits."""
        schema = _as_text(declared, schema)
        if self._is_apicurio and (schema.references or _is_compiled(schema) or _is_compiled(latest.schema)):
            what = "schemas with references" if schema.references else "Protobuf schemas that were compiled"
            raise SchemaRegistryError(f"Apicurio does not compare {what}", status=NOT_IMPLEMENTED)
        path = f"compatibility/subjects/{quote(subject, safe='')}/versions{version}?verbose=true"
        answer = self._client._rest_client.post(path, body=schema.to_dict())  # the library's own method drops the reasons
        if answer["is_compatible"]:
            return None
        before, after = (fields_of(self._client, one) for one in (latest.schema, schema))
        changed = [name for name in {**after, **before} if before.get(name) != after.get(name)]
        named = f"field{'s' if len(changed) > 1 else ''} {', '.join(map(repr, changed[:5]))}" if changed else ""
        words = _MESSAGE.findall(" ".join(answer.get("messages") or ())) or _REASON.findall(answer.get("reason") or "")
        return ": ".join(filter(None, (named, "; ".join(words))))

    def _registered(self, declared: Declared) -> tuple[str, Schema]:
        from confluent_kafka.serialization import MessageField, SerializationContext

        assert declared.format is not None
        usage = declared.usage
        return declared.format.registered(self._client, SerializationContext(usage.topic or "", getattr(MessageField, usage.part.upper())))

    def _latest(self, subject: str) -> RegisteredSchema | None:
        return _unless_missing(self._client.get_latest_version, subject)

    def _has(self, subject: str, schema: object) -> bool:
        return _unless_missing(self._client.lookup_schema, subject, schema) is not None

    def _level(self, subject: str) -> str:
        return self._own_level(subject) or str(self._client.get_compatibility())

    def _own_level(self, subject: str) -> str | None:
        level = _unless_missing(self._client.get_compatibility, subject)
        return None if level is None or (level == "NONE" and self._is_apicurio) else str(level)

    def _unreadable_avro(self, written: object, reader: object) -> str:
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        library = AvroDeserializer(self._client, conf={"subject.name.strategy.type": "TOPIC"})
        return avro.unreadable(library._get_parsed_schema(written), library._get_parsed_schema(reader), _SAMPLES)


@contextmanager
def _asking(declared: Declared) -> Iterator[None]:
    with extras():
        import confluent_kafka.schema_registry  # noqa: F401
    try:
        yield
    except Exception as error:
        explained = translated(error, f"compare the schema of the {declared.usage.part}s of {declared.usage.topic}")
        if explained is error:
            raise
        raise explained from error


def _unless_missing(ask: Callable[..., T], *about: object) -> T | None:
    """Return the registry's answer; None if it does not have the subject or the schema."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError as Refused

    try:
        return ask(*about)
    except Refused as error:
        if error.http_status_code != 404:
            raise
        return None


def _as_text(declared: Declared, schema: Schema) -> Schema:
    """Return the schema as its author wrote it: serializers register Protobuf in compiled form."""
    from confluent_kafka.schema_registry import Schema

    text = getattr(declared.format, "schema", None)
    return Schema(text, "PROTOBUF", schema.references) if schema.schema_type == "PROTOBUF" and text else schema


def _is_compiled(schema: Schema) -> bool:
    return schema.schema_type == "PROTOBUF" and "message" not in schema.schema_str


def fields_of(client: SchemaRegistryClient, schema: Schema) -> dict[str, object]:
    """Return the fields of a schema by name, those of nested values behind a dot, each with what decides about it."""
    if schema.schema_type == "PROTOBUF":
        return dict(_proto_fields(protobuf.descriptor(client, schema)))
    return dict(_json_fields(json.loads(schema.schema_str), ""))


def _json_fields(schema: object, at: str) -> Iterator[tuple[str, object]]:
    """Yield the fields of an Avro record or a JSON object, in it and below it."""
    if isinstance(schema, list):
        for one in schema:
            yield from _json_fields(one, at)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        fields = [(field["name"], field) for field in schema.get("fields") or ()]
        fields += properties.items() if isinstance(properties, dict) else ()
        for name, field in fields:
            path = f"{at}.{name}" if at else name
            below = dict(_json_fields(field, path))
            yield path, None if below else (field, name in (schema.get("required") or ()))
            yield from below.items()
        for inner in ("type", "items", "values"):
            yield from _json_fields(schema.get(inner), at)


def _proto_fields(file: FileDescriptor) -> Iterator[tuple[str, object]]:
    kinds = list(file.message_types_by_name.values())
    for kind in kinds:
        kinds += kind.nested_types
        for field in kind.fields:
            yield field.full_name.removeprefix(f"{file.package}."), (field.number, field.type, field.is_repeated)
