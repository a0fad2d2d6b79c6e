"""Schemas with references to other subjects, with rules, and the credentials of a registry's client; with Confluent's client in memory."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Rule, RuleKind, RuleMode, RuleSet, Schema, SchemaReference
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass
from pydantic import BaseModel

from kstreams_repl import serdes
from kstreams_repl.engine.serdes.schemas.schema_registry import Settings, client_of, settings_of
from kstreams_repl.system.errors import SchemaRegistryError, SchemaRegistryUnavailableError, SerializationError

TOPIC = {"subject.name.strategy.type": "TOPIC"}
CONTEXT = SerializationContext("people", "value")
ADDRESS = {"title": "Address", "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PERSON = {"title": "Person", "type": "object", "properties": {"home": {"$ref": "address.json"}}}
POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}


@pytest.fixture
def registry() -> Settings:
    return settings_of(f"mock://{uuid.uuid4()}")


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def test_a_json_schema_names_one_of_another_subject(registry: Settings) -> None:
    client = client_of(registry)
    client.register_schema("address", Schema(json.dumps(ADDRESS), "JSON"))
    uses = Schema(json.dumps(PERSON), "JSON", [SchemaReference("address.json", "address", 1)])
    value = {"home": {"city": "Basel"}}
    theirs = JSONSerializer(uses, client, conf=TOPIC, json_encode=compact)(value, CONTEXT)
    serde = serdes.json_schema(PERSON, references={"address.json": ("address", 1)}).for_topic("people", "value", registry)
    assert serde.serialize(value) == serde.serialize(value) == theirs
    assert serde.deserialize(theirs) == JSONDeserializer(uses, schema_registry_client=client)(theirs, CONTEXT) == value
    assert serdes.registry.for_topic("people", "value", registry).deserialize(theirs) == value
    with pytest.raises(SerializationError, match="'city' is a required property"):
        serde.serialize({"home": {}})
    with pytest.raises(SerializationError, match="'city' is a required property"):
        serde.deserialize(theirs[:5] + b'{"home":{}}')


def people() -> tuple[Any, Any]:
    """The generated classes of two files, of which one imports the other: Person, and Person.Pet nested in it."""
    address, person = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    text, kind = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
    address.name, address.package, address.syntax = "shop/address.proto", "shop", "proto3"
    address.message_type.add(name="Address").field.add(name="city", number=1, type=text, label=1)
    person.name, person.package, person.syntax = "shop/person.proto", "shop", "proto3"
    person.dependency.append(address.name)
    person.message_type.add(name="First")
    message = person.message_type.add(name="Person")
    message.field.add(name="home", number=1, type=kind, type_name=".shop.Address", label=1)
    message.nested_type.add(name="Other")
    message.nested_type.add(name="Pet").field.add(name="name", number=1, type=text, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(address)
    pool.Add(person)
    descriptor = pool.FindMessageTypeByName("shop.Person")
    return GetMessageClass(descriptor), GetMessageClass(descriptor.nested_types_by_name["Pet"])


def test_a_protobuf_class_of_a_file_that_imports_another_is_written_and_read_as_confluents_does(registry: Settings) -> None:
    person, _ = people()
    message = person()
    message.home.city = "Basel"
    theirs = ProtobufSerializer(person, client_of(registry), conf=TOPIC)(message, CONTEXT)
    serde = serdes.protobuf(person).for_topic("people", "value", registry)
    assert serde.serialize(message) == serde.serialize(message) == theirs
    assert serde.deserialize(theirs) == ProtobufDeserializer(person, {"use.deprecated.format": False})(theirs, CONTEXT) == message
    schema = client_of(registry).get_latest_version("people-value").schema
    assert [used.name for used in schema.references] == ["shop/address.proto"]
    assert serdes.registry.for_topic("people", "value", registry).deserialize(theirs) == {"home": {"city": "Basel"}}


def test_a_nested_protobuf_message_has_an_index_for_each_level(registry: Settings) -> None:
    _, pet = people()
    message = pet(name="Rex")
    theirs = ProtobufSerializer(pet, client_of(registry), conf=TOPIC)(message, CONTEXT)
    serde = serdes.protobuf(pet).for_topic("people", "value", registry)
    assert serde.serialize(message) == serde.serialize(message) == theirs
    assert theirs[5:8] == b"\x04\x02\x02", "two indexes, 1 and 1, as zigzag varints"
    assert serde.deserialize(theirs) == message
    assert serdes.registry.for_topic("people", "value", registry).deserialize(theirs) == {"name": "Rex"}


def rules(kind: RuleKind, mode: RuleMode) -> RuleSet:
    rule = Rule(
        name="hide", doc=None, kind=kind, mode=mode, type="ENCRYPT", tags=[], params=None, expr=None, on_success=None,
        on_failure=None, disabled=False,
    )  # fmt: skip
    return RuleSet(migration_rules=[], domain_rules=[rule])


def test_values_that_rules_convert_on_reading_are_refused(registry: Settings) -> None:
    """Encrypted fields would be read as if their ciphertext were the value."""
    schema = Schema(json.dumps(POINT), "AVRO", rule_set=rules(RuleKind.TRANSFORM, RuleMode.WRITEREAD))
    number = client_of(registry).register_schema("points-value", schema)
    data = b"\0" + number.to_bytes(4, "big") + b"\x06"
    for serde in (serdes.registry, serdes.avro(POINT)):
        with pytest.raises(SchemaRegistryError, match=r"converted by rules on reading, which is not supported: hide \(ENCRYPT\)"):
            serde.for_topic("points", "value", registry).deserialize(data)


@pytest.mark.parametrize("kind, mode", [(RuleKind.CONDITION, RuleMode.READ), (RuleKind.TRANSFORM, RuleMode.WRITE)])
def test_rules_that_convert_nothing_on_reading_are_no_hindrance(registry: Settings, kind: RuleKind, mode: RuleMode) -> None:
    number = client_of(registry).register_schema("points-value", Schema(json.dumps(POINT), "AVRO", rule_set=rules(kind, mode)))
    data = b"\0" + number.to_bytes(4, "big") + b"\x06"
    assert serdes.registry.for_topic("points", "value", registry).deserialize(data) == {"x": 3}


def test_a_secret_of_digits_stays_text_and_numbers_may_be_text() -> None:
    oauth = {
        "url": "http://127.0.0.1:1", "max.retries": "0", "timeout": "1", "bearer.auth.credentials.source": "OAUTHBEARER",
        "bearer.auth.client.id": "1234", "bearer.auth.client.secret": "5678", "bearer.auth.scope": "schemas",
        "bearer.auth.issuer.endpoint.url": "http://127.0.0.1:1/token", "bearer.auth.logical.cluster": "1",
    }  # fmt: skip
    serde = serdes.avro(POINT).for_topic("points", "value", settings_of(oauth))
    with pytest.raises(SchemaRegistryUnavailableError, match="Failed to retrieve token"):
        serde.serialize({"x": 1})


class Line(BaseModel):
    name: str
    price: Decimal


class Order(BaseModel):
    day: date
    at: datetime
    lines: list[Line]
    note: str | None = None


@dataclass
class Visit:
    day: date
    pages: list[str]


def test_values_may_be_objects_of_nested_pydantic_models(registry: Settings) -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    line = {"type": "record", "name": "Line", "fields": [{"name": "name", "type": "string"}, {"name": "price", "type": price}]}
    schema = {
        "type": "record", "name": "Order",
        "fields": [
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "lines", "type": {"type": "array", "items": line}},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }  # fmt: skip
    serde = serdes.avro(schema, value_type=Order).for_topic("orders", "value", registry)
    order = Order(day=date(2013, 1, 9), at=datetime(2013, 1, 9, 8, tzinfo=UTC), lines=[Line(name="pen", price=Decimal("1.20"))])
    data = serde.serialize(order)
    assert serde.deserialize(data) == order
    plain = serdes.avro(schema).for_topic("orders", "value", registry)
    assert plain.serialize(order.model_dump()) == data


def test_json_values_may_be_objects_whose_times_are_text(registry: Settings) -> None:
    schema = {"title": "Visit", "type": "object", "properties": {"day": {"type": "string", "format": "date"}, "pages": {"type": "array"}}}
    serde = serdes.json_schema(schema, value_type=Visit).for_topic("visits", "value", registry)
    data = serde.serialize(Visit(date(2013, 1, 9), ["a"]))
    assert data is not None and data[5:] == b'{"day":"2013-01-09","pages":["a"]}'
    assert serde.deserialize(data) == Visit(date(2013, 1, 9), ["a"])


@pytest.mark.parametrize("subject", ["shared", "{topic}.{part}"])
def test_a_subject_may_have_any_name(registry: Settings, subject: str) -> None:
    serdes.avro(POINT, subject=subject).for_topic("points", "key", registry).serialize({"x": 1})
    assert client_of(registry).get_subjects() == [{"shared": "shared"}.get(subject, "points.key")]
