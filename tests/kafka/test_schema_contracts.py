"""Schemas of a topology compared with a real registry: what it would refuse is told at deploy and edit, and nothing else is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError as Refused
from google.protobuf.type_pb2 import Field

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.differences.schema_diff import SchemaChange, SchemaDiff
from kstreams_repl.host.kafka.embedded.registry import EmbeddedRegistry
from kstreams_repl.repl.session.application.checks.contracts import begin_versions, compare_schemas, refuse_schemas
from kstreams_repl.system.errors import IncompatibleSchemaError, SchemaRegistryError, SchemaRegistryUnavailableError
from tests.kafka.registry_gate import RegistryGate
from tests.kafka.schema_evolutions import EVOLUTIONS, INT, TEXT, YD, X, Y, avro, opened, proto

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@pytest.fixture
def client(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def serde_of(format: str, schema: str, **options: Any) -> Any:
    if format == "protobuf":
        return serdes.protobuf(schema=schema, **options)
    return (serdes.avro if format == "avro" else serdes.json_schema)(schema, **options)


def last_values(serde: Any, topic: str, *, source: Any = None) -> ks.Topology:
    """Keeps the last value of each key in a store, and writes it."""
    builder = ks.StreamsBuilder()
    stream = builder.stream(topic, key_serde="string", value_serde=source or "bytes", name="read")
    table = stream.group_by_key().aggregate(dict, lambda key, value, total: total, store="last", key_serde="string", value_serde=serde)
    table.to_stream().to(f"{topic}-out", key_serde="string", value_serde=serde, name="write")
    return builder.build()


def compared(registry: EmbeddedRegistry, name: str, topology: ks.Topology, **more: Any) -> dict[str, SchemaDiff]:
    config = StreamsConfig({"schema.registry.url": registry.url})
    return {schema.owner: schema for schema in compare_schemas(f"app-{name}", topology, config, **more)}


def put(client: SchemaRegistryClient, subject: str, format: str, level: str, *versions: str) -> None:
    for text in versions:
        client.register_schema(subject, Schema(text, KINDS[format]))
    client.set_compatibility(subject, level)


@pytest.mark.slow
@pytest.mark.parametrize("case", EVOLUTIONS)
def test_an_evolution_is_classified_as_the_registry_does(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str, case: str
) -> None:
    one = EVOLUTIONS[case]
    changelog, output, twin = f"app-{name}-last-changelog", f"{name}-out", f"{name}-twin-value"
    for subject in (f"{changelog}-value", f"{output}-value", twin):
        put(client, subject, one.format, one.level, *one.versions)
    found = compared(registry, name, last_values(serde_of(one.format, one.candidate), name))
    try:
        client.register_schema(twin, Schema(one.candidate, KINDS[one.format]))
        assert (found["last"].change, found["write"].change) == (SchemaChange.COMPATIBLE, SchemaChange.COMPATIBLE), found
    except Refused as refused:
        assert refused.http_status_code == 409, refused
        assert (found["last"].change, found["write"].change) == (SchemaChange.MIGRATE, SchemaChange.REFUSED), found
        assert one.field, "the registry refuses what was thought compatible"
        named = one.field if one.field.startswith("/") else f"{one.field}'"
        assert named in found["last"].reason, found["last"].reason
    else:
        assert not one.field, "the registry accepts what was thought incompatible"


NEWER = avro(X, YD)


def counts(serde: Any, topic: str) -> ks.Topology:
    return last_values(serde, topic, source=serdes.avro(avro(X)))


@pytest.mark.slow
def test_a_source_that_cannot_read_the_newest_schema_is_told_with_the_field(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str
) -> None:
    put(client, f"{name}-value", "avro", "BACKWARD", avro(X, Y), avro(X))
    needs_y, lacks_y = (last_values("json", name, source=serdes.avro(schema)) for schema in (avro(X, Y), avro(("x", "double"))))
    found = compared(registry, name, needs_y)["read"]
    assert found.change is SchemaChange.REFUSED and "version 2" in found.reason and "field 'y'" in found.reason
    assert compared(registry, name, lacks_y)["read"].change is SchemaChange.COMPATIBLE
    with pytest.raises(IncompatibleSchemaError, match=f"source 'read' .topic {name}.* field 'y'") as refused:
        refuse_schemas([found], f"app-{name}", "")
    assert "serdes.registry" in str(refused.value.hint) and refused.value.topic == name
    other = last_values("json", name, source=serdes.json_schema(opened({"x": INT})))
    assert "is AVRO, not JSON" in compared(registry, name, other)["read"].reason
    assert "read" not in compared(registry, name, last_values("json", name, source=serdes.registry))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["FORWARD", "NONE"])
def test_rows_that_would_be_misread_need_a_conversion_though_the_registry_takes_the_schema(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str, level: str
) -> None:
    """A level that does not look backward says nothing about the rows of a store."""
    put(client, f"app-{name}-last-changelog-value", "avro", level, avro(X))
    before, after = counts(serdes.avro(avro(X)), name), counts(serdes.avro(avro(X, Y)), name)
    found = compared(registry, name, after, before=before)["last"]
    assert found.change is SchemaChange.MIGRATE and found.edited and "field 'y'" in found.reason
    readable = counts(serdes.avro(NEWER), name)
    assert compared(registry, name, readable, before=before)["last"].change is SchemaChange.COMPATIBLE
    assert "last" not in compared(registry, name, before, before=before)


def test_a_subject_begins_with_a_version_that_fits_none_before_it_and_keeps_its_level(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str
) -> None:
    subject = f"app-{name}-last-changelog-value"
    put(client, subject, "avro", "FULL", avro(X))
    old = client.get_latest_version(subject).schema_id
    client.clear_caches()
    topology = counts(serdes.avro(avro(Y)), name)
    config = StreamsConfig({"schema.registry.url": registry.url})
    assert compared(registry, name, topology)["last"].change is SchemaChange.MIGRATE
    found = compare_schemas(f"app-{name}", topology, config, topics=lambda: ())  # the changelog does not exist: there are no rows
    begins = [schema for schema in found if schema.begins]
    assert [schema.owner for schema in begins] == ["last"]
    assert client.get_versions(subject) == [1]  # asking registers nothing
    begin_versions(f"app-{name}", topology, config, begins)
    client.clear_caches()
    assert len(client.get_versions(subject)) == 1 and client.get_compatibility(subject) == "FULL"
    assert "string" in client.get_latest_version(subject).schema.schema_str and "long" in client.get_schema(old).schema_str
    assert compared(registry, name, topology)["last"].change is SchemaChange.COMPATIBLE


def test_a_schema_that_may_not_be_registered_has_to_be_there(registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str) -> None:
    topology = last_values(serdes.avro(avro(X), auto_register=False), name)
    assert "auto_register is off" in compared(registry, name, topology)["write"].reason
    for subject in (f"{name}-out-value", f"app-{name}-last-changelog-value"):
        client.register_schema(subject, Schema(avro(X), "AVRO"))
    assert {schema.change for schema in compared(registry, name, topology).values()} == {SchemaChange.COMPATIBLE}


def test_a_registry_that_is_down_or_slow_is_reported_and_only_a_changed_schema_waits_for_it(
    registry: EmbeddedRegistry, name: str
) -> None:
    before, after = counts(serdes.avro(avro(X)), name), counts(serdes.avro(NEWER), name)
    with RegistryGate(registry.url) as gate:
        gate.delay = 3
        config = StreamsConfig({"schema.registry.url": gate.url, "schema.registry.timeout": 1})
        began = time.monotonic()
        found = compare_schemas(f"app-{name}", after, config)
        assert {schema.change for schema in found} == {SchemaChange.NO_ANSWER} and len(found) == 3
        assert time.monotonic() - began < 10, "a registry that does not answer was asked for each schema"
        refuse_schemas(found, f"app-{name}", "")  # nothing can be written until it answers, and then it decides
        edited = compare_schemas(f"app-{name}", after, config, before=before)
        with pytest.raises(SchemaRegistryUnavailableError, match="was not compared"):
            refuse_schemas(edited, f"app-{name}", "")
        assert len(compare_schemas(f"app-{name}", after, config.with_(**{"repl.schema.check": False}), before=before)) == 2


def test_wrong_credentials_are_told_before_anything_starts(registry: EmbeddedRegistry, name: str) -> None:
    with RegistryGate(registry.url, user_info="me:right") as gate:
        for given, fits in (("me:wrong", False), ("me:right", True)):
            settings = StreamsConfig({"schema.registry.url": gate.url, "schema.registry.basic.auth.user.info": given})
            topology = counts(serdes.avro(avro(X)), name)
            if fits:
                assert len(compare_schemas(f"app-{name}", topology, settings)) == 3
            else:
                with pytest.raises(SchemaRegistryError, match="401") as refused:
                    compare_schemas(f"app-{name}", topology, settings)
                assert "wrong" not in str(refused.value)


def test_what_the_embedded_registry_cannot_compare_is_reported_as_such(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str
) -> None:
    client.register_schema(f"{name}-i", Schema(avro(X, name="I"), "AVRO"))
    put(client, f"{name}-out-value", "avro", "BACKWARD", avro(X))
    outer = json.loads(avro(X, ("i", "I")))
    used = {"I": (f"{name}-i", 1)}
    found = compared(registry, name, last_values(serdes.avro(outer, references=used), name))["write"]
    assert found.change is SchemaChange.NOT_COMPARED and "with references" in found.reason
    classes = serdes.protobuf(Field)
    assert compared(registry, name, last_values(classes, f"{name}-2"))["write"].change is SchemaChange.COMPATIBLE  # the first version
    put(client, f"{name}-2-out-value", "protobuf", "BACKWARD", proto("int64 x = 1;"))
    found = compared(registry, name, last_values(classes, f"{name}-2"))["write"]
    assert found.change is SchemaChange.NOT_COMPARED and "compiled" in found.reason


def test_json_schemas_of_keys_are_compared_too(registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str) -> None:
    put(client, f"{name}-out-key", "json_schema", "BACKWARD", opened({"x": INT}))
    builder = ks.StreamsBuilder()
    builder.stream(name).to(f"{name}-out", key_serde=serdes.json_schema(opened({"x": TEXT})), name="write")
    found = compared(registry, name, builder.build())["write"]
    assert (found.part, found.change) == ("key", SchemaChange.REFUSED) and "'x'" in found.reason
