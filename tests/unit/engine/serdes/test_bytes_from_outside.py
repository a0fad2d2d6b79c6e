"""Each decoder against bytes that anybody may have written: a value or `SerializationError`, and never another message's value."""

from __future__ import annotations

import subprocess
import sys
import uuid
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kstreams_repl import serdes
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.serdes.change import change
from kstreams_repl.engine.serdes.foreign_key import Subscription, SubscriptionResponse, subscription, subscription_response
from kstreams_repl.engine.serdes.header_ids import framed
from kstreams_repl.engine.serdes.schemas.schema_registry import settings_of
from kstreams_repl.system.errors import SerializationError
from kstreams_repl.system.types import Windowed

REGISTRY = settings_of(f"mock://{uuid.uuid4()}")
PROTO = """syntax = "proto3";
message A { string a = 1; message Inner { int64 i = 1; } }
message B { int64 b = 1; repeated A many = 2; map<string, A.Inner> by = 3; }
"""
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "all", "type": {"type": "array", "items": "Node"}},
    ],
}
_BRANCHES = [{"type": "array", "items": {"$ref": "#/$defs/t"}}, {"type": "number", "multipleOf": 0.5}]
TREE = {"$ref": "#/$defs/t", "$defs": {"t": {"anyOf": _BRANCHES}}}
A_NODE = {"id": uuid.UUID(int=1), "at": 0, "price": b"\1", "tags": {"a": "b"}, "all": []}


def bound(serde: Serde, topic: str) -> Serde:
    return serde.for_topic(topic, "value", REGISTRY)


VALUES: list[tuple[Serde, Any]] = [
    (bound(serdes.avro(NODE), "avro"), A_NODE),
    (serdes.avro(NODE, without_registry=True), A_NODE),
    (bound(serdes.protobuf(schema=PROTO), "proto"), {"a": "text"}),
    (bound(serdes.protobuf(schema=PROTO, message="B"), "proto2"), {"b": 7, "many": [{"a": "x"}], "by": {"k": {"i": 1}}}),
    (bound(serdes.json_schema({"title": "Tree", **TREE}), "json"), [[1.5], 2]),
    (serdes.message_pack, {"a": [1, b"x", None, 1.5]}),
    (serdes.json, {"a": [1, None, 1.5]}),
    (serdes.string, "text"),
    (serdes.long, 1),
    (serdes.boolean, True),
    (serdes.uuid, uuid.UUID(int=5)),
    (serdes.list_of(serdes.string), ["a", None]),
    (serdes.list_of(serdes.long), [1, None]),
    (serdes.time_windowed(serdes.string, 10), Windowed("k", 0, 10)),
    (serdes.session_windowed(serdes.string), Windowed("k", 0, 10)),
    (change(serdes.string), ("new", "old", True)),
    (subscription(serdes.string), Subscription(bytes(16), 1, "k", 3)),
    (subscription_response(serdes.string), SubscriptionResponse(bytes(16), "v")),
]
WRITTEN = [(serde, serde.serialize(value)) for serde, value in VALUES]
READERS = [*(serde for serde, _ in VALUES), bound(serdes.registry, "any"), bound(serdes.protobuf(), "proto")]


def reads(serde: Serde, data: bytes) -> None:
    try:
        serde.deserialize(data)
    except SerializationError as error:
        assert error.hint


@pytest.mark.parametrize("at", range(len(VALUES)), ids=[serde.name for serde, _ in VALUES])
def test_any_part_of_a_value_and_any_changed_byte_is_read_or_refused(at: int) -> None:
    serde, data = WRITTEN[at]
    for end in range(len(data)):
        reads(serde, data[:end])
        for byte in (0, 1, 0x7F, 0x80, 0xFF, data[end] ^ 1):
            reads(serde, data[:end] + bytes([byte]) + data[end + 1 :])
    reads(serde, data + data)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(READERS) - 1), st.integers(0, len(WRITTEN) - 1), st.binary(max_size=64), st.integers(0, 12))
@example(5, 0, b"\xc7\x0c\xff" + bytes(4) + b"\x7f" * 8, 0)
@example(5, 0, b"\x81\x90\x01", 0)
@example(4, 4, b"[" * 100_000, 5)
@example(6, 0, b"[" * 100_000, 0)
def test_any_bytes_are_read_or_refused(reader: int, writer: int, data: bytes, kept: int) -> None:
    reads(READERS[reader], WRITTEN[writer][1][:kept] + data)


def indexes(*numbers: int) -> bytes:
    out = b""
    for number in numbers:
        number = (number << 1) ^ (number >> 63)
        while number > 0x7F:
            out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
        out += bytes([number])
    return out


@pytest.mark.parametrize(
    "array", [(1, -1), (1, 9), (-1, 0), (-1,), (2, 0, -1), (2, 0, 9), (1, 2**31), (2**31 - 1,), (2, 0, 0, 0)], ids=str
)
@pytest.mark.parametrize("reader", [serdes.protobuf(), serdes.protobuf(schema=PROTO), serdes.registry], ids=["writer's", "own", "registry"])
def test_message_indexes_that_name_no_message_are_refused(array: tuple[int, ...], reader: Serde) -> None:
    data = WRITTEN[2][1]
    if array == (2, 0, 0, 0):  # A.Inner, and then not the message `A` that "own" expects
        if reader.name == "protobuf" and reader.record_schema is None or reader.name == "registry":
            return
    with pytest.raises(SerializationError, match="message"):
        bound(reader, "proto").deserialize(data[:5] + indexes(*array) + data[6:])


def test_a_record_of_another_message_of_the_file_is_refused() -> None:
    own = bound(serdes.protobuf(schema=PROTO, message="B"), "proto")
    with pytest.raises(SerializationError, match="the message B, not A"):
        own.deserialize(WRITTEN[2][1])


def test_the_same_message_at_another_place_of_an_older_file_is_read() -> None:
    old = bound(serdes.protobuf(schema='syntax = "proto3"; message B { int64 b = 1; }'), "older")
    assert bound(serdes.protobuf(schema=PROTO, message="B"), "older").deserialize(old.serialize({"b": 7}))["b"] == 7
    renamed = bound(serdes.protobuf(schema='syntax = "proto3"; package p; message Z { int64 b = 1; }'), "renamed")
    assert bound(serdes.protobuf(schema=PROTO, message="B"), "renamed").deserialize(renamed.serialize({"b": 7}))["b"] == 7


@pytest.mark.parametrize("at", [0, 2, 4], ids=["avro", "protobuf", "json_schema"])
def test_a_schema_id_in_a_header_is_whole(at: int) -> None:
    serde, data = WRITTEN[at]
    end = 6 if at == 2 else 5
    read = serde.deserialize(data)
    for cut in range(len(data)):
        received = framed(data[cut:], [("__value_schema_id", data[:cut])], "value")
        if cut == end:
            assert serde.deserialize(received) == read
        else:
            with pytest.raises(SerializationError):
                serde.deserialize(received)


def test_avro_nested_without_an_end_is_refused_and_does_not_end_the_process() -> None:
    program = """
from kstreams_repl import serdes
from kstreams_repl.system.errors import SerializationError
node = serdes.avro({"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}, without_registry=True)
assert node.deserialize(b"\\x02\\x02\\x00") == {"next": {"next": {"next": None}}}
for depth in (1_000, 10_000, 3_000_000):
    try:
        node.deserialize(b"\\x02" * depth + b"\\x00")
    except SerializationError as error:
        print(depth, "refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split("\n") == ["10000 refused", "3000000 refused", ""], (done.returncode, done.stderr)
