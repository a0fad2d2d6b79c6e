"""Protobuf, with the schema in a Schema Registry."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from io import BytesIO
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from kstreams_repl.engine.serdes.schemas.avro import misfit
from kstreams_repl.engine.serdes.schemas.schema_registry import (
    GUID_PREFIX_BYTES,
    RegistryArguments,
    RegistryOptions,
    expect_whole_id,
    id_of,
    registry_serde,
    shown_id,
    with_id,
)
from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes
from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.extras import extras
from kstreams_repl.system.types import Deserialize, JsonObject

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import SerializationContext
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message


_MAIN = "kstreams_value.proto"


def protobuf(
    message: type | str | None = None,
    *,
    schema: str | None = None,
    **registry: Unpack[RegistryArguments],
) -> Serde:
    """Return a serde of Protobuf messages, with the bytes of Confluent's serializers.

    With a generated class, values are its messages. Otherwise they are dicts: the fields that are set by their names in the schema,
    numbers as numbers, bytes as bytes, enums by name, ``Timestamp`` as `datetime.datetime` in UTC.

    Args:
        message: a generated class; or, with `schema`, the full name of one of its messages (None: the first). Without both, values can
            only be read, as dicts, by the writer's schema.
        schema: the text of a ``.proto`` file without imports, except those of ``google/protobuf``.
        registry: address of the registry, or the settings of its client; None: that of the application or session.
        subject: ``"topic"`` (the topic's name and ``-key`` or ``-value``), ``"record"``, ``"topic_record"``, or a name.
        auto_register: register the schema when it is first used; default true.
        use_latest: write with the id of the subject's newest schema when the task starts, register nothing.
        normalize: let the registry normalise schemas before it compares them.
        schema_id_serializer: ``"prefix"``: the schema's id is in front of the payload; ``"header"``: its GUID is in a header of the record.

    Raises:
        ConfigError: `schema` cannot be compiled, or has no such message.
        SerializationError: when used, for a value that is not such a message, or bytes that contain none.

    Example:
        >>> from kstreams_repl import serdes
        >>> point = serdes.protobuf(schema='syntax = "proto3"; message Point { int64 x = 1; }')
        >>> point.name
        'protobuf'
    """
    if isinstance(message, type):
        name = None
        if schema is not None:
            raise ConfigError("a generated class has its own schema", hint="leave schema= out, or give the message's name")
    else:
        name, message = message, None
        if name is not None and schema is None:
            raise ConfigError(f"the message {name!r} needs schema=, the text of its .proto file", hint="or give the generated class")
    if schema is not None:
        compiled(schema, name)
    return registry_serde(ProtobufFormat(message, name, schema, RegistryOptions.of(registry)))


@dataclass(frozen=True, slots=True)
class ProtobufFormat:
    """Protobuf with a registry (`schema_registry.SchemaFormat`)."""

    message: type | None
    message_name: str | None
    schema: str | None
    options: RegistryOptions
    name = "protobuf"

    @property
    def text(self) -> str:
        if self.message is None:
            return "" if self.schema is None else f"{self.message_name or ''} of {self.schema}"
        descriptor: Descriptor = self.message.DESCRIPTOR  # type: ignore[attr-defined]
        return f"{descriptor.full_name} of {descriptor.file.serialized_pb!r}"

    @property
    def record_schema(self) -> tuple[str, ...] | None:
        if self.schema is None:
            return None
        return (self.name, self.schema) if self.message_name is None else (self.name, self.schema, self.message_name)

    def registered(self, client: SchemaRegistryClient, context: SerializationContext) -> tuple[str, Schema]:
        with extras():
            from confluent_kafka.schema_registry import Schema
            from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

        assert self.message is not None or self.schema is not None
        kind: Any = self.message or compiled(str(self.schema), self.message_name)
        settings = {**self.options.library_settings(), "auto.register.schemas": False}  # a question registers nothing
        library = ProtobufSerializer(kind, client, conf=settings)
        uses = library._resolve_dependencies(context, kind.DESCRIPTOR.file)
        subject = str(library._subject_name_func(context, kind.DESCRIPTOR.full_name))
        return subject, Schema(library._schema.schema_str, "PROTOBUF", uses)

    def writer(self, client: SchemaRegistryClient, context: SerializationContext) -> Callable[[object], bytes]:
        with extras():
            from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

        kind: Any = self.message
        if kind is None:
            if self.schema is None:
                hint = "protobuf(Message), or protobuf(schema=...)"
                raise ConfigError("protobuf() without a message reads only", hint=hint, key="message")
            kind = compiled(self.schema, self.message_name)
        library = ProtobufSerializer(kind, client, conf=self.options.library_settings())
        prefix = self._newest(library, client, context) if self.options.use_latest else None
        dicts, call = self.message is None, with_id(library, context, self.options)

        def write(value: Any) -> bytes:
            nonlocal prefix
            try:
                message = kind(**value) if dicts and not isinstance(value, kind) else value
                if prefix is not None and type(message) is kind:
                    return bytes(prefix + message.SerializeToString())
                data = call(message)
            except (ValueError, TypeError, AttributeError) as error:
                raise misfit("protobuf", value, error) from error
            prefix = data[: len(data) - message.ByteSize()]
            return data

        return write

    def _newest(self, library: ProtobufSerializer, client: SchemaRegistryClient, context: SerializationContext) -> bytes | None:
        """Return the prefix with the subject's newest schema; None if it has rules, which the library applies value by value."""
        name = library._msg_class.DESCRIPTOR.full_name
        latest = client.get_latest_version(library._subject_name_func(context, name))
        if latest.schema.rule_set is not None:
            return None
        out = BytesIO(id_of(latest, self.options))
        out.seek(0, 2)
        library._encode_varints(out, library._index_array, zigzag=True)
        return out.getvalue()

    def reader(self, client: SchemaRegistryClient, schema: Schema, prefix: bytes) -> Deserialize:
        if schema.schema_type != "PROTOBUF":
            raise wrong_bytes("protobuf", prefix, f"a Protobuf value, not one of {schema.schema_type or 'AVRO'}")
        own: Any = self.message or (compiled(self.schema, self.message_name) if self.schema is not None else None)
        begin, dicts = len(prefix), self.message is None
        kinds: dict[tuple[int, ...], tuple[type[Message], Callable[[Message], JsonObject]]] = {}

        def read(data: bytes) -> object:
            indexes, start = _indexes(data, begin)
            expect_whole_id("protobuf", data, start)
            found = kinds.get(indexes)
            if found is None:
                kind = own
                if own is None or indexes != _indexes_of(own.DESCRIPTOR):
                    kind = _message_at(descriptor(client, schema), indexes, own, data)
                found = kinds[indexes] = kind, dict_of(kind.DESCRIPTOR)
            try:
                message = found[0].FromString(bytes(data[start:]))
            except Exception as error:
                raise wrong_bytes("protobuf", data, f"a message of schema {shown_id(prefix)} ({error})") from error
            return found[1](message) if dicts else message

        return read

    def id_size(self, data: bytes) -> int:
        return _indexes(data, GUID_PREFIX_BYTES)[1]


def _indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Return the indexes of the message in its file, and where the message begins; one byte 0 is the first message."""
    if data[position : position + 1] == b"\0":
        return (0,), position + 1
    count, position = _varint(data, position)
    if count == 0:
        return (0,), position
    indexes = []
    for _ in range(max(count, 1)):  # a negative count ends below; each index takes a byte, so a large one at the end of the data
        index, position = _varint(data, position)
        indexes.append(index)
    if count < 0 or min(indexes) < 0:
        raise wrong_bytes("protobuf", data, "message indexes >= 0 after the schema id")
    return tuple(indexes), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise wrong_bytes("protobuf", data, "message indexes after the schema id")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


# ---- schemas


@cache
def compiled(schema: str, message: str | None) -> Any:
    """Return the message class of a .proto text.

    Raises:
        ConfigError: it cannot be compiled, or has no such message.
    """
    pool, name = _pool_of(((_MAIN, schema),))
    file = pool.FindFileByName(name)
    try:
        descriptor = pool.FindMessageTypeByName(message) if message else next(iter(file.message_types_by_name.values()))
    except (KeyError, StopIteration) as error:
        names = ", ".join(kind.full_name for kind in file.message_types_by_name.values())
        raise ConfigError(f"the schema has no message {message or ''}".rstrip(), hint=f"it has {names or 'none'}", key="message") from error
    return _class_of(descriptor)


@cache
def _pool_of(files: tuple[tuple[str, str], ...]) -> tuple[DescriptorPool, str]:
    """Compile .proto texts, or descriptors in base64 as Confluent's serializers register them; return their pool and the last name."""
    with extras():
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError

    texts, file_set = [], descriptor_pb2.FileDescriptorSet()
    for name, text in files:
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
            file.name = name
            file_set.file.append(file)
        except (binascii.Error, DecodeError):
            texts.append((name, text))
    if texts:
        file_set.MergeFrom(_protoc(texts))
    pool = descriptor_pool.DescriptorPool()
    names = {file.name for file in file_set.file}
    for file in file_set.file:
        for needed in file.dependency:
            if needed not in names:
                names.add(needed)
                _add_known(pool, needed)
        pool.Add(file)
    return pool, files[-1][0]


def _add_known(pool: DescriptorPool, name: str) -> None:
    """Add a file that ships with protobuf, with those that it imports."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    __import__(module)
    file = descriptor_pool.Default().FindFileByName(name)
    copy = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(copy)
    for needed in copy.dependency:
        _add_known(pool, needed)
    pool.Add(copy)


def _protoc(texts: Sequence[tuple[str, str]]) -> FileDescriptorSet:
    """Compile .proto texts by protoc."""
    with extras():
        import grpc_tools
        from google.protobuf import descriptor_pb2
        from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as scratch:
        where, out = Path(scratch), Path(scratch, "set.bin")
        for name, text in texts:
            path = where / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        included = Path(grpc_tools.__file__).with_name("_proto")
        names = [name for name, _ in texts]
        code = protoc.main(["protoc", f"-I{where}", f"-I{included}", f"--descriptor_set_out={out}", "--include_imports", *names])
        if code:
            raise ConfigError("this is not a .proto file: protoc cannot compile it (its messages are on standard error)", key="schema")
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def descriptor(client: SchemaRegistryClient, schema: Schema) -> FileDescriptor:
    """Return the compiled file of a schema in the registry, with those that it refers to."""
    files: dict[str, str] = {}

    def collect(one: Schema) -> None:
        for used in one.references or ():
            if used.name not in files:
                referenced = client.get_version(used.subject, used.version, True).schema
                collect(referenced)
                files[used.name] = referenced.schema_str

    collect(schema)
    pool, name = _pool_of((*files.items(), (_MAIN, schema.schema_str)))
    return pool.FindFileByName(name)


def _message_at(file: FileDescriptor, indexes: tuple[int, ...], own: type[Message] | None, data: bytes) -> Any:
    """Return the class of the message that indexes name in the writer's file; `own`, if it is that message or one that the file lacks."""
    kinds: Sequence[Descriptor] = list(file.message_types_by_name.values())
    kind = None
    for index in indexes:
        if index >= len(kinds):
            raise wrong_bytes("protobuf", data, f"a message of its file; it has no message at {list(indexes)}")
        kind = kinds[index]
        kinds = list(kind.nested_types)
    if own is None:
        return _class_of(kind)
    name = own.DESCRIPTOR.full_name
    if kind.full_name != name and _has(file.pool, name):  # type: ignore[union-attr]
        raise wrong_bytes("protobuf", data, f"the message {name}, not {kind.full_name}")  # type: ignore[union-attr]
    return own


def _has(pool: DescriptorPool, name: str) -> bool:
    try:
        pool.FindMessageTypeByName(name)
    except KeyError:
        return False
    return True


def _indexes_of(message: Descriptor) -> tuple[int, ...]:
    """Return where a message is in its own file."""
    outer = message.containing_type
    kinds = message.file.message_types_by_name.values() if outer is None else outer.nested_types
    return (*(() if outer is None else _indexes_of(outer)), [kind.full_name for kind in kinds].index(message.full_name))


def _class_of(descriptor: Descriptor) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(descriptor)


# ---- dicts


@cache
def dict_of(descriptor: Descriptor) -> Callable[[Message], JsonObject]:
    """Return the function from a message to its fields that are set, or have a default, as Python values."""
    names = [field.name for field in descriptor.fields]
    if len(names) > 1 and all(_is_scalar(field) and not field.has_presence for field in descriptor.fields):
        values_of = attrgetter(*names)
        return lambda message: dict(zip(names, values_of(message), strict=True))
    steps = [(field.name, field.has_presence, None if _is_scalar(field) else _converter(field)) for field in descriptor.fields]

    def convert(message: Message) -> JsonObject:
        found = {}
        for name, has_presence, plain in steps:
            if not has_presence or message.HasField(name):
                value = getattr(message, name)
                found[name] = value if plain is None else plain(value)
        return found

    return convert


def _is_scalar(field: FieldDescriptor) -> bool:
    return field.message_type is None and field.enum_type is None and not field.is_repeated


def _converter(field: FieldDescriptor) -> Callable[[Any], object]:
    """Return the function from the value of an enum, a message, a list or a map to a Python value."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        plain = _plain(field.message_type.fields_by_name["value"])
        return lambda value: {key: plain(item) for key, item in value.items()}
    plain = _plain(field)
    return (lambda value: [plain(item) for item in value]) if field.is_repeated else plain


def _plain(field: FieldDescriptor) -> Callable[[Any], object]:
    """Return the function from one value of a field to a Python value."""
    if field.enum_type is not None:
        names = {number: constant.name for number, constant in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, value)
    kind = field.message_type
    if kind is None:
        return lambda value: value
    return _SPECIAL.get(kind.full_name) or (lambda value: dict_of(kind)(value))  # looked up when used: a message may contain itself


_SPECIAL: dict[str, Callable[[Any], object]] = {
    "google.protobuf.Timestamp": lambda value: value.ToDatetime(tzinfo=UTC),
    "google.protobuf.Duration": lambda value: value.ToTimedelta(),
    **{
        f"google.protobuf.{kind}Value": lambda value: value.value
        for kind in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
    },
}
