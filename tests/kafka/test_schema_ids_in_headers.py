"""Schema ids in headers, with a real registry and broker: written as by Confluent's serializers, and read without being told.

The embedded registry gives its schemas no GUIDs, so `RegistryGate` before it does; numbers in headers need none.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import SerializationContext
from google.protobuf.type_pb2 import Field

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.serdes.header_ids import KEY_HEADER, VALUE_HEADER, framed, on_the_wire
from kstreams_repl.engine.serdes.schemas.schema_registry import default_registry, settings_of, use_by_default
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.embedded.registry import EmbeddedRegistry
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import SchemaRegistryError, TaskCorruptedError
from tests.kafka.registry_gate import RegistryGate
from tests.kafka.test_stores_with_headers import Deployment

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # on a new machine the first one fetches the registry

POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}, {"name": "label", "type": "string", "default": ""}]}
FLAT = {"title": "Point", "type": "object", "properties": {"x": {"type": "integer"}, "label": {"type": "string"}}}
PROTO = 'syntax = "proto3"; message Other { int32 n = 1; } message P { int64 x = 1; string label = 2; }'
HEADER: dict[str, Any] = {"schema.id.serializer": header_schema_id_serializer, "subject.name.strategy.type": "TOPIC"}
VALUE = {"x": 2**40, "label": "a"}
WRITERS = {
    "avro": serdes.avro(POINT, schema_id_serializer="header"),
    "protobuf": serdes.protobuf("P", schema=PROTO, schema_id_serializer="header"),
    "json": serdes.json_schema(FLAT, schema_id_serializer="header"),
}


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@pytest.fixture(scope="module")
def gate(registry: EmbeddedRegistry) -> Iterator[RegistryGate]:
    with RegistryGate(registry.url, guids=True) as gate:
        yield gate


@pytest.fixture
def session(broker: Any, gate: RegistryGate, tmp_path: Path) -> Iterator[ks.Session]:
    before = default_registry()
    use_by_default(settings_of(gate.url))
    settings = {"schema.registry.url": gate.url}
    with ks.Session(ClientSettings(broker.bootstrap_servers), config=settings, directory=SessionDirectory(tmp_path)) as session:
        yield session
    use_by_default(before)


def forget(session: ks.Session) -> None:
    """Make it a session that has not produced the topic."""
    session.client.serdes = type(session.client.serdes)()


@pytest.mark.slow
def test_the_embedded_registry_has_no_guids_and_that_is_told(registry: EmbeddedRegistry, name: str) -> None:
    at = urlsplit(registry.url)
    connection = HTTPConnection(str(at.hostname), at.port or 80, timeout=30)
    connection.request("GET", f"{at.path}/schemas/guids/12345678-1234-5678-1234-567812345678")
    assert connection.getresponse().status == 404
    connection.close()
    with pytest.raises(SchemaRegistryError, match="no GUIDs"):
        WRITERS["avro"].for_topic(name, "value", settings_of(registry.url)).serialize(VALUE)


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("kind", ["avro", "protobuf", "json"])
def test_headers_and_payload_are_those_of_confluents_serializer(gate: RegistryGate, name: str, kind: str, part: Any) -> None:
    with SchemaRegistryClient({"url": gate.url}) as client:
        context = SerializationContext(name, part, [])
        value: Any = VALUE
        if kind == "avro":
            theirs = AvroSerializer(client, json.dumps(POINT), conf=HEADER)(value, context)
            read, serde = AvroDeserializer(client, conf={"subject.name.strategy.type": "TOPIC"}), WRITERS["avro"]
        elif kind == "protobuf":
            value = Field(name="x", number=3, kind=Field.TYPE_INT64)
            theirs = ProtobufSerializer(Field, client, conf=HEADER)(value, context)
            serde = serdes.protobuf(Field, schema_id_serializer="header")
            read = ProtobufDeserializer(Field, {"use.deprecated.format": False})
        else:
            compact = lambda value: json.dumps(value, separators=(",", ":"))  # noqa: E731 - Jackson's form, as the JVM writes it
            theirs = JSONSerializer(json.dumps(FLAT), client, conf=HEADER, json_encode=compact)(value, context)
            read, serde = JSONDeserializer(json.dumps(FLAT), schema_registry_client=client), WRITERS["json"]
        address = settings_of(gate.url)
        bound = serde.for_topic(name, part, address)
        for _ in range(2):
            data = (bound.serialize(value), None) if part == "key" else (None, bound.serialize(value))
            key, payload, headers = on_the_wire(bound, bound, *data, None)
            assert (key or payload, headers) == (theirs, context.headers)
        assert read(theirs, SerializationContext(name, part, headers)) == value
        again = framed(theirs, context.headers, part)
        assert bound.deserialize(again) == value
        as_dict = serdes.registry.for_topic(name, part, address).deserialize(again)
        assert as_dict == value if kind != "protobuf" else as_dict["kind"] == "TYPE_INT64"


@pytest.mark.parametrize("kind", WRITERS)
def test_a_topic_is_read_queried_and_peeked_without_being_told(session: ks.Session, name: str, kind: str) -> None:
    serde = WRITERS[kind]
    session.produce(name, [(dict(VALUE, x=n), dict(VALUE, x=-n), 1000 + n) for n in (1, 2, 3)], key_serde=serde, value_serde=serde,
                    partitions=1)  # fmt: skip
    raw = session.read(name, key_serde="bytes", value_serde="bytes")
    assert [[header for header, _ in record.headers] for record in raw] == [[KEY_HEADER, VALUE_HEADER]] * 3
    assert all(record.value[:1] != b"\0" for record in raw), "the payload alone"
    forget(session)
    assert [(record.key["x"], record.value["x"]) for record in session.read(name)] == [(1, -1), (2, -2), (3, -3)]
    found = session.sql(f'SELECT typeof(value.x), key.x, value.x, value.label FROM "{name}" ORDER BY timestamp')
    assert found.fetchall() == [("BIGINT", n, -n, "a") for n in (1, 2, 3)]
    builder = ks.StreamsBuilder()
    sums = builder.stream(name).map_values(lambda value: f"<{value['x'] * 10}>")
    assert "<-30>" in repr(session.values(sums))
    copied = f"{name}-copied"
    session.produce(copied, session.read(name), value_serde="json", key_serde="json", partitions=1)
    assert [record.headers for record in session.read(copied)] == [[]] * 3, "ids of values that are now JSON"


def test_numbers_in_headers_are_read_with_the_embedded_registry_itself(
    session: ks.Session, registry: EmbeddedRegistry, name: str
) -> None:
    use_by_default(settings_of(registry.url))
    prefixed = serdes.avro(POINT).for_topic(name, "value", settings_of(registry.url)).serialize(VALUE)
    assert prefixed is not None
    records = [("a", prefixed[5:], 1000, {VALUE_HEADER: prefixed[:5]}), ("b", prefixed, 1001)]
    session.produce(name, records, value_serde="bytes", partitions=1)
    forget(session)
    assert [record.value for record in session.read(name)] == [VALUE, VALUE]
    assert session.sql(f'SELECT sum(value.x) FROM "{name}"').fetchall() == [(2**41,)]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_deployed_application_reads_and_writes_them_and_restores_its_state(session: ks.Session, name: str) -> None:
    point = WRITERS["avro"]
    session.produce(name, [("a", {"x": n, "label": ""}, n) for n in range(500)], value_serde=point, partitions=1)
    session.create_topic(f"{name}-out", partitions=1)
    forget(session)
    builder = ks.StreamsBuilder()
    table = builder.stream(name, key_serde="string").group_by_key().reduce(
        lambda one, other: {"x": one["x"] + other["x"], "label": other["label"]}, store="sums", key_serde="string", value_serde=point
    )
    table.to_stream().to(f"{name}-out", key_serde="string", value_serde=point)
    for round_ in (1, 2):
        app = session.deploy(builder, f"app-{name}")
        assert app.wait(120), repr(app)
        out = session.read(f"{name}-out")
        assert out[-1].value["x"] == round_ * sum(range(500))
        assert [header for header, _ in out[-1].headers] == [VALUE_HEADER]
        assert app.store("sums").get("a")["x"] == round_ * sum(range(500))
        app.stop()
        session.produce(name, [("a", {"x": n, "label": ""}, 1000 + n) for n in range(500)], value_serde=point)


class Tables:
    """A table that is restored from its topic, on a broker; its topic has schema ids in headers."""

    def __init__(self, session: ks.Session, gate: RegistryGate, admin: Admin, name: str, directory: Path, **serdes_: Any) -> None:
        def build(topic: str) -> Any:
            builder = ks.StreamsBuilder()
            builder.table(topic, store="rows", **serdes_)
            return builder.build({"topology.optimization": self.optimization})

        self.optimization, self.session, self.directory = "all", session, directory
        self.config = {"schema.registry.url": gate.url, "default.key.serde": "string", "default.value.serde": "registry"}
        self.deployment = Deployment(build, admin, session.client.settings, name, directory)

    def run(self, *records: Any, key_serde: Any = "string") -> Any:
        """Process records, and return the store."""
        self.session.produce(self.deployment.topic, records, key_serde=key_serde, value_serde=WRITERS["avro"])
        self.deployment.fed += len(records)
        self.deployment.run(**self.config)
        return self.deployment.store("rows", ks.queries.QueryableStoreTypes.key_value_store(), **self.config)

    def lose_the_state(self) -> None:
        self.deployment.local.close()
        for child in self.directory.iterdir():
            if child.name.startswith(self.deployment.application):
                shutil.rmtree(child)


@pytest.fixture
def tables(session: ks.Session, gate: RegistryGate, admin: Admin, name: str, tmp_path: Path) -> Callable[..., Tables]:
    return lambda **serdes_: Tables(session, gate, admin, name, tmp_path, **serdes_)


@pytest.mark.parametrize("given", [{}, {"key_serde": "string", "value_serde": "registry"}])
def test_a_table_restored_from_its_topic_has_the_values(tables: Callable[..., Tables], given: dict[str, str]) -> None:
    """Without serdes of its own, too: bare payloads were restored, which no serde reads."""
    table = tables(**given)
    assert table.run(*((f"k{n}", dict(VALUE, x=n), n) for n in range(20))).get("k7") == dict(VALUE, x=7)
    table.lose_the_state()
    store = table.run(("k20", dict(VALUE, x=20), 20))
    assert dict(store.all()) == {f"k{n}": dict(VALUE, x=n) for n in range(21)}


@pytest.mark.slow
def test_keys_with_ids_in_headers_are_refused_and_the_hint_is_the_way_out(tables: Callable[..., Tables], session: ks.Session) -> None:
    point = serdes.avro(POINT)
    table = tables(key_serde=point, value_serde=point)
    keys = [dict(VALUE, x=n) for n in range(3)]
    written = WRITERS["avro"]
    table.run(*((key, VALUE, n) for n, key in enumerate(keys[:2])), key_serde=written)
    table.lose_the_state()
    with pytest.raises(TaskCorruptedError, match="the keys there have their schema ids in headers") as refused:
        table.run((keys[2], VALUE, 2), key_serde=written)
    assert "topology.optimization=none" in str(refused.value.hint) and "session.reset(name)" in str(refused.value.hint)
    session.reset(table.deployment.application)
    table.lose_the_state()  # this session's directory is another one
    table.optimization = "none"
    for _ in range(2):
        assert [table.run((keys[2], VALUE, 2), key_serde=written).get(key) for key in keys] == [VALUE] * 3
        table.lose_the_state()
