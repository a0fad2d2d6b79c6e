"""Errors of ours that a user's function meets because of a record are the processing handler's to decide, as those of its own are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import FixedKeyProcessor, FixedKeyRecord, StreamsBuilder, serdes
from kstreams_repl.engine.processor import Processor, Record
from kstreams_repl.engine.serdes.serde import Serde
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import InvalidRecordError, SerializationError, StreamsProcessingError
from kstreams_repl.testing import TopologyTestDriver
from tests.unit.engine.runtime.rig import Rig

STRING, JSON, BYTES = serdes.string, serdes.json, serdes.bytes
CONTINUE = {"processing.exception.handler": "continue"}


class Retimed(Processor):
    """The value is the record's time."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_timestamp(record.value))


class RetimedValues(FixedKeyProcessor):
    def process(self, record: FixedKeyRecord) -> None:
        self.context.forward(record.with_timestamp(record.value))


def retimed() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").process(Retimed, name="work").to("out")
    return builder.build()


def retimed_values() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").process_values(RetimedValues, name="work").to("out")
    return builder.build()


def reading() -> Topology:
    """Reads the values with one of our serdes by itself."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=STRING, value_serde=BYTES)
    stream.map_values(lambda value: serdes.long.deserialize(value), name="work").to("out")
    return builder.build()


@pytest.mark.parametrize("make", [retimed, retimed_values])
def test_a_negative_timestamp_that_a_processor_gives_is_the_handlers_to_decide(make: Callable[[], Topology]) -> None:
    rig = Rig(make(), CONTINUE)
    rig.pipe("in", ("a", 1, 1), ("b", -1, 2), ("c", 3, 3)).run()
    assert [key for key, _, _ in rig.outbox.to("out")] == [b"a", b"c"]
    assert rig.task.dropped == {"processing": 1}


@pytest.mark.parametrize("make", [retimed, retimed_values])
def test_a_negative_timestamp_is_told_with_node_and_record(make: Callable[[], Topology]) -> None:
    rig = Rig(make())
    rig.pipe("in", ("a", 1, 1), ("b", -1, 2))
    with pytest.raises(StreamsProcessingError, match="must be >= 0 and below 2\\^63, got -1") as failure:
        rig.run()
    assert (failure.value.node, failure.value.offset) == ("work", 1)
    assert isinstance(failure.value.__cause__, InvalidRecordError)


def test_bytes_that_a_function_cannot_read_with_a_serde_are_the_handlers_to_decide() -> None:
    rig = Rig(reading(), CONTINUE)
    good = serdes.long.serialize(5)
    rig.pipe("in", ("a", good, 1), ("b", b"bad", 2), ("c", good, 3)).run()
    assert [key for key, _, _ in rig.outbox.to("out")] == [b"a", b"c"]
    assert rig.task.dropped == {"processing": 1}


def test_bytes_that_a_function_cannot_read_are_told_with_node_and_record() -> None:
    rig = Rig(reading())
    rig.pipe("in", ("a", b"bad", 1))
    with pytest.raises(StreamsProcessingError, match="the long serde cannot read") as failure:
        rig.run()
    assert (failure.value.node, failure.value.offset) == ("work", 0)


class ReadsItsStore(Processor):
    """Writes what cannot be read again, and reads it."""

    def process(self, record: Record) -> None:
        store = self.context.get_state_store("s")
        store.put(record.key, record.value)
        self.context.forward(record.with_value(store.get(record.key)))


def test_what_a_store_holds_and_cannot_read_still_stops_the_task() -> None:
    users_own = Serde(lambda value: b"bad", lambda data: serdes.long.deserialize(data), name="own")
    topology = Topology().add_source("from-in", "in").add_processor("work", ReadsItsStore, "from-in")
    topology.add_state_store(StoreBuilder("s", StoreKind.KEY_VALUE, STRING, users_own), "work").add_sink("to-out", "out", "work")
    rig = Rig(topology, CONTINUE)
    rig.pipe("in", ("a", [1], 1))
    with pytest.raises(SerializationError, match="the long serde cannot read"):
        rig.run()


def joined_with_grace() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("table", store="t", history=1000)
    builder.stream("in").left_join(table, lambda value, row: [value, row], grace=5).to("out")
    return builder.build()


def test_a_null_key_in_a_left_join_with_grace_is_the_handlers_to_decide() -> None:
    rig = Rig(joined_with_grace(), CONTINUE)
    rows: list[tuple[Any, ...]] = [("a", 1, 1), (None, 2, 2), ("b", 3, 20), ("c", 4, 40)]
    rig.pipe("in", *rows).run()
    assert [key for key, _, _ in rig.outbox.to("out")] == [b"a", b"b"]
    assert rig.task.dropped == {"processing": 1}


@pytest.mark.parametrize(
    ("function", "value", "hint"),
    [
        (lambda order: order["price"], b'{"price": 3}', "'in' is read as bytes, the default: value_serde=\"json\" at its source"),
        (lambda line: line.split(" "), b"to be", "value_serde=\"string\" at its source"),
        (lambda line: line.casefold(), b"to be", "value_serde=\"string\" at its source"),
        (lambda order: order["price"] + None, b"3", "value_serde=\"string\""),
        (lambda order: 1 + None, b"3", "fix the function and deploy again"),
    ],
)
def test_a_function_that_meets_bytes_is_told_of_the_serde(function: Callable[[Any], Any], value: bytes, hint: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(function).to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(StreamsProcessingError) as caught:
        driver.pipe_bytes("in", b"k", value, 1)
    assert hint in caught.value.hint
