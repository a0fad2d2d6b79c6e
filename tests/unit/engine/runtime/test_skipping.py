"""Records that the user wants left out (``repl.skip.records``): exactly these, with a dead letter, and the offset moves past them."""

from __future__ import annotations

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.system.errors import ConfigError, StreamsProcessingError
from kstreams_repl.system.types import RecordBatch, RecordPosition, TopicPartition
from kstreams_repl.testing import TopologyTestDriver
from tests.unit.engine.runtime.rig import Rig, recording

AT = TopicPartition("in", 0)


@pytest.mark.parametrize("offsets", [[0], [49], [99], [10, 11, 50], list(range(100))])
@pytest.mark.parametrize("batches", [1, 100])
def test_exactly_these_records_are_left_out(offsets: list[int], batches: int) -> None:
    seen: list[tuple[str, int, int]] = []
    rig = Rig(recording(seen, "in"), {"repl.skip.records": ", ".join(f"in-0@{offset}" for offset in offsets)})
    numbers = list(range(100))
    for part in range(batches):
        part_of = numbers[part * 100 // batches : (part + 1) * 100 // batches]
        rig.task.add_records(AT, RecordBatch([b"k"] * len(part_of), [str(n).encode() for n in part_of], part_of, part_of))
    rig.run()
    assert [value for _, value, *_ in seen] == [number for number in numbers if number not in offsets]
    assert rig.commit().offsets[AT] == 100 and rig.task.dropped == {"skipped": len(offsets)}


def doubled(config: dict[str, object]) -> TopologyTestDriver:
    builder = StreamsBuilder()
    doubling = builder.stream("in", key_serde="string", value_serde="json").map_values(lambda order: order["price"] * 2)
    doubling.to("out", value_serde="json")
    return TopologyTestDriver(builder.build(), config)


def test_no_handler_is_asked_and_the_record_becomes_a_dead_letter() -> None:
    asked = []
    driver = doubled(
        {
            "repl.skip.records": "in-0@1",
            "deserialization.exception.handler": lambda *about: asked.append(about),
            "errors.dead.letter.queue.topic.name": "dead",
        }
    )
    orders = driver.create_input_topic("in", "string", "json")
    orders.pipe_records([("a", {"price": 3}, 1), ("b", {"prize": 3}, 2), ("c", {"price": 4}, 3)])
    assert driver.create_output_topic("out", "string", "json").read_key_values() == [("a", 6), ("c", 8)]
    letter = driver.create_output_topic("dead").read_record()
    headers = dict(letter.headers)
    assert (letter.key, letter.value, letter.timestamp) == (b"b", b'{"prize":3}', 2) and not asked
    assert headers["__streams.errors.offset"] == b"1" and headers["__streams.errors.exception"] == b"RecordSkipped"


def test_another_record_still_fails() -> None:
    driver = doubled({"repl.skip.records": "in-0@0, other-0@1"})
    orders = driver.create_input_topic("in", "string", "json")
    orders.pipe_input("a", {"prize": 1}, 1)
    with pytest.raises(StreamsProcessingError, match="in-0 offset 1"):
        orders.pipe_input("b", {"prize": 3}, 2)


def test_places_are_read_and_written() -> None:
    assert StreamsConfig({"repl.skip.records": " a-b-0@7,c-12@0 "})["repl.skip.records"] == "a-b-0@7, c-12@0"
    assert RecordPosition.parse("a-b-0@7") == ("a-b", 0, 7)
    for wrong in ("a@7", "a-x@7", "a-0@", "a-0", "-0@1", "a-0@-1"):
        with pytest.raises(ConfigError, match="TOPIC-PARTITION@OFFSET"):
            StreamsConfig({"repl.skip.records": wrong})
