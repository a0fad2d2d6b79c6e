"""Wire formats of foreign-key joins and regrouped tables against bytes made by Kafka Streams' own classes."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.serdes.change import change
from kstreams_repl.engine.serdes.deferred import DeferredSerde
from kstreams_repl.engine.serdes.foreign_key import (
    Subscription,
    SubscriptionResponse,
    foreign_key_prefix,
    hash128,
    subscription,
    subscription_response,
)
from kstreams_repl.system.errors import SerializationError

GOLDEN = json.loads((Path(__file__).parents[3] / "data" / "golden.json").read_text())
HASH = struct.pack(">qq", 1, 2)
INSTRUCTIONS = (
    "DELETE_KEY_NO_PROPAGATE",
    "DELETE_KEY_AND_PROPAGATE",
    "PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE",
    "PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE",
)


@pytest.mark.parametrize("vector", GOLDEN["hash"], ids=lambda vector: vector["key"] or "empty")
def test_murmur3_is_java_s(vector: dict[str, object]) -> None:
    assert list(struct.unpack(">qq", hash128(bytes.fromhex(str(vector["key"]))))) == vector["murmur3_128"]


@pytest.mark.parametrize(("number", "name"), list(enumerate(INSTRUCTIONS)))
def test_subscription_bytes_are_java_s_both_ways(number: int, name: str) -> None:
    serde = subscription(serdes.string)
    value = Subscription(HASH, number, "a", 3)
    data = bytes.fromhex(GOLDEN[f"subscription_wrapper(hash=[1,2],{name},pk=a,part=3)"])
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value


def test_a_subscription_without_hash_sets_the_high_bit_of_the_version() -> None:
    serde = subscription(serdes.string)
    data = serde.serialize(Subscription(None, 0, "a", 3))
    assert data is not None and data.hex() == GOLDEN["subscription_wrapper(null hash)"]
    assert serde.deserialize(data) == Subscription(None, 0, "a", 3)


def test_a_subscription_of_version_0_has_no_partition_and_is_written_back_as_it_was() -> None:
    serde = subscription(serdes.string)
    data = b"\x00\x02" + HASH + b"a"
    assert serde.deserialize(data) == Subscription(HASH, 2, "a", None)
    assert serde.serialize(serde.deserialize(data)) == data


def test_a_subscription_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(SerializationError, match="version 0 or 1"):
        subscription(serdes.string).deserialize(b"\x02\x00" + HASH + b"a")


def test_response_bytes_are_java_s_both_ways() -> None:
    serde = subscription_response(serdes.string)
    data = bytes.fromhex(GOLDEN["subscription_response(hash=[1,2],v,part=3)"])
    assert serde.serialize(SubscriptionResponse(HASH, "v", 3)) == data
    assert serde.deserialize(data) == SubscriptionResponse(HASH, "v", None)


def test_a_response_without_hash_and_value_is_one_byte() -> None:
    serde = subscription_response(serdes.string)
    assert serde.serialize(SubscriptionResponse(None, None, 0)) == b"\x80"
    assert serde.deserialize(b"\x80") == SubscriptionResponse(None, None, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n<-null", ("n", None, True)), ("null<-o", (None, "o", True)), ("n<-o", ("n", "o", True))],
)
def test_change_bytes_are_java_s_both_ways(name: str, value: tuple[str | None, str | None, bool]) -> None:
    serde = change(serdes.string)
    data = bytes.fromhex(GOLDEN[f"changed_serializer({name})"])
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value


@pytest.mark.parametrize("size", [0, 63, 64, 127, 128, 8191, 8192, 100_000])
def test_a_change_of_any_size_survives_a_round_trip(size: int) -> None:
    serde = change(serdes.string)
    assert serde.deserialize(serde.serialize(("n" * size, "old", True))) == ("n" * size, "old", True)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"o\x00\x03", (None, "o", False)),
        (b"n\x01\x04", ("n", None, True)),
        (b"\x02no\x00\x05", ("n", "o", False)),
    ],
)
def test_layouts_that_carry_is_latest_are_read(data: bytes, value: tuple[str | None, str | None, bool]) -> None:
    assert change(serdes.string).deserialize(data) == value


def test_an_empty_change_is_refused() -> None:
    with pytest.raises(SerializationError, match="without new and old"):
        change(serdes.string).serialize((None, None, True))


@pytest.mark.parametrize("data", [b"", b"abc"])
def test_bytes_that_are_no_change_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match="change"):
        change(serdes.string).deserialize(data)


def test_the_prefix_of_a_combined_key_is_its_length_and_the_foreign_key() -> None:
    assert foreign_key_prefix(b"fk") == b"\x00\x00\x00\x02fk"


def test_without_an_inner_serde_the_application_s_default_is_bound_later() -> None:
    assert isinstance(change(), DeferredSerde)
    assert change().bind(serdes.string, serdes.long).serialize((1, None, True)) == serdes.long.serialize(1) + b"\x01"
    assert subscription().bind(serdes.string, serdes.long).deserialize(b"\x81\x00a\x00\x00\x00\x03").primary_key == "a"
