"""What the DSL has since Kafka Streams 4.4, where no case of the oracle reaches (`tests/conformance/random/since_4_4.jsonl.gz`)."""

from __future__ import annotations

from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.system.errors import TopologyError

CONFIG = {"application.id": "app", "default.key.serde": "string", "default.value.serde": "string"}


def test_a_joiner_takes_one_key_or_both_and_only_a_global_table_has_a_mapped_one() -> None:
    builder = ks.StreamsBuilder()
    stream, cities, table = builder.stream("in"), builder.global_table("cities"), builder.table("table")
    with pytest.raises(TopologyError, match="got both"):
        stream.join(cities, lambda k, m, v, o: v, key=lambda k, v: v, with_key=True, with_mapped_key=True)
    with pytest.raises(TopologyError, match="has no argument 'with_mapped_key'"):
        stream.join(table, lambda k, m, v, o: v, with_mapped_key=True)  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match="key, mapped key, value, other"):
        stream.join(cities, lambda k, v, o: v, key=lambda k, v: v, with_mapped_key=True)


def test_a_partitioner_of_a_join_by_a_foreign_key_sees_the_headers_of_the_row_that_is_sent() -> None:
    seen: list[Any] = []

    def by_header(topic: str, key: object, value: object, headers: list[tuple[str, bytes | None]], partitions: int) -> int:
        seen.append((topic.rpartition("-")[0][-12:], key, value, headers))
        return 0

    builder = ks.StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    joined = left.join(
        right, lambda a, b: f"{a}{b}", foreign_key=lambda value: value, partitioner=by_header, other_partitioner=by_header
    )
    joined.to_stream().to("out")
    with ks.testing.TopologyTestDriver(builder.build(), CONFIG) as driver:
        driver.create_input_topic("right", "string", "string").pipe_input("x", "r", 1, [("of", b"right")])
        driver.create_input_topic("left", "string", "string").pipe_input("a", "x", 2, [("of", b"left")])
        assert driver.create_output_topic("out", "string", "string").read_key_values() == [("a", "xr")]
    assert [(key, value, headers) for _, key, value, headers in seen] == [
        ("x", None, [("of", b"left")]),
        ("a", None, [("of", b"left")]),
    ]


def test_a_partitioner_cannot_change_the_headers_that_are_sent() -> None:
    def emptying(topic: str, key: object, value: object, headers: list[Any], partitions: int) -> int:
        headers.clear()
        return 0

    builder = ks.StreamsBuilder()
    builder.stream("in").to("out", partitioner=emptying)
    with ks.testing.TopologyTestDriver(builder.build(), CONFIG) as driver:
        driver.create_input_topic("in", "string", "string").pipe_input("a", "1", 1, [("h", b"1")])
        assert driver.create_output_topic("out", "string", "string").read_record().headers == [("h", b"1")]


def test_a_partitioner_with_five_arguments_must_name_headers() -> None:
    with pytest.raises(TopologyError, match="partitioner"):
        ks.StreamsBuilder().stream("in").to("out", partitioner=lambda topic, key, value, other, partitions: 0)
