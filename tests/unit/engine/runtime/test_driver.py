"""The test driver and its topics: times, serdes, what is closed, names that do not exist."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.system.errors import IllegalStateTransitionError, KStreamsError
from kstreams_repl.testing import TopologyTestDriver

TEXT = {"default.key.serde": "string", "default.value.serde": "json"}


@pytest.fixture
def driver() -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return TopologyTestDriver(builder.build(), TEXT, start_ms=100)


def times(driver: TopologyTestDriver) -> list[int | None]:
    return [record.timestamp for record in driver.create_output_topic("out", "string", "json").read_records()]


def test_records_advance_without_a_start_of_their_own(driver: TopologyTestDriver) -> None:
    """They stayed where the wall clock was: windows that a test meant to cross were never crossed."""
    driver.create_input_topic("in", "string", "json", auto_advance=10).pipe_records([("a", 1), ("a", 2), ("a", 3)])
    assert times(driver) == [100, 110, 120]


def test_times_may_be_datetimes(driver: TopologyTestDriver) -> None:
    start = datetime(1970, 1, 1, 0, 0, 1)
    topic = driver.create_input_topic("in", "string", "json", start_timestamp=start, auto_advance=timedelta(seconds=1))
    topic.pipe_records([("a", 1), ("a", 2)])
    topic.pipe_input("a", 3, start.replace(tzinfo=UTC))
    assert times(driver) == [1000, 2000, 1000]
    assert TopologyTestDriver(StreamsBuilder().build(), TEXT, start_ms=start).now() == 1000


def test_the_time_of_a_topic_moves(driver: TopologyTestDriver) -> None:
    topic = driver.create_input_topic("in", "string", "json", start_timestamp=5)
    topic.pipe_input("a", 1)
    topic.advance_time(timedelta(milliseconds=20))
    topic.pipe_input("a", 2)
    assert times(driver) == [5, 25]


@pytest.mark.parametrize("by", [-1, 1.5, None])
def test_time_does_not_go_back_or_by_halves(driver: TopologyTestDriver, by: Any) -> None:
    with pytest.raises(KStreamsError, match="by must be a duration of whole milliseconds"):
        driver.advance_wall_clock_time(by)
    with pytest.raises(KStreamsError, match="advance"):
        driver.create_input_topic("in", auto_advance=by)
    with pytest.raises(KStreamsError, match="by must be a duration of whole milliseconds"):
        driver.create_input_topic("in").advance_time(by)
    assert driver.now() == 100


def test_a_timestamp_is_a_whole_number(driver: TopologyTestDriver) -> None:
    with pytest.raises(KStreamsError, match="timestamp"):
        driver.create_input_topic("in", "string", "json").pipe_input("a", 1, 1.5)  # type: ignore[arg-type]


def test_headers_may_be_a_dict(driver: TopologyTestDriver) -> None:
    driver.create_input_topic("in", "string", "json").pipe_input("a", 1, 1, {"h": b"x"})
    assert driver.create_output_topic("out", "string", "json").read_record().headers == [("h", b"x")]


def test_values_are_read_alone(driver: TopologyTestDriver) -> None:
    driver.create_input_topic("in", "string", "json").pipe_records([("a", 1, 1), ("b", 2, 2)])
    assert driver.create_output_topic("out", "string", "json").read_values() == [1, 2]


def test_a_closed_driver_takes_nothing_and_shows_what_was_written(driver: TopologyTestDriver) -> None:
    topic = driver.create_input_topic("in", "string", "json")
    topic.pipe_input("a", 1, 1)
    driver.close()
    with pytest.raises(IllegalStateTransitionError, match="closed"):
        topic.pipe_input("a", 2, 2)
    with pytest.raises(IllegalStateTransitionError, match="closed"):
        driver.advance_wall_clock_time(1)
    assert times(driver) == [1]


def test_a_mistyped_output_topic_is_told(driver: TopologyTestDriver) -> None:
    with pytest.raises(KStreamsError, match="written nothing") as caught:
        driver.create_output_topic("outt").read_record()
    assert caught.value.hint == "did you mean 'out'?"


def test_a_builder_is_built_with_the_drivers_settings() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(lambda key, value: value)
    stream.group_by_key().count()
    stream.group_by_key().count()
    for setting, topics in (("none", 2), ("all", 1)):
        driver = TopologyTestDriver(builder, TEXT | {"topology.optimization": setting})
        driver.create_input_topic("in", "string", "json").pipe_input("a", "b", 1)
        assert sum(name.endswith("-repartition") for name in driver.produced_topic_names()) == topics
