"""Serdes with a real Schema Registry: the bytes of Confluent's own serializers, versions, errors, and topics read without being told."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import SerializationContext
from google.protobuf.type_pb2 import Field

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.serdes.schemas.schema_registry import Settings, default_registry, settings_of, use_by_default
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.embedded.registry import EmbeddedRegistry
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.serving.remote.discovery import Discovery
from kstreams_repl.system.errors import ConfigError, SchemaRegistryError, SchemaRegistryUnavailableError, SerializationError
from tests.kafka.registry_gate import RegistryGate
from tests.kafka.schema_evolutions import PROTO
from tests.unit.serving.serving import Journal

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # on a new machine the first one fetches the registry

ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    ],
}
VALUE = {
    "id": 7, "note": None, "price": Decimal("12.50"), "day": date(2013, 1, 9), "at": datetime(2013, 1, 9, 8, 30, 0, 5, UTC),
    "token": UUID("12345678-1234-5678-1234-567812345678"), "tags": {"a": [1, 2]}, "state": "PAID",
}  # fmt: skip
FLAT = {"title": "Point", "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
STRATEGIES = {"topic": "TOPIC", "record": "RECORD", "topic_record": "TOPIC_RECORD"}


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@pytest.fixture
def address(registry: EmbeddedRegistry) -> Settings:
    return settings_of(registry.url)


@pytest.fixture
def client(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("subject", STRATEGIES)
def test_avro_has_the_bytes_of_confluents_serializer(
    address: Settings, client: SchemaRegistryClient, name: str, subject: str, part: Any
) -> None:
    conf, context = {"subject.name.strategy.type": STRATEGIES[subject]}, SerializationContext(name, part)
    theirs = AvroSerializer(client, json.dumps(ORDER), conf=conf)(VALUE, context)
    serde = serdes.avro(ORDER, subject=subject).for_topic(name, part, address)
    assert serde.serialize(VALUE) == serde.serialize(VALUE) == theirs
    assert serde.deserialize(theirs) == AvroDeserializer(client, conf=conf)(serde.serialize(VALUE), context) == VALUE
    assert serdes.registry.for_topic(name, part, address).deserialize(theirs) == VALUE


def test_avro_with_a_reference_to_another_subject(address: Settings, client: SchemaRegistryClient, name: str) -> None:
    client.register_schema(f"{name}-address", Schema(json.dumps(ADDRESS), "AVRO"))
    person = {"type": "record", "name": "Person", "namespace": "shop", "fields": [{"name": "home", "type": "shop.Address"}]}
    uses = [SchemaReference("shop.Address", f"{name}-address", 1)]
    conf = {"subject.name.strategy.type": "TOPIC"}
    theirs = AvroSerializer(client, Schema(json.dumps(person), "AVRO", uses), conf=conf)
    serde = serdes.avro(person, references={"shop.Address": (f"{name}-address", 1)}).for_topic(name, "value", address)
    value = {"home": {"city": "Basel"}}
    assert serde.serialize(value) == serde.serialize(value) == theirs(value, SerializationContext(name, "value"))
    assert serde.deserialize(serde.serialize(value)) == value
    assert serdes.registry.for_topic(name, "value", address).deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("subject", STRATEGIES)
def test_protobuf_has_the_bytes_of_confluents_serializer(
    address: Settings, client: SchemaRegistryClient, name: str, subject: str, part: Any
) -> None:
    """A generated class that is not the first of its file, with messages of other files."""
    conf, context = {"subject.name.strategy.type": STRATEGIES[subject]}, SerializationContext(name, part)
    message = Field(name="x", number=3, kind=Field.TYPE_INT64)
    theirs = ProtobufSerializer(Field, client, conf=conf)(message, context)
    serde = serdes.protobuf(Field, subject=subject).for_topic(name, part, address)
    assert serde.serialize(message) == serde.serialize(message) == theirs
    assert serde.deserialize(theirs) == ProtobufDeserializer(Field, {"use.deprecated.format": False})(theirs, context) == message


def test_protobuf_as_dicts_by_the_text_of_its_schema(address: Settings, client: SchemaRegistryClient, name: str) -> None:
    value = {
        "id": 2**40, "items": [{"name": "a", "raw": b"\xff"}], "prices": {"k": 2.5}, "at": datetime(2013, 1, 9, 8, tzinfo=UTC),
        "state": "PAID", "left": 0,
    }  # fmt: skip
    client.register_schema(f"{name}-value", Schema(PROTO, "PROTOBUF"))
    serde = serdes.protobuf("shop.Line", schema=PROTO, use_latest=True).for_topic(name, "value", address)
    data = serde.serialize(value)
    assert data is not None and data[5:7] == b"\x02\x02"  # one index, 1: the second message, as zigzag varints
    assert serde.deserialize(data) == value
    assert serdes.registry.for_topic(name, "value", address).deserialize(data) == value
    assert serdes.registry.for_topic(name, "value", address).deserialize(data[:5] + b"\x00\x08\x05") == {"n": 5}
    with pytest.raises(SerializationError, match="message indexes|message of its file"):
        serdes.registry.for_topic(name, "value", address).deserialize(data[:5] + b"\x02\x08\x00")


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("subject", STRATEGIES)
def test_json_schema_has_the_bytes_of_confluents_serializer(
    address: Settings, client: SchemaRegistryClient, name: str, subject: str, part: Any
) -> None:
    conf, context = {"subject.name.strategy.type": STRATEGIES[subject]}, SerializationContext(name, part)
    compact = lambda value: json.dumps(value, separators=(",", ":"))  # noqa: E731 - Jackson's form, as the JVM writes it
    theirs = JSONSerializer(json.dumps(FLAT), client, conf=conf, json_encode=compact)({"x": 3}, context)
    serde = serdes.json_schema(FLAT, subject=subject).for_topic(name, part, address)
    assert serde.serialize({"x": 3}) == theirs
    assert serde.deserialize(theirs) == JSONDeserializer(json.dumps(FLAT), schema_registry_client=client)(theirs, context) == {"x": 3}
    with pytest.raises(SerializationError, match="'x' is a required property"):
        serde.serialize({})
    broken = theirs[:5] + b'{"x":"three"}'
    with pytest.raises(SerializationError, match="does not follow its JSON Schema"):
        serde.deserialize(broken)
    assert serdes.json_schema(FLAT, validate=False).for_topic(name, part, address).deserialize(broken) == {"x": "three"}


@dataclasses.dataclass
class Point:
    x: int
    label: str = "none"


def test_values_may_be_objects_and_old_values_have_the_fields_of_the_new_schema(address: Settings, name: str) -> None:
    first = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "long"}]}
    label = {"name": "label", "type": "string", "default": "none"}
    old = serdes.avro(first).for_topic(name, "value", address).serialize({"x": 1})
    assert old is not None
    serde = serdes.avro({**first, "fields": [*first["fields"], label]}, value_type=Point).for_topic(name, "value", address)
    assert serde.deserialize(old) == Point(1, "none")
    assert serde.deserialize(serde.serialize(Point(2, "b"))) == Point(2, "b")
    assert serdes.registry.for_topic(name, "value", address).deserialize(old) == {"x": 1}  # as it was written


def test_what_the_registry_refuses_is_told(address: Settings, client: SchemaRegistryClient, name: str) -> None:
    point = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}
    client.register_schema(f"{name}-value", Schema(json.dumps(point), "AVRO"))
    client.set_compatibility(f"{name}-value", "BACKWARD")
    other = {"type": "record", "name": "P", "fields": [{"name": "y", "type": "string"}]}
    with pytest.raises(SchemaRegistryError, match="write a value of"):
        serdes.avro(other).for_topic(name, "value", address).serialize({"y": "a"})
    with pytest.raises(SerializationError, match="does not have it"):
        serdes.avro(other, auto_register=False).for_topic(f"{name}-2", "value", address).serialize({"y": "a"})
    with pytest.raises(SerializationError, match="schema 999999"):
        serdes.registry.for_topic(name, "value", address).deserialize(b"\0" + (999999).to_bytes(4, "big") + b"x")
    with pytest.raises(ConfigError, match="no Schema Registry"):
        serdes.avro(point).for_topic(name).serialize({"x": 1})
    with pytest.raises(SerializationError, match="without a topic"):
        serdes.avro(point, registry=dict(address)).serialize({"x": 1})
    with pytest.raises(SerializationError, match="cannot write this dict"):
        serdes.avro(point).for_topic(f"{name}-3", "value", address).serialize({"x": "three"})


def counting(name: str) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    point = serdes.avro({"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]})
    total = serdes.avro({"type": "record", "name": "Total", "fields": [{"name": "sum", "type": "long"}]})
    stream = builder.stream(name, key_serde="string", value_serde=point)
    table = stream.group_by_key().aggregate(
        lambda: {"sum": 0}, lambda key, value, so_far: {"sum": so_far["sum"] + value["x"]},
        store="totals", key_serde="string", value_serde=total,
    )  # fmt: skip
    table.to_stream().to(f"{name}-out", key_serde="string", value_serde=total)
    return builder


def test_each_topic_and_changelog_has_its_subject(registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str) -> None:
    config = {"application.id": f"app-{name}", "schema.registry.url": registry.url}
    with ks.testing.TopologyTestDriver(counting(name), config) as driver:
        point = serdes.avro({"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]})
        source = driver.create_input_topic(name, "string", point)
        for x in (1, 2, 3):
            source.pipe_input("a", {"x": x})
        out = driver.create_output_topic(f"{name}-out", "string", "registry").read_values()
    assert out == [{"sum": 1}, {"sum": 3}, {"sum": 6}]
    assert {f"{name}-value", f"{name}-out-value", f"app-{name}-totals-changelog-value"} <= set(client.get_subjects())


def test_keys_and_values_of_a_foreign_key_join_have_kafka_streams_subjects(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str
) -> None:
    order_id, customer_id, order, customer = (
        serdes.avro({"type": "record", "name": kind, "fields": [{"name": "id", "type": "long"}, *more]})
        for kind, more in (
            ("OrderId", []), ("CustomerId", []),
            ("Order", [{"name": "customer", "type": "long"}]), ("Customer", [{"name": "name", "type": "string"}]),
        )
    )  # fmt: skip
    builder = ks.StreamsBuilder()
    orders = builder.table(f"{name}-orders", key_serde=order_id, value_serde=order)
    customers = builder.table(f"{name}-customers", key_serde=customer_id, value_serde=customer)
    joined = orders.join(
        customers,
        lambda one, other: f"{one['id']}:{other['name']}",
        foreign_key=lambda value: {"id": value["customer"]},
        name="bought",
    )
    joined.to_stream().to(f"{name}-out", key_serde=order_id, value_serde="string")
    config = {"application.id": f"app-{name}", "schema.registry.url": registry.url}
    with ks.testing.TopologyTestDriver(builder, config) as driver:
        left = driver.create_input_topic(f"{name}-orders", order_id, order)
        right = driver.create_input_topic(f"{name}-customers", customer_id, customer)
        left.pipe_input({"id": 1}, {"id": 1, "customer": 7})
        right.pipe_input({"id": 7}, {"id": 7, "name": "Ann"})
        left.pipe_input({"id": 2}, {"id": 2, "customer": 7})
        right.pipe_input({"id": 7}, {"id": 7, "name": "Bea"})
        out = driver.create_output_topic(f"{name}-out", order_id, "string")
        found = [(record.key["id"], record.value) for record in out.read_records()]
    assert found[:2] == [(1, "1:Ann"), (2, "2:Ann")] and sorted(found[2:]) == [(1, "1:Bea"), (2, "2:Bea")]
    registration = f"app-{name}-bought-subscription-registration-topic"
    assert {f"{registration}-fk-key", f"{registration}-pk-key", f"{registration}-vh-value"} <= set(client.get_subjects())


def test_a_key_with_a_schema_leads_to_its_partition(registry: EmbeddedRegistry, name: str) -> None:
    """Also by a serde that the caller names: its bytes depend on the id of the schema."""
    key = serdes.avro({"type": "record", "name": "Id", "fields": [{"name": "id", "type": "long"}]})
    builder = ks.StreamsBuilder()
    builder.stream(name, key_serde=key, value_serde="string").group_by_key().count(store="counts")
    config = StreamsConfig({"application.id": f"app-{name}", "schema.registry.url": registry.url})
    topology = builder.build()
    journal = Journal().assign({"0": tuple(f"0_{number}" for number in range(4))})
    discovery = Discovery(f"app-{name}", topology.subtopologies(), topology.internal_topics, config, lambda: journal.state)
    keys = [{"id": number} for number in range(40)]
    written = key.for_topic(name, "key", settings_of(registry.url)).serialize
    wanted = [partition_for_key(written(one) or b"", 4) for one in keys]
    assert len(set(wanted)) == 4
    for serializer in (None, key):
        assert [discovery.query_metadata_for_key("counts", one, serializer=serializer).partition for one in keys] == wanted
    by_partition = discovery.keys_by_partition("counts", keys)
    assert {number: len(group) for number, group in by_partition.items()} == {number: wanted.count(number) for number in range(4)}


def test_a_registry_that_fails_twice_is_asked_a_third_time(registry: EmbeddedRegistry, name: str) -> None:
    with RegistryGate(registry.url) as gate:
        gate.failures = 2
        point = serdes.avro({"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]})
        bound = point.for_topic(name, "value", settings_of(gate.url))
        data = bound.serialize({"x": 1})
        assert data is not None and bound.deserialize(data) == {"x": 1}
        assert [status for _, _, status in gate.requests[:3]] == [503, 503, 200]


@pytest.mark.slow
def test_no_handler_skips_records_because_the_registry_is_down(name: str) -> None:
    """The records would be lost for good, though nothing is wrong with them."""
    with EmbeddedRegistry() as mortal:
        point = serdes.avro({"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]})
        data = point.for_topic(name, "value", settings_of(mortal.url)).serialize({"x": 1})
        os.kill(mortal.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while mortal.is_alive:
            assert time.monotonic() < deadline, "the registry has not ended"
            time.sleep(0.01)
        config = {
            "application.id": f"app-{name}", "schema.registry.url": mortal.url, "schema.registry.max.retries": 0,
            "deserialization.exception.handler": "continue", "production.exception.handler": "continue",
            "processing.exception.handler": "continue",
        }  # fmt: skip
        with ks.testing.TopologyTestDriver(counting(name), config) as driver:
            with pytest.raises(SchemaRegistryUnavailableError, match="does not answer"):
                driver.create_input_topic(name, "string").pipe_input("a", data)


@pytest.fixture
def session(broker: Any, registry: EmbeddedRegistry, tmp_path: Path) -> Iterator[ks.Session]:
    before = default_registry()
    use_by_default(settings_of(registry.url))
    settings = {"schema.registry.url": registry.url}
    with ks.Session(ClientSettings(broker.bootstrap_servers), config=settings, directory=SessionDirectory(tmp_path)) as session:
        yield session
    use_by_default(before)


def test_a_topic_of_several_formats_and_versions_is_read_without_being_told(session: ks.Session, name: str) -> None:
    fields: list[Any] = [{"name": "id", "type": "long"}]
    for version in range(4):
        if version:
            fields.append({"name": f"v{version}", "type": ["null", "string"], "default": None})
        serde = serdes.avro({"type": "record", "name": "Row", "fields": fields})
        session.produce(name, [(f"k{version}", {"id": version, **{f"v{n}": "s" for n in range(1, version + 1)}}, 1000 + version)],
                        value_serde=serde)  # fmt: skip
    session.client.serdes = type(session.client.serdes)()  # as a session that has not produced it
    records = session.read(name)
    assert [record.value["id"] for record in records] == [0, 1, 2, 3]
    result = session.sql(f'SELECT key, value.id, value.v1, value.v3 FROM "{name}" ORDER BY key')
    assert result.fetchall() == [("k0", 0, None, None), ("k1", 1, "s", None), ("k2", 2, "s", None), ("k3", 3, "s", "s")]
    assert "STRUCT(id BIGINT" in str(session.schema(name))


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
AT = {"type": "long", "logicalType": "timestamp-micros"}
CITY: dict[str, Any] = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
ZIP = {**CITY, "fields": [*CITY["fields"], {"name": "zip", "type": ["null", "string"], "default": None}]}


def test_one_query_over_five_writer_versions_has_typed_columns_of_all_of_them(session: ks.Session, client: Any, name: str) -> None:
    """A number becomes wider, decimals, times and a struct are added, the struct grows: each record with the schema of its time."""
    optional = lambda kind: {"type": ["null", kind], "default": None}  # noqa: E731
    price, at = {"name": "price", **optional(MONEY)}, {"name": "at", **optional(AT)}
    versions: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
        ([{"name": "id", "type": "int"}], {"id": 1}),
        ([{"name": "id", "type": "long"}, price], {"id": 2**40, "price": Decimal("12.50")}),
        ([{"name": "id", "type": "long"}, price, at],
         {"id": 3, "price": Decimal("99999999.99"), "at": datetime(2013, 1, 9, 8, 30, tzinfo=UTC)}),
        ([{"name": "id", "type": "long"}, price, at, {"name": "home", **optional(CITY)}],
         {"id": 4, "price": None, "at": None, "home": {"city": "Basel"}}),
        ([{"name": "id", "type": "long"}, price, at, {"name": "home", **optional(ZIP)}],
         {"id": 5, "price": Decimal("0.05"), "at": None, "home": {"city": "Bern", "zip": "3000"}}),
    ]  # fmt: skip
    for number, (fields, value) in enumerate(versions):
        serde = serdes.avro({"type": "record", "name": "Order", "fields": fields})
        session.produce(name, [(f"k{number}", value, 1000 + number)], value_serde=serde, partitions=2)
    assert client.get_versions(f"{name}-value") == [1, 2, 3, 4, 5]
    session.client.serdes = type(session.client.serdes)()
    kinds = session.sql(f'''SELECT DISTINCT typeof(value.id), typeof(value.price), typeof(value.at), typeof(value.home) FROM "{name}"''')
    assert kinds.fetchall() == [("BIGINT", "DECIMAL(10,2)", "TIMESTAMP WITH TIME ZONE", "STRUCT(city VARCHAR, zip VARCHAR)")]
    rows = session.sql(f'''SELECT value.id, value.price, value.home.city, value.home.zip FROM "{name}" ORDER BY key''').fetchall()
    assert rows == [
        (1, None, None, None), (2**40, Decimal("12.50"), None, None), (3, Decimal("99999999.99"), None, None),
        (4, None, "Basel", None), (5, Decimal("0.05"), "Bern", "3000"),
    ]  # fmt: skip
    at_time = "max(value.at) = TIMESTAMPTZ '2013-01-09 08:30:00+00'"
    assert session.sql(f'SELECT sum(value.price), {at_time} FROM "{name}"').fetchall() == [(Decimal("100000012.54"), True)]


def test_one_query_over_five_protobuf_versions_has_the_fields_of_all_of_them(session: ks.Session, client: Any, name: str) -> None:
    """A text, a time, a nested message and a list are added; what a writer's version does not have is NULL, not proto3's default."""
    fields = (
        "int32 id = 1;", "string note = 2;", "google.protobuf.Timestamp at = 3;", "message Address { string city = 1; } Address home = 4;",
        "repeated string tags = 5;",
    )  # fmt: skip
    at = datetime(2013, 1, 9, 8, 30, tzinfo=UTC)
    values: list[dict[str, Any]] = [
        {"id": 1}, {"id": 2, "note": "n"}, {"id": 3, "at": at}, {"id": 4, "home": {"city": "Basel"}}, {"id": 5, "tags": ["a", "b"]},
    ]  # fmt: skip
    for number, value in enumerate(values):
        imported = 'import "google/protobuf/timestamp.proto"; ' if number > 1 else ""
        text = f'syntax = "proto3"; package shop; {imported}message Order {{ {" ".join(fields[: number + 1])} }}'
        session.produce(name, [(f"k{number}", value, 1000 + number)], value_serde=serdes.protobuf(schema=text, message="shop.Order"))
    assert client.get_versions(f"{name}-value") == [1, 2, 3, 4, 5]
    session.client.serdes = type(session.client.serdes)()
    kinds = ", ".join(f"typeof(value.{field})" for field in ("id", "note", '"at"', "home", "tags"))
    assert session.sql(f'SELECT DISTINCT {kinds} FROM "{name}"').fetchall() == [
        ("BIGINT", "VARCHAR", "TIMESTAMP WITH TIME ZONE", "STRUCT(city VARCHAR)", "VARCHAR[]")
    ]
    rows = session.sql(f'''SELECT value.id, value.note, epoch(value."at"), value.home.city, value.tags FROM "{name}" ORDER BY key''')
    assert rows.fetchall() == [
        (1, None, None, None, None), (2, "n", None, None, None), (3, "", at.timestamp(), None, None), (4, "", None, "Basel", None),
        (5, "", None, None, ["a", "b"]),
    ]  # fmt: skip


def test_one_query_over_five_json_schemas_has_the_fields_of_all_of_them(session: ks.Session, client: Any, name: str) -> None:
    properties = {
        "id": {"type": "integer"}, "note": {"type": "string"}, "price": {"type": "number"},
        "home": {"type": "object", "properties": {"city": {"type": "string"}}}, "tags": {"type": "array", "items": {"type": "string"}},
    }  # fmt: skip
    values: list[dict[str, Any]] = [
        {"id": 1}, {"id": 2, "note": "n"}, {"id": 2**40, "price": 2.5}, {"id": 4, "home": {"city": "Basel"}}, {"id": 5, "tags": ["a"]},
    ]  # fmt: skip
    for number, value in enumerate(values):
        schema = {"title": "Order", "type": "object", "properties": dict(list(properties.items())[: number + 1]), "required": ["id"]}
        session.produce(name, [(f"k{number}", value, 1000 + number)], value_serde=serdes.json_schema(schema))
    assert client.get_versions(f"{name}-value") == [1, 2, 3, 4, 5]
    session.client.serdes = type(session.client.serdes)()
    kinds = ", ".join(f"typeof(value.{field})" for field in properties)
    assert session.sql(f'SELECT DISTINCT {kinds} FROM "{name}"').fetchall() == [
        ("BIGINT", "VARCHAR", "DOUBLE", "STRUCT(city VARCHAR)", "VARCHAR[]")
    ]
    rows = session.sql(f'''SELECT value.id, value.note, value.price, value.home.city, value.tags FROM "{name}" ORDER BY key''').fetchall()
    assert rows == [
        (1, None, None, None, None), (2, "n", None, None, None), (2**40, None, 2.5, None, None), (4, None, None, "Basel", None),
        (5, None, None, None, ["a"]),
    ]  # fmt: skip


def test_a_source_without_a_serde_reads_what_the_registry_says(session: ks.Session, name: str) -> None:
    serde = serdes.avro(ORDER)
    session.produce(name, [("a", VALUE, 1000)], value_serde=serde)
    session.client.serdes = type(session.client.serdes)()
    builder = ks.StreamsBuilder()
    prices = builder.stream(name).map_values(lambda value: value["price"] * 2)
    assert "25.00" in repr(session.values(prices))


def test_a_source_without_a_serde_reads_what_the_session_produced_with_a_schema(session: ks.Session, name: str) -> None:
    """The session remembers a serde that has no name, which a recorded setting cannot keep: the registry's stands for it."""
    point = serdes.avro({"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]})
    session.produce(name, [("a", {"x": 21})], key_serde="string", value_serde=point)
    builder = ks.StreamsBuilder()
    assert "42" in repr(session.values(builder.stream(name, key_serde="string").map_values(lambda value: value["x"] * 2)))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_deployed_application_waits_for_a_registry_that_is_down_and_loses_nothing(broker: Any, tmp_path: Path, name: str) -> None:
    """The schema of half of the records, and that of the output, are asked for while the registry is down."""
    with EmbeddedRegistry(tmp_path / "registry") as mortal:
        address = settings_of(mortal.url)
        settings = {"schema.registry.url": mortal.url, "processing.guarantee": "exactly_once_v2"}
        settings["deserialization.exception.handler"] = "continue"
        with ks.Session(ClientSettings(broker.bootstrap_servers), config=settings, directory=SessionDirectory(tmp_path)) as session:
            old, new = ([{"name": "x", "type": "long"}, *more] for more in ([], [{"name": "y", "type": "long", "default": 0}]))
            for number, fields in enumerate((old, new)):
                serde = serdes.avro({"type": "record", "name": "P", "fields": fields}).for_topic(name, "value", address)
                session.produce(name, [("a", {"x": 1, "y": 1}, number * 100 + n) for n in range(100)], value_serde=serde, partitions=1)
            session.create_topic(f"{name}-out", partitions=1)
            os.kill(mortal.pid, signal.SIGKILL)
            app = session.deploy(counting(name), f"app-{name}")
            time.sleep(8)
            assert app.error is None and app.status != "failed"
            assert len(session.read(f"{name}-out")) == 0
            mortal.start()
            assert app.wait(120), repr(app)
            last = session.read(f"{name}-out", value_serde=serdes.registry.for_topic(f"{name}-out", "value", address))[-1]
            app.stop()
        assert last.value == {"sum": 200}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_running_application_outlasts_a_registry_that_goes_away_and_is_slow_when_it_comes_back(
    broker: Any, registry: EmbeddedRegistry, tmp_path: Path, name: str
) -> None:
    """Schemas that it knows go on; a new one waits, first for a registry that never answers, then for one that takes half a second."""
    address = settings_of(registry.url)
    with RegistryGate(registry.url) as gate:
        settings = {
            "schema.registry.url": gate.url, "schema.registry.timeout": 1, "schema.registry.max.retries": 0,
            "processing.guarantee": "exactly_once_v2", "deserialization.exception.handler": "continue",
        }  # fmt: skip
        with ks.Session(ClientSettings(broker.bootstrap_servers), config=settings, directory=SessionDirectory(tmp_path)) as session:
            old, new = ([{"name": "x", "type": "long"}, *more] for more in ([], [{"name": "y", "type": "long", "default": 0}]))

            def produce(fields: Any, start: int) -> None:
                serde = serdes.avro({"type": "record", "name": "P", "fields": fields}).for_topic(name, "value", address)
                session.produce(name, [("a", {"x": 1, "y": 1}, start + n) for n in range(100)], value_serde=serde, partitions=1)

            def total() -> Any:
                found = session.read(f"{name}-out", value_serde=serdes.registry.for_topic(f"{name}-out", "value", address))
                return found[-1].value["sum"]

            produce(old, 0)
            session.create_topic(f"{name}-out", partitions=1)
            app = session.deploy(counting(name), f"app-{name}")
            assert app.wait(120) and total() == 100
            gate.delay = 30
            produce(old, 100)
            assert app.wait(60) and total() == 200, "known schemas need no registry"
            produce(new, 200)
            time.sleep(5)
            assert app.error is None and app.status == "running" and total() == 200
            gate.delay = 0.5
            assert app.wait(120), repr(app)
            assert total() == 300
            app.stop()
