"""Where a sink sends: fixed topics, topics per record, partitioners, windowed keys."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.processor import Processor, Record
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import SerializationError, StreamsProcessingError
from kstreams_repl.system.types import Windowed
from kstreams_repl.testing import TopologyTestDriver
from tests.unit.engine.runtime.rig import Rig


def rig_of(topic: Any, **options: Any) -> Rig:
    return Rig(Topology().add_source("from-in", "in").add_sink("to", topic, "from-in", **options), partitions=4)


def placed(rig: Rig) -> list[tuple[str, bytes | None, int | None]]:
    return [(topic, key, partition) for topic, key, _, _, _, partition in rig.outbox.sent]


def test_without_a_partitioner_the_collector_places_by_key() -> None:
    rig = rig_of("out")
    rig.pipe("in", ("a", 1, 1)).run()
    assert placed(rig) == [("out", b"a", None)]


def test_null_keys_and_values_are_written_as_null() -> None:
    rig = rig_of("out")
    rig.pipe("in", (None, None, 1)).run()
    assert rig.outbox.to("out") == [(None, None, 1)]


def test_a_function_names_the_topic_of_each_record() -> None:
    rig = rig_of(lambda key, value, metadata: f"{key}-{metadata.topic}-{metadata.offset}")
    rig.pipe("in", ("a", 1, 1), ("b", 2, 2)).run()
    assert [topic for topic, _, _ in placed(rig)] == ["a-in-0", "b-in-1"]


def test_the_topic_may_follow_from_time_and_headers_of_the_record() -> None:
    rig = rig_of(lambda key, value, metadata: f"{dict(metadata.headers).get('kind', b'none').decode()}-{metadata.timestamp}")
    rig.pipe("in", ("a", 1, 1, [("kind", b"paid")]), ("b", 2, 2)).run()
    assert [topic for topic, _, _ in placed(rig)] == ["paid-1", "none-2"]


@pytest.mark.parametrize(
    ("chosen", "partitions"), [(2, [2]), ({3, 1}, [1, 3]), (set(), []), (None, [None])], ids=["one", "several", "none", "by key"]
)
def test_a_partitioner_chooses_one_several_no_or_the_default_partition(chosen: Any, partitions: list[int | None]) -> None:
    rig = rig_of("out", partitioner=lambda topic, key, value, count: chosen)
    rig.pipe("in", ("a", 1, 1)).run()
    assert [partition for _, _, partition in placed(rig)] == partitions


def test_a_partitioner_is_told_topic_key_value_and_how_many_partitions() -> None:
    asked: list[Any] = []
    rig = rig_of("out", partitioner=lambda *arguments: asked.append(arguments))
    rig.pipe("in", ("a", 1, 1)).run()
    assert asked == [("out", "a", 1, 4)]


def test_a_windowed_key_is_placed_by_its_plain_key() -> None:
    class Window(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_key(Windowed(record.key, 10, 20)))

    topology = Topology().add_source("from-in", "in").add_processor("window", Window, "from-in")
    topology.add_sink("to", "out", "window", key_serde=serdes.time_windowed(serdes.string, 10))
    rig = Rig(topology, partitions=4)
    rig.pipe("in", ("abcde", 1, 1)).run()
    assert placed(rig) == [("out", b"abcde" + (10).to_bytes(8, "big"), 5 % 4)]


def test_a_serde_that_is_missing_is_reported_with_the_line_of_the_call_that_lacks_it() -> None:
    """It named a node of a generated topic, which no call of the user has."""
    builder = StreamsBuilder()
    events = builder.stream("events", key_serde="string", value_serde="json")
    events.group_by(lambda key, value: value["page"]).count(store="views")
    expected = r"(?s)views-repartition-sink \(bytes\) cannot write a str.*count\(store=\"views\"\)"
    with pytest.raises(SerializationError, match=expected) as told:
        TopologyTestDriver(builder.build()).create_input_topic("events", "string", "json").pipe_input("a", {"page": "x"})
    assert 'where the key changes: group_by(..., key_serde="string")' in told.value.hint
    assert told.value.fields["user_line"].file == __file__

    builder = StreamsBuilder()
    events = builder.stream("events", key_serde="string", value_serde="json")
    events.join(builder.table("t", key_serde="string", value_serde="json"), lambda a, b: a).group_by_key().aggregate(
        lambda: 0, lambda key, value, so_far: so_far + 1, store="joined"
    )
    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("t", "string", "json").pipe_input("a", {})
    with pytest.raises(StreamsProcessingError, match=r"(?s)cannot write a value of type int.*aggregate\(") as failed:
        driver.create_input_topic("events", "string", "json").pipe_input("a", {})
    assert failed.value.fields["user_line"].file == __file__
