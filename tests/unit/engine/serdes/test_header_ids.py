"""Schema ids in headers: the bytes of Confluent's serializers, read without being told, and never forwarded with another value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import SerializationContext
from google.protobuf.type_pb2 import Field

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.runtime.nodes.sinks import _with_header_ids
from kstreams_repl.engine.serdes.header_ids import (
    KEY_HEADER,
    VALUE_HEADER,
    Framed,
    framed,
    framing,
    on_the_wire,
    without_stale_ids,
)
from kstreams_repl.engine.serdes.schemas.schema_registry import client_of, default_registry, settings_of, use_by_default
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.log.changelog_restore import Restorer
from kstreams_repl.engine.stores.log.log_serdes import with_log_serdes
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.repl.inspection.stores import LogRows
from kstreams_repl.repl.inspection.topics import records_table
from kstreams_repl.system.errors import ConfigError, TaskCorruptedError
from kstreams_repl.system.types import RecordBatch, TopicPartition

ADDRESS = settings_of("mock://header-ids")
POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}
FLAT = {"title": "Point", "type": "object", "properties": {"x": {"type": "integer"}}}
MESSAGE = Field(name="x", number=3)
HEADER = {"schema.id.serializer": header_schema_id_serializer}


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


FORMATS: dict[str, tuple[Any, Any, Any, Any]] = {
    "avro": (
        {"x": 2**40}, serdes.avro(POINT, schema_id_serializer="header"),
        lambda client: AvroSerializer(client, json.dumps(POINT), conf=HEADER), lambda client: AvroDeserializer(client),
    ),
    "protobuf": (
        MESSAGE, serdes.protobuf(Field, schema_id_serializer="header"),
        lambda client: ProtobufSerializer(Field, client, conf=HEADER),
        lambda client: ProtobufDeserializer(Field, {"use.deprecated.format": False}),
    ),
    "json": (
        {"x": 2**40}, serdes.json_schema(FLAT, schema_id_serializer="header"),
        lambda client: JSONSerializer(json.dumps(FLAT), client, conf=HEADER, json_encode=compact),
        lambda client: JSONDeserializer(json.dumps(FLAT), schema_registry_client=client),
    ),
}  # fmt: skip


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("name", FORMATS)
def test_headers_and_payload_are_those_of_confluents_serializer(name: str, part: Any) -> None:
    value, serde, make_serializer, make_deserializer = FORMATS[name]
    client, topic = client_of(ADDRESS), f"golden-{name}"
    context = SerializationContext(topic, part, [])
    theirs = make_serializer(client)(value, context)
    bound = serde.for_topic(topic, part, ADDRESS)
    for _ in range(2):  # the second one does not pass through the library
        data = (bound.serialize(value), None) if part == "key" else (None, bound.serialize(value))
        key, payload, headers = on_the_wire(bound, bound, *data, [("mine", b"1")])
        assert (key or payload, headers) == (theirs, [("mine", b"1"), *context.headers])
    assert make_deserializer(client)(theirs, SerializationContext(topic, part, headers)) == value
    assert bound.deserialize(framed(theirs, context.headers, part)) == value
    plain = serdes.registry.for_topic(topic, part, ADDRESS).deserialize(framed(theirs, context.headers, part))
    assert plain == ({"x": 2**40} if name != "protobuf" else plain) and (name != "protobuf" or plain["number"] == 3)
    other = "value" if part == "key" else "key"
    assert framed(theirs, context.headers, other) is theirs


def test_a_number_instead_of_a_guid_is_read_too_and_the_last_header_counts() -> None:
    prefixed = serdes.avro(POINT).for_topic("numbers", "value", ADDRESS).serialize({"x": 5})
    assert prefixed is not None
    headers: Any = [(VALUE_HEADER, b"\1" + bytes(16)), (VALUE_HEADER, prefixed[:5])]
    assert serdes.registry.for_topic("numbers", "value", ADDRESS).deserialize(framed(prefixed[5:], headers, "value")) == {"x": 5}


def test_an_unknown_place_for_ids_is_refused() -> None:
    with pytest.raises(ConfigError, match="schema_id_serializer='headers'"):
        serdes.avro(POINT, schema_id_serializer="headers")  # type: ignore[arg-type]


def test_batches_without_schema_ids_are_not_touched() -> None:
    frame = framing(serdes.string, serdes.registry)
    assert framing(serdes.string, serdes.json) is None and frame is not None
    batch = RecordBatch([b"k"], [b"v"], [0], [0], [[("other", b"1"), (KEY_HEADER, b"\0\0\0\0\1")]])
    assert frame(batch) is batch, "the header of the key belongs to a key that the string serde reads"


def written(topic: str, x: int, part: Any = "value") -> tuple[bytes, list[Any]]:
    """Return payload and headers of Confluent's serializer."""
    context = SerializationContext(topic, part, [])
    data = AvroSerializer(client_of(ADDRESS), json.dumps(POINT), conf=HEADER)({"x": x}, context)
    return data, list(context.headers)


def driver_of(builder: ks.StreamsBuilder, **more: Any) -> ks.testing.TopologyTestDriver:
    return ks.testing.TopologyTestDriver(builder, {"application.id": "header-ids", "schema.registry.url": "mock://header-ids", **more})


def pipe(driver: ks.testing.TopologyTestDriver, topic: str, key: Any, written: tuple[bytes, list[Any]], *more: Any) -> None:
    driver.create_input_topic(topic, "bytes", "bytes").pipe_input(key, written[0], 1000, [("mine", b"1"), *written[1], *more])


def test_a_source_reads_them_and_each_sink_writes_ids_in_its_own_place() -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="registry").map_values(lambda value: {"x": value["x"] + 1})
    stream.to("prefixed", key_serde="string", value_serde=serdes.avro(POINT))
    stream.to("headed", key_serde="string", value_serde=serdes.avro(POINT, schema_id_serializer="header"))
    stream.to(lambda key, value, metadata: "chosen", key_serde="string", value_serde=serdes.avro(POINT, schema_id_serializer="header"))
    with driver_of(builder) as driver:
        pipe(driver, "in", b"a", written("in", 1))
        prefixed = driver.create_output_topic("prefixed", "string", "bytes").read_record()
        assert prefixed.headers == [("mine", b"1")] and prefixed.value[:1] == b"\0"
        for topic in ("headed", "chosen"):
            payload, ids = written(topic, 2)
            found = driver.create_output_topic(topic, "string", "bytes").read_record()
            assert (found.value, found.headers) == (payload, [("mine", b"1"), *ids])
        source = driver.create_input_topic("in", "string", serdes.avro(POINT, schema_id_serializer="header"))
        source.pipe_input("b", {"x": 8}, headers={VALUE_HEADER: b"stale"})
        assert driver.create_output_topic("headed", "string", "registry").read_value() == {"x": 9}


def test_many_records_in_columns_with_and_without_header_ids() -> None:
    """The generated loop of a source, and rows read ahead."""
    builder = ks.StreamsBuilder()
    builder.stream("in", key_serde="registry", value_serde="registry").map_values(lambda value: {"x": -value["x"]}).to(
        "out", key_serde=serdes.avro(POINT, schema_id_serializer="header"), value_serde=serdes.avro(POINT)
    )
    plain = serdes.avro(POINT).for_topic("in", "value", ADDRESS)
    plain_key = serdes.avro(POINT).for_topic("in", "key", ADDRESS)
    with driver_of(builder) as driver:
        source = driver.create_input_topic("in", "bytes", "bytes")
        for x in range(200):
            key, key_ids = (plain_key.serialize({"x": x}), []) if x % 3 else written("in", x, "key")
            value, value_ids = (plain.serialize({"x": x}), []) if x % 2 else written("in", x)
            source.pipe_input(key, value, x, [*key_ids, *value_ids])
        found = driver.create_output_topic("out", "registry", "registry").read_records()
    assert [(record.key, record.value) for record in found] == [({"x": x}, {"x": -x}) for x in range(200)]
    assert [[name for name, _ in record.headers] for record in found] == [[KEY_HEADER]] * 200


def test_stores_and_repartition_topics_keep_the_id_with_the_value() -> None:
    builder = ks.StreamsBuilder()
    point = serdes.avro(POINT, schema_id_serializer="header")
    stream = builder.stream("in", key_serde="string", value_serde=point)
    grouped = stream.group_by(lambda key, value: {"x": value["x"] % 2}, key_serde=point, value_serde=point)
    table = grouped.reduce(lambda one, other: {"x": one["x"] + other["x"]}, store="sums", key_serde=point, value_serde=point)
    table.to_stream().to("out", key_serde=point, value_serde=point)
    with driver_of(builder) as driver:
        for x in (1, 2, 3):
            pipe(driver, "in", b"a", written("in", x))
        found = driver.create_output_topic("out", point, point).read_key_values()
        assert found == [({"x": 1}, {"x": 1}), ({"x": 0}, {"x": 2}), ({"x": 1}, {"x": 4})]
        assert driver.state_store("sums").get({"x": 1}).value == {"x": 4}


def test_a_windowed_key_has_its_id_in_the_header_and_the_partition_of_the_plain_key() -> None:
    builder = ks.StreamsBuilder()
    point = serdes.avro(POINT, schema_id_serializer="header")
    stream = builder.stream("in", key_serde=point, value_serde="string")
    counts = stream.group_by_key().windowed_by(ks.TimeWindows.of_size_with_no_grace(1000)).count(store="n")
    counts.to_stream().to("out", key_serde=serdes.time_windowed(point, 1000), value_serde="long")
    with driver_of(builder) as driver:
        payload, ids = written("in", 300, "key")
        driver.create_input_topic("in", "bytes", "string").pipe_input(payload, "v", 2500, ids)
        found = driver.create_output_topic("out", "bytes", "long").read_record()
        assert found.key == payload + (2000).to_bytes(8, "big")
        assert [header for header, _ in found.headers] == [KEY_HEADER]
        read = serdes.time_windowed(point, 1000).for_topic("out", "key", ADDRESS)
        assert read.deserialize(framed(found.key, found.headers, "key")) == ks.Windowed({"x": 300}, 2000, 3000)


def test_the_id_in_the_header_does_not_count_for_the_partition() -> None:
    """So that the records of a key are in one partition, whichever schema wrote it."""
    plain = serdes.avro(POINT, schema_id_serializer="header").for_topic("out", "key", ADDRESS)
    asked: list[bytes] = []

    def partition_of(topic: str, key: bytes) -> int:
        asked.append(key)
        return 0

    _, find = _with_header_ids(lambda *record: None, partition_of, plain, serdes.string)
    data = plain.serialize({"x": 300})
    assert data is not None
    find("out", data)
    assert asked == [written("out", 300, "key")[0]]


def test_a_table_and_a_global_table_read_them() -> None:
    builder = ks.StreamsBuilder()
    names = builder.global_table("names", key_serde="string", value_serde="registry")
    rows = builder.table("rows", key_serde="string", value_serde=serdes.avro(POINT))
    stream = builder.stream("in", key_serde="string", value_serde="string")
    joined = stream.join(names, lambda value, name: f"{value}{name['x']}", key=lambda key, value: key)
    joined.join(rows, lambda value, row: f"{value}/{row['x']}").to("out", key_serde="string", value_serde="string")
    with driver_of(builder) as driver:
        pipe(driver, "names", b"a", written("names", 7))
        pipe(driver, "rows", b"a", written("rows", 8))
        driver.create_input_topic("in", "string", "string").pipe_input("a", "n")
        assert driver.create_output_topic("out", "string", "string").read_value() == "n7/8"


@pytest.mark.parametrize("broken", ["reading", "processing"])
def test_a_dead_letter_has_the_bytes_and_headers_of_its_record(broken: str) -> None:
    builder = ks.StreamsBuilder()
    builder.stream("in", key_serde="string", value_serde="registry").map_values(lambda value: value["y"]).to("out", value_serde="json")
    handlers = {f"{name}.exception.handler": "continue" for name in ("deserialization", "processing")}
    with driver_of(builder, **handlers, **{"errors.dead.letter.queue.topic.name": "dead"}) as driver:
        payload, ids = written("in", 1)
        if broken == "reading":
            payload = b"\x80"
        pipe(driver, "in", b"a", (payload, ids))
        dead = driver.create_output_topic("dead", "bytes", "bytes").read_record()
    assert (dead.key, dead.value) == (b"a", payload)
    assert dead.headers[:2] == [("mine", b"1"), *ids]


def test_tables_of_topics_show_decoded_columns_without_being_told() -> None:
    before = default_registry()
    use_by_default(ADDRESS)
    try:
        (one, ids), prefixed = written("sql", 1), serdes.avro(POINT).for_topic("sql", "value", ADDRESS).serialize({"x": 2})
        batch = RecordBatch([b"a", b"b"], [one, prefixed], [0, 1], [0, 1], [ids, None])
        found = records_table([(TopicPartition("sql", 0), batch)], key_serde=None, value_serde=None, bound="")
    finally:
        use_by_default(before)
    assert found.columns["value"].to_pylist() == [{"x": 1}, {"x": 2}]
    assert found.columns["headers"].to_pylist()[0][0]["name"] == VALUE_HEADER, "a topic's own headers are shown as they are"


def test_headers_of_a_record_read_elsewhere_are_not_sent_with_a_value_written_again() -> None:
    headers = [("mine", b"1"), (VALUE_HEADER, b"v"), (KEY_HEADER, b"k")]
    assert without_stale_ids(serdes.bytes_, serdes.json, headers) == [("mine", b"1"), (KEY_HEADER, b"k")]
    assert without_stale_ids(None, serdes.bytes_, headers) == headers


def test_a_store_restored_from_its_source_topic_has_the_ids() -> None:
    builder = StoreBuilder("rows", StoreKind.KEY_VALUE, serdes.string, serdes.registry, source_topic="rows")
    environment = MemoryEnvironment()
    payload, ids = written("rows", 3)
    Restorer(builder, environment, "rows-0").apply(RecordBatch([b"a"], [payload], [0], [0], [ids]))
    stored = environment.engine("rows", persistent=True).get(b"a")
    assert serdes.registry.for_topic("rows", "value", ADDRESS).deserialize(stored) == {"x": 3}


def test_a_store_without_serdes_of_its_own_has_the_ids_that_the_applications_read() -> None:
    """Restored and read from its topic: both take the records as they are, so the serdes say to what a header belongs."""
    payload, ids = written("rows", 3)
    batch = RecordBatch([b"a"], [payload], [0], [0], [ids])
    for default, stored in (("registry", ids[0][1] + payload), ("bytes", payload)):
        config = ks.StreamsConfig({"application.id": "a", "bootstrap.servers": "b", "default.value.serde": default})
        builder = with_log_serdes(StoreBuilder("rows", StoreKind.KEY_VALUE, source_topic="rows"), config)
        environment, log = MemoryEnvironment(), LogRows(builder, 0)
        Restorer(builder, environment, "rows-0").apply(batch)
        log.add(batch)
        assert environment.engine("rows", persistent=True).get(b"a") == stored and log.rows().values == [stored]


def test_keys_with_ids_in_headers_are_not_restored_as_other_keys() -> None:
    builder = StoreBuilder("rows", StoreKind.KEY_VALUE, serdes.registry, serdes.registry, source_topic="rows")
    key, ids = written("rows", 3, "key")
    with pytest.raises(TaskCorruptedError, match=r"schema ids in headers.*\n?.*session\.reset"):
        Restorer(builder, MemoryEnvironment(), "rows-0").apply(RecordBatch([key], [b"v"], [0], [0], [ids]))


def test_framed_bytes_remember_what_was_received() -> None:
    found = framed(b"abc", [(VALUE_HEADER, b"\0\0\0\0\1")], "value")
    assert type(found) is Framed and (found, found.payload) == (b"\0\0\0\0\1abc", b"abc")
    assert framed(None, [(VALUE_HEADER, b"\0\0\0\0\1")], "value") is None
    assert framed(b"abc", [(VALUE_HEADER, None)], "value") == b"abc"
