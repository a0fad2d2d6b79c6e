"""Golden bytes on the JVM: Apicurio's serdes with Confluent's wire format (Confluent's own jars are not on Maven Central) write and read
the same bytes as ours and as confluent_kafka's, against one registry: three formats × strategies × references × logical types.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import SerializationContext
from google.protobuf import descriptor_pb2, timestamp_pb2

from kstreams_repl import serdes
from kstreams_repl.engine.serdes.schemas.protobuf import compiled
from kstreams_repl.engine.serdes.schemas.schema_registry import settings_of
from kstreams_repl.host.kafka.embedded.jars import ensure_jars, parse_lock
from kstreams_repl.host.kafka.embedded.registry import API, EmbeddedRegistry
from kstreams_repl.system.errors import EmbeddedBrokerError
from tests.kafka.schema_evolutions import PROTO
from workshop.bench.peers.kafka_streams import find_jdk

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]
FILES = Path(__file__).with_name("jvm")
STRATEGIES = {"topic": "TOPIC", "record": "RECORD", "topic_record": "TOPIC_RECORD"}
ID_BYTES = 5

LOGICAL: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "rate", "type": {"type": "fixed", "name": "Rate", "size": 6, "logicalType": "decimal", "precision": 12, "scale": 4}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "noon", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "noon_us", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "at_us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "ratio", "type": "double"},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "either", "type": ["int", "string", {"type": "record", "name": "Inner", "fields": [{"name": "y", "type": "float"}]}]},
    ],
}
BASE: dict[str, Any] = {
    "id": 2**40, "note": None, "price": Decimal("12.50"), "rate": Decimal("1.2345"), "day": date(2013, 1, 9), "noon": time(12, 0, 0, 7000),
    "noon_us": time(12, 0, 0, 7), "at": datetime(2013, 1, 9, 8, 30, 0, 5000, UTC), "at_us": datetime(2013, 1, 9, 8, 30, 0, 5, UTC),
    "local": datetime(2013, 1, 9, 8, 30), "token": UUID("12345678-1234-5678-1234-567812345678"), "ratio": 0.1,
    "tags": {"a": [1, -2]}, "state": "PAID", "either": 7,
}  # fmt: skip
VALUES = [
    BASE,
    {**BASE, "id": -1, "note": "Grüße 🙂", "price": Decimal("-0.01"), "rate": Decimal("-99999999.9999"), "day": date(1969, 12, 31),
     "at": datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), "either": "text", "tags": {}},
    {**BASE, "price": Decimal("99999999.99"), "ratio": -1e300, "either": {"y": 0.5}, "day": date(9999, 12, 31)},
]  # fmt: skip
ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
PERSON = {"type": "record", "name": "Person", "namespace": "shop", "fields": [{"name": "home", "type": "shop.Address"}]}
PERSON_WHOLE = {**PERSON, "fields": [{"name": "home", "type": ADDRESS}]}
FLAT = {
    "title": "Point", "type": "object", "required": ["x"],
    "properties": {"x": {"type": "integer"}, "y": {"type": ["number", "null"]}, "label": {"type": "string"}, "more": {"type": "array"}},
}  # fmt: skip
FLAT_VALUES = [{"x": 3}, {"x": -(2**53), "y": None, "label": 'Grüße "\\/\n', "more": [{"a": [True, None]}]}, {"x": 0, "y": 0.5}]
LINES: list[dict[str, Any]] = [
    {"id": 2**40, "items": [{"name": "ä", "raw": b"\xff"}, {}], "prices": {"k": 2.5}, "state": "PAID", "left": 0},
    {"id": -1, "at": datetime(2013, 1, 9, 8, 30, 0, 5, UTC)},
    {},
]


class Jvm:
    """`ApicurioSerdes.java` in a process that answers one request after the other."""

    def __init__(self, java: Path, class_path: str, registry: EmbeddedRegistry) -> None:
        self._url = registry.url.removesuffix(API) + "/apis/registry/v2"
        command = [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path, "ApicurioSerdes"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def ask(self, op: str, kind: str, topic: str, part: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
        settings = {"apicurio.registry.url": self._url, **settings}
        request = {"op": op, "format": kind, "topic": topic, "part": part, "settings": settings, **more}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def write(self, kind: str, topic: str, part: str, subject: str, value: Any, **more: Any) -> bytes:
        """Return what the JVM writes with the newest schema of a subject."""
        settings = {"apicurio.registry.artifact.artifact-id": subject, "apicurio.registry.find-latest": "true"}
        if kind == "protobuf":  # it compares the spelling of types with the registered text
            settings["apicurio.registry.serde.validation-enabled"] = "false"
        answer = self.ask("write", kind, topic, part, settings, value=value, **more)
        assert "data" in answer, answer
        return base64.b64decode(answer["data"])

    def read(self, kind: str, topic: str, part: str, data: bytes, **more: Any) -> Any:
        """Return what the JVM reads."""
        tree = "com.fasterxml.jackson.databind.JsonNode"
        settings = {f"apicurio.registry.deserializer.{part}.return-class": tree} if kind == "json" else {}
        answer = self.ask("read", kind, topic, part, settings, data=base64.b64encode(data).decode(), **more)
        assert "value" in answer, answer
        return answer["value"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@pytest.fixture(scope="module")
def jvm(registry: EmbeddedRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    jdk = find_jdk()
    if jdk is None:
        pytest.skip("no JDK (javac 17 or newer)")
    try:
        jars = ensure_jars(jars=parse_lock((FILES / "apicurio-serdes.lock").read_text(encoding="utf-8")))
    except EmbeddedBrokerError as error:
        if "could not be fetched" not in error.message:
            raise
        pytest.skip(f"no package source: {error.message}")
    classes = tmp_path_factory.mktemp("classes")
    path = os.pathsep.join(map(str, jars))
    compiler = [str(jdk / "bin" / "javac"), "-cp", path, "-d", str(classes), str(FILES / "ApicurioSerdes.java")]
    subprocess.run(compiler, check=True, timeout=120)
    running = Jvm(jdk / "bin" / "java", os.pathsep.join([path, str(classes)]), registry)
    yield running
    running.close()
    shutil.rmtree(classes)


@pytest.fixture
def client(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def subject_of(strategy: str, topic: str, part: str, record: str) -> str:
    return {"topic": f"{topic}-{part}", "record": record, "topic_record": f"{topic}-{record}"}[strategy]


def avro_json(schema: Any, value: Any) -> Any:
    out = StringIO()
    fastavro.json_writer(out, fastavro.parse_schema(schema), [value])
    return json.loads(out.getvalue())


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_avro_with_all_logical_types(
    jvm: Jvm, registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str, strategy: str, part: Any
) -> None:
    schema = {**LOGICAL, "name": f"Order_{name.replace('-', '_')}"}  # its own subject where the record's name is one
    text = json.dumps(schema)
    library = AvroSerializer(client, text, conf={"subject.name.strategy.type": STRATEGIES[strategy]})
    serde = serdes.avro(schema, subject=strategy).for_topic(name, part, settings_of(registry.url))
    subject = subject_of(strategy, name, part, f"shop.{schema['name']}")
    for value in VALUES:
        ours, theirs = serde.serialize(value), library(value, SerializationContext(name, part))
        on_the_jvm = jvm.write("avro", name, part, subject, avro_json(schema, value), schema=text)
        assert ours == theirs == on_the_jvm
        assert serde.deserialize(on_the_jvm) == value
        assert serdes.registry.for_topic(name, part, settings_of(registry.url)).deserialize(on_the_jvm) == value
        assert jvm.read("avro", name, part, ours, schema=text) == avro_json(schema, value)


def test_avro_with_a_reference(jvm: Jvm, registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str) -> None:
    client.register_schema(f"{name}-address", Schema(json.dumps(ADDRESS), "AVRO"))
    uses = [SchemaReference("shop.Address", f"{name}-address", 1)]
    library = AvroSerializer(client, Schema(json.dumps(PERSON), "AVRO", uses), conf={"subject.name.strategy.type": "TOPIC"})
    serde = serdes.avro(PERSON, references={"shop.Address": (f"{name}-address", 1)}).for_topic(name, "value", settings_of(registry.url))
    value, text = {"home": {"city": "Basel"}}, json.dumps(PERSON_WHOLE)
    ours = serde.serialize(value)
    assert ours == library(value, SerializationContext(name, "value"))
    assert ours == jvm.write("avro", name, "value", f"{name}-value", value, schema=text)
    assert jvm.read("avro", name, "value", ours, schema=text) == value


def test_avro_that_the_jvm_registers(jvm: Jvm, registry: EmbeddedRegistry, name: str) -> None:
    """By its own strategies, whose subjects are those of Confluent's for topics."""
    settings = {"apicurio.registry.auto-register": "true"}
    value = avro_json(LOGICAL, BASE)
    answer = jvm.ask("write", "avro", name, "value", settings, value=value, schema=json.dumps(LOGICAL))
    data = base64.b64decode(answer["data"])
    address = settings_of(registry.url)
    assert serdes.registry.for_topic(name, "value", address).deserialize(data) == BASE
    assert serdes.avro(use_latest=True).for_topic(name, "value", address).serialize(BASE) == data


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_json_schema(
    jvm: Jvm, registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str, strategy: str, part: Any
) -> None:
    schema = {**FLAT, "title": f"Point_{name}"}
    compact = lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False)  # noqa: E731 - Jackson's form
    library = JSONSerializer(
        json.dumps(schema), client, conf={"subject.name.strategy.type": STRATEGIES[strategy]}, json_encode=compact
    )
    serde = serdes.json_schema(schema, subject=strategy).for_topic(name, part, settings_of(registry.url))
    subject = subject_of(strategy, name, part, schema["title"])
    for value in FLAT_VALUES:
        ours = serde.serialize(value)
        assert ours == library(value, SerializationContext(name, part)) == jvm.write("json", name, part, subject, value)
        assert jvm.read("json", name, part, ours) == value
    smile = {"x": 1, "label": "🙂"}
    ours, on_the_jvm = serde.serialize(smile), jvm.write("json", name, part, subject, smile)
    assert on_the_jvm == ours.replace("🙂".encode(), rb"\uD83D\uDE42"), "Jackson writes characters beyond U+FFFF as escapes"
    assert serde.deserialize(on_the_jvm) == jvm.read("json", name, part, ours) == smile


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_protobuf_has_the_ids_and_messages_of_the_jvm(
    jvm: Jvm, registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str, strategy: str, part: Any
) -> None:
    """Between them Apicurio writes the message's name, length-delimited, where Confluent's format has message indexes. It cannot parse
    compiled schemas, as Confluent's serializers for Python register them, so this one is registered as text, without references."""
    subject = subject_of(strategy, name, part, "shop.Line")
    client.register_schema(subject, Schema(PROTO, "PROTOBUF"))
    kind = compiled(PROTO, "shop.Line")
    library = ProtobufSerializer(kind, client, conf={"subject.name.strategy.type": "TOPIC"})
    serde = serdes.protobuf("shop.Line", schema=PROTO, use_latest=True, subject=strategy).for_topic(name, part, settings_of(registry.url))
    files = descriptor_pb2.FileDescriptorSet()
    for file in (timestamp_pb2.DESCRIPTOR, kind.DESCRIPTOR.file):
        file.CopyToProto(files.file.add())
    schema = {"schema": base64.b64encode(files.SerializeToString()).decode(), "message": "Line"}
    name_of_message = b"\x0a\x04Line"  # field 1 of Apicurio's Ref
    for value in LINES:
        message = kind(**value)
        ours, given = serde.serialize(value), base64.b64encode(message.SerializeToString()).decode()
        theirs = library(message, SerializationContext(f"{name}-compiled", part))
        assert ours is not None and ours[ID_BYTES:] == theirs[ID_BYTES:]
        on_the_jvm = jvm.write("protobuf", name, part, subject, given, **schema)
        assert on_the_jvm[:ID_BYTES] == ours[:ID_BYTES]
        assert ours[ID_BYTES:].startswith(b"\x02\x02")  # one index, 1
        assert on_the_jvm[ID_BYTES:] == bytes([len(name_of_message)]) + name_of_message + ours[ID_BYTES + 2 :]
        assert base64.b64decode(jvm.read("protobuf", name, part, on_the_jvm, **schema)) == message.SerializeToString()
    answer = jvm.ask("read", "protobuf", name, part, {}, data=base64.b64encode(ours).decode(), **schema)
    assert "error" in answer or base64.b64decode(answer["value"]) != message.SerializeToString(), "it does not read message indexes"
