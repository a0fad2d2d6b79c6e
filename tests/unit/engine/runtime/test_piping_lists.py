"""Lists of values and of pairs into an input topic of the test driver, with Kafka Streams' times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kstreams_repl import StreamsBuilder
from kstreams_repl.testing import TopologyTestDriver


def test_values_and_pairs_are_piped_in_order_at_their_times() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde="string", value_serde="string").to("out")
    with TopologyTestDriver(builder.build(), start_ms=5_000) as driver:
        topic = driver.create_input_topic("in", "string", "string", start_timestamp=100, auto_advance=10)
        out = driver.create_output_topic("out", "string", "string")
        topic.pipe_value_list(["a", "b"])
        topic.pipe_value_list(["c", "d"], datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), timedelta(seconds=2))
        topic.pipe_key_value_list([("k", "e"), ("l", "f")], 50, 1)
        topic.pipe_key_value_list([("k", "g")])
        topic.pipe_value_list(["h"], 7)
        seen = [(record.key, record.value, record.timestamp) for record in out.read_records()]
    assert seen == [
        (None, "a", 100), (None, "b", 110), (None, "c", 1_000), (None, "d", 3_000), ("k", "e", 50), ("l", "f", 51), ("k", "g", 120),
        (None, "h", 7),
    ]  # fmt: skip
