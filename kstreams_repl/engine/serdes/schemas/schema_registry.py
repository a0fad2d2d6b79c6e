"""Values whose schema is kept in a Schema Registry: its client, the wire format, and what the serdes of all schema formats share.

A serialized value is a byte 0, the schema's id in four bytes, and the payload of its format (Protobuf: message indexes first), as
Confluent's serializers write it; or a byte 1 and the schema's GUID in sixteen, which a record may have in a header (`header_ids`). The
first value of a topic goes through the library's serializer, which registers or looks up the schema; its prefix is kept, so the next
values cost no more than the payload. Readers are kept by schema id in the same way.

A value is registered under a subject that depends on its topic, so these serdes are bound to a topic (`Serde.for_topic`) where they are
used: a source, a sink, a store's changelog. The registry's errors say nothing about a record: they
(`SchemaRegistryError`) are never passed to an exception handler, and the task is initialised again until the registry answers.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypedDict
from uuid import UUID

from kstreams_repl.engine.serdes.header_ids import Framed
from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes
from kstreams_repl.system.errors import (
    ConfigError,
    KStreamsError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    SerializationError,
)
from kstreams_repl.system.extras import extras
from kstreams_repl.system.secrets import Secret
from kstreams_repl.system.types import Deserialize

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
    from confluent_kafka.serialization import SerializationContext

PREFIX = "schema.registry."
"""Prefix of the settings of an application that are passed to the registry's client: ``schema.registry.url``, …"""
_PREFIX_BYTES = 5
_MAGIC, _GUID_MAGIC = b"\0", b"\1"
GUID_PREFIX_BYTES = 17
Settings = tuple[tuple[str, Any], ...]
Part = Literal["key", "value"]
_SECRET_WORDS = ("user.info", "password", "secret", "token")
_default: Settings = ()
_DEFAULTS: dict[str, object] = {"timeout": 10, "max.retries": 2, "retries.wait.ms": 200, "retries.max.wait.ms": 1000}
_NUMBERS = (*_DEFAULTS, "cache.capacity", "cache.latest.ttl.sec")


class RegistryArguments(TypedDict, total=False):
    """Keyword arguments that the serdes of all schema formats take."""

    registry: str | Mapping[str, object] | None
    subject: str
    auto_register: bool
    use_latest: bool
    normalize: bool
    schema_id_serializer: Literal["prefix", "header"]


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """How a serde uses the registry.

    Attributes:
        registry: settings of its client; empty: those of the application or session.
        subject: ``"topic"``, ``"record"``, ``"topic_record"`` (the strategies of Confluent's serializers), or the subject's name with
            ``{topic}`` and ``{part}`` in it.
        auto_register: register the schema if the subject does not have it; otherwise it must be there.
        use_latest: write with the subject's newest schema at the time the task starts.
        normalize: let the registry compare normalised schemas.
        schema_id_serializer: where the schema's id is written: in front of the payload, or (its GUID) in a header of the record.
    """

    registry: Settings = ()
    subject: str = "topic"
    auto_register: bool = True
    use_latest: bool = False
    normalize: bool = False
    schema_id_serializer: str = "prefix"

    @classmethod
    def of(cls, arguments: RegistryArguments) -> RegistryOptions:
        given: dict[str, Any] = dict(arguments)
        registry = given.pop("registry", None)
        if given.get("use_latest"):
            if given.get("auto_register"):
                raise ConfigError("use_latest and auto_register exclude each other", hint="leave auto_register out")
            given["auto_register"] = False
        options = cls(registry=settings_of(registry), **given)
        if options.subject not in _STRATEGIES and "{topic}" not in options.subject and not options.subject.strip():
            raise ConfigError("subject= is empty", hint="topic, record, topic_record, or the subject's name")
        if options.schema_id_serializer not in ("prefix", "header"):
            raise ConfigError(f"schema_id_serializer={options.schema_id_serializer!r}", hint='"prefix" or "header"')
        return options

    @property
    def in_header(self) -> bool:
        """Whether schema ids are written into headers."""
        return self.schema_id_serializer == "header"

    def library_settings(self) -> dict[str, object]:
        """Return the settings of Confluent's serializers."""
        strategy = _STRATEGIES.get(self.subject)
        naming: dict[str, object] = {"subject.name.strategy.type": strategy}
        if strategy is None:
            naming = {"subject.name.strategy": lambda context, name: self.subject.format(topic=context.topic, part=context.field)}
        if self.in_header:
            from confluent_kafka.schema_registry import header_schema_id_serializer

            naming["schema.id.serializer"] = header_schema_id_serializer
        return {
            "auto.register.schemas": self.auto_register,
            "use.latest.version": self.use_latest,
            "normalize.schemas": self.normalize,
            **naming,
        }


_STRATEGIES = {"topic": "TOPIC", "record": "RECORD", "topic_record": "TOPIC_RECORD"}


class SchemaFormat(Protocol):
    """One schema format: Avro, Protobuf or JSON Schema, with its schema and options. Frozen, comparable, and pickled by value."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> RegistryOptions: ...
    @property
    def text(self) -> str:
        """The schema that the code declares, as a text to compare; empty: it is the registry's."""

    @property
    def record_schema(self) -> tuple[str, ...] | None:
        """`Serde.record_schema`; None: values are not dicts, or the schema is not here as a whole."""

    def registered(self, client: SchemaRegistryClient, context: SerializationContext) -> tuple[str, Schema]:
        """Return the subject and the declared schema, as `writer` registers it."""

    def writer(self, client: SchemaRegistryClient, context: SerializationContext) -> Callable[[object], bytes]:
        """Return the function that writes values of one topic, with the schema's id in front wherever it is sent."""

    def reader(self, client: SchemaRegistryClient, schema: Schema, prefix: bytes) -> Deserialize:
        """Return the function that reads values with this writer's schema; they begin with this prefix."""

    def id_size(self, data: bytes) -> int:
        """Return how many bytes at the beginning are the schema's GUID and what belongs to it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Where a serde is used, and the registry of that usage."""

    topic: str | None = None
    part: Part = "value"
    registry: Settings = field(default=(), repr=False)


def registry_serde(format: SchemaFormat, usage: Usage = Usage()) -> Serde:  # noqa: B008 - frozen
    """Return the serde of a schema format, for one usage."""
    readers: dict[bytes, Deserialize] = {}
    write: Callable[[object], bytes] | None = None

    def client() -> SchemaRegistryClient:
        return client_of(format.options.registry or usage.registry or _default)

    def serialize(value: object) -> bytes:
        nonlocal write
        try:
            if write is None:
                write = _first(format, client(), usage)
            return write(value)
        except Exception as error:
            _fail(error, f"write a {usage.part} of {usage.topic or 'a topic'} as {format.name}")

    def deserialize(data: bytes) -> object:
        read = readers.get(data[:_PREFIX_BYTES])
        if read is None:
            prefix = _prefix_of(data)
            if prefix is None:
                raise wrong_bytes(format.name, data, "a byte 0, a schema id and a payload, as with a Schema Registry")
            read = readers.get(prefix) or new_reader(prefix)  # a GUID is longer
        return read(data)

    def new_reader(prefix: bytes) -> Deserialize:
        try:
            registry = client()
            schema = _schema_at(registry, prefix)
            _refuse_read_rules(schema, prefix)
            read = readers[prefix] = format.reader(registry, schema, prefix)
        except Exception as error:
            _fail(error, f"read the schema {shown_id(prefix)} of a {usage.part}", id=shown_id(prefix))
        return read

    return Serde(
        serialize,
        deserialize,
        name=format.name,
        recipe=(registry_serde, (format, usage)),
        record_schema=format.record_schema,
        bind=lambda topic, part, registry: registry_serde(format, Usage(topic, part, registry or usage.registry)),
        reads_header_ids=True,
        header_id_size=format.id_size if format.options.in_header else None,
    )


def _prefix_of(data: bytes) -> bytes | None:
    """Return the schema id in front of a payload, without message indexes; None if there is none."""
    size = {_MAGIC: _PREFIX_BYTES, _GUID_MAGIC: GUID_PREFIX_BYTES}.get(bytes(data[:1]))
    return None if size is None or len(data) < size else bytes(data[:size])


def _schema_at(client: SchemaRegistryClient, prefix: bytes) -> Schema:
    return client.get_schema(shown_id(prefix)) if prefix[:1] == _MAGIC else client.get_schema_by_guid(shown_id(prefix))


def _refuse_read_rules(schema: Schema, prefix: bytes) -> None:
    """Raise if values of a schema are converted by rules when they are read, such as decrypted: without them they would be other values.

    Rules that only check a value, and those of migrations, which Confluent's deserializers apply with ``use.latest.version``, pass.
    """
    rules = schema.rule_set
    if rules is None:
        return
    found = [
        rule for rule in (*(rules.domain_rules or ()), *(rules.encoding_rules or ()))
        if rule.kind == "TRANSFORM" and rule.mode in ("READ", "WRITEREAD") and not rule.disabled
    ]  # fmt: skip
    if found:
        raise SchemaRegistryError(
            f"values of the schema {shown_id(prefix)} are converted by rules on reading, which is not supported: "
            + ", ".join(f"{rule.name} ({rule.type})" for rule in found),
            hint='read them as "bytes", or by a serde of yours that calls the deserializer of confluent-kafka with its rules',
            id=shown_id(prefix),
        )


def expect_whole_id(serde: str, data: bytes, end: int) -> None:
    """Raise unless a schema id that came in a header ends where the payload begins: a shorter or longer one would be read with it."""
    if data.__class__ is Framed and len(data) - len(data.payload) != end:
        raise wrong_bytes(serde, data, f"a schema id of {end} bytes in its header")


def shown_id(prefix: bytes) -> int | str:
    """Return a prefix as the schema's number, or the text of its GUID."""
    return int.from_bytes(prefix[1:], "big") if prefix[:1] == _MAGIC else str(UUID(bytes=prefix[1:]))


def id_of(registered: RegisteredSchema, options: RegistryOptions) -> bytes:
    """Return the prefix of a registered schema.

    Raises:
        SchemaRegistryError: the options say GUID, and the registry has none.
    """
    if not options.in_header:
        return _MAGIC + int(registered.schema_id).to_bytes(4, "big")
    if registered.guid is None:
        raise _no_guid()
    return _GUID_MAGIC + UUID(registered.guid).bytes


def with_id(library: Callable[..., Any], context: SerializationContext, options: RegistryOptions) -> Callable[[object], bytes]:
    """Return the library's serializer of one topic; what it would write into a header is in front of its result."""
    if not options.in_header:
        return lambda value: bytes(library(value, context))
    from confluent_kafka.serialization import SerializationContext
    from confluent_kafka.serialization import SerializationError as Refused

    def call(value: object) -> bytes:
        own = SerializationContext(context.topic, context.field, [])
        try:
            data: bytes = library(value, own)
        except Refused as error:
            if "GUID is not set" in str(error):
                raise _no_guid() from error
            raise
        return bytes(own.headers[0][1]) + data

    return call


def _no_guid() -> SchemaRegistryError:
    return SchemaRegistryError(
        "this Schema Registry gives its schemas no GUIDs, which schema ids in headers are",
        hint='leave schema_id_serializer="header" out, or use a registry that has them (Confluent Platform 8.0 or later)',
    )


def _first(format: SchemaFormat, client: SchemaRegistryClient, usage: Usage) -> Callable[[object], bytes]:
    from confluent_kafka.serialization import MessageField, SerializationContext

    if usage.topic is None and format.options.subject in ("topic", "topic_record"):
        raise SerializationError(
            f"the {format.name} serde cannot write without a topic: the topic's name is part of the schema's subject",
            hint="serde.for_topic('orders').serialize(value); topologies, produce and test topics do this",
        )
    return format.writer(client, SerializationContext(usage.topic or "", getattr(MessageField, usage.part.upper())))


# ---- the client


def settings_of(registry: str | Mapping[str, object] | None) -> Settings:
    """Return a registry's address, or the settings of its client, in one form.

    Raises:
        ConfigError: settings without ``url``.
    """
    given = {"url": registry} if isinstance(registry, str) else dict(registry or {})
    if given and not given.get("url"):
        raise ConfigError("the Schema Registry's settings have no url", hint='schema_registry={"url": "http://host:8081", …}', key="url")
    return tuple(
        (name, Secret(value) if isinstance(value, str) and _has_secret(name, value) else value) for name, value in sorted(given.items())
    )


def _has_secret(name: str, value: str) -> bool:
    return any(word in name for word in _SECRET_WORDS) or (name == "url" and "@" in value)


def settings_from(config: Mapping[str, object]) -> Settings:
    """Return the registry's settings in those of an application: its keys with the prefix ``schema.registry.``."""
    return settings_of({name.removeprefix(PREFIX): value for name, value in config.items() if name.startswith(PREFIX)})


def use_by_default(registry: Settings) -> None:
    """Use this registry in serdes of this process that have no other: those that a session's user calls."""
    global _default
    _default = registry


def default_registry() -> Settings:
    """Return the registry of this process's session; empty: none."""
    return _default


def is_registered(data: bytes) -> bool:
    """Return whether bytes begin with a schema id that this process's default registry knows. False if there is none, or no answer."""
    prefix = _prefix_of(data)
    if prefix is None or len(data) == len(prefix) or not _default:
        return False
    try:
        _schema_at(client_of(_default), prefix)
    except Exception as error:
        if isinstance(translated(error, "look up a schema"), KStreamsError):
            return False
        raise
    return True


@cache
def client_of(registry: Settings) -> SchemaRegistryClient:
    """Return this process's client of a registry. It keeps schemas by id for ever.

    Raises:
        ConfigError: no registry is set, or its client refuses a setting.
    """
    if not registry:
        raise ConfigError(
            "no Schema Registry is set",
            hint='connect(schema_registry="http://host:8081"), the setting schema.registry.url, or registry= of the serde',
            key="schema.registry.url",
        )
    with extras():
        from confluent_kafka.schema_registry import SchemaRegistryClient

    settings = {name: value.reveal() if isinstance(value, Secret) else value for name, value in registry}
    try:
        client = SchemaRegistryClient.new_client({**_DEFAULTS, **_numbers(settings)})
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the Schema Registry's client refuses its settings: {error}",
            hint="the names are those of confluent-kafka's SchemaRegistryClient: url, basic.auth.user.info, ssl.ca.location, …",
            key="schema.registry.url",
        ) from error
    atexit.register(client.__exit__)  # its connections are closed with the process, not left open
    return client


def _numbers(settings: Mapping[str, object]) -> dict[str, object]:
    """Convert numbers that a properties file gives as text; a password of digits stays text."""
    return {
        name: int(value) if name in _NUMBERS and isinstance(value, str) and value.isdigit() else value
        for name, value in settings.items()
    }


def _fail(error: Exception, what: str, **fields: object) -> NoReturn:
    explained = translated(error, what, **fields)
    if explained is error:
        raise error
    raise explained from error


def translated(error: Exception, what: str, **fields: object) -> Exception:
    """Return the error to raise for one of the registry's client: `SchemaRegistryUnavailableError` if it does not answer, or not now;
    `SchemaRegistryError` if it refuses the credentials or the schema, or there is no trust between certificates;
    `SerializationError` if it does not know the schema. Return all other errors unchanged."""
    if isinstance(error, KStreamsError):
        return error
    from confluent_kafka.schema_registry.common._httpx_compat import httpx
    from confluent_kafka.schema_registry.error import OAuthTokenError
    from confluent_kafka.schema_registry.error import SchemaRegistryError as Refused

    if isinstance(error, OAuthTokenError):
        kind = SchemaRegistryUnavailableError if isinstance(error.__context__, httpx.HTTPError) else SchemaRegistryError
        hint = "check the settings schema.registry.bearer.auth.…: issuer.endpoint.url, client.id, client.secret"
        return kind(f"cannot {what}: {error}", hint=hint, **fields)
    if isinstance(error, httpx.TransportError) and "certificate" in str(error).lower():
        return SchemaRegistryError(
            f"cannot {what}: no trust between the Schema Registry and its client: {error}",
            hint="check schema.registry.ssl.ca.location, ssl.certificate.location and ssl.key.location",
            **fields,
        )
    if isinstance(error, httpx.TransportError):
        return SchemaRegistryUnavailableError(
            f"cannot {what}: the Schema Registry does not answer ({type(error).__name__}: {error})",
            hint="records wait until it answers; check schema.registry.url if it never does",
            **fields,
        )
    if not isinstance(error, Refused):
        return error
    status = error.http_status_code
    text = f"{error.error_message} (HTTP {status}, code {error.error_code})"
    if status == 404:
        return SerializationError(
            f"cannot {what}: the Schema Registry does not have it: {text}",
            hint="the record was written with another registry, or the schema is not registered and auto_register is off",
            reading=what.startswith("read"),
            **fields,
        )
    raced = status == 409 and "already exists" in text  # Apicurio: another instance has registered the new subject meanwhile
    if status in (408, 429) or status >= 500 or raced:
        return SchemaRegistryUnavailableError(f"cannot {what}: {text}", hint="records wait until the registry answers", **fields)
    advice = {
        401: "check schema.registry.basic.auth.user.info or the bearer token",
        403: "the user needs the right to read the subject, and to write it with auto_register",
        409: "change the schema so that it is compatible with the subject's versions, or the subject's compatibility",
        422: "the registry cannot parse this schema",
    }.get(status)
    return SchemaRegistryError(f"cannot {what}: {text}", hint=advice, status=status, **fields)
