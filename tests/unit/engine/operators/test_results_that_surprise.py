"""Results that are Kafka Streams' own and that a page has to tell: `docs/reference/divergences.md` names both."""

from __future__ import annotations

from typing import Any

import kstreams_repl as ks

TEXT: dict[str, Any] = {"key_serde": "string", "value_serde": "string"}
JSON: dict[str, Any] = {"key_serde": "string", "value_serde": "json"}


def results(builder: ks.StreamsBuilder, *records: tuple[str, str, str, int]) -> list[list[tuple[Any, Any]]]:
    """Return what each record (topic, key, value, timestamp) adds to the topic `out`."""
    with ks.testing.TopologyTestDriver(builder.build()) as driver:
        output, found = driver.create_output_topic("out", "string", "json"), []
        for topic, key, value, timestamp in records:
            driver.create_input_topic(topic, "string", "string").pipe_input(key, value, timestamp)
            found.append([(record.key, record.value) for record in output.read_records()])
    return found


def test_an_out_of_order_record_of_a_left_join_is_joined_with_none_and_within_the_grace_with_its_match() -> None:
    builder = ks.StreamsBuilder()
    left, right = builder.stream("left", **TEXT), builder.stream("right", **TEXT)
    left.left_join(right, lambda one, two: [one, two], ks.JoinWindows.of_time_difference(10, grace=100)).to("out", **JSON)
    assert results(builder, ("left", "z", "z", 100), ("left", "a", "A", 50), ("right", "a", "B", 55)) == [
        [], [("a", ["A", None])], [("a", ["A", "B"])],
    ]  # fmt: skip


def test_a_record_that_joins_a_session_exactly_at_its_close_emits_it_again() -> None:
    builder = ks.StreamsBuilder()
    sessions = builder.stream("in", **TEXT).group_by_key().windowed_by(ks.SessionWindows.of_inactivity_gap(10, grace=5))
    closed = sessions.count(store="counts").suppress(ks.Suppressed.until_window_closes())
    closed.to_stream().map(lambda window, count: (window.key, count)).to("out", **JSON)
    rows = (("in", "a", "x", 100), ("in", "b", "x", 115), ("in", "a", "x", 100), ("in", "b", "x", 116), ("in", "a", "x", 100))
    assert results(builder, *rows) == [[], [("a", 1)], [("a", 2)], [], []]


def test_sessions_of_no_gap_hold_the_records_of_one_timestamp() -> None:
    builder = ks.StreamsBuilder()
    counted = builder.stream("in", **TEXT).group_by_key().windowed_by(ks.SessionWindows.of_inactivity_gap(0, grace=5)).count(store="counts")
    counted.to_stream().map(lambda window, count: (window.key, [window.start, window.end, count])).to("out", **JSON)
    found = results(builder, ("in", "a", "x", 100), ("in", "a", "x", 100), ("in", "a", "x", 101))
    assert [shown[-1][1] for shown in found] == [[100, 100, 1], [100, 100, 2], [101, 101, 1]]
