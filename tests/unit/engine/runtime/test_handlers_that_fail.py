"""A handler that raises, or answers with nothing, ends the task: nobody is asked about that, and nothing is dropped for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import Processor, Response, StreamsBuilder, StreamsConfig
from kstreams_repl.system.errors import ConfigError, IllegalStateTransitionError, StreamsProcessingError
from kstreams_repl.testing import TopologyTestDriver

TEXT = {"default.key.serde": "string", "default.value.serde": "json"}


def driver_of(make: Callable[[Any], None], **handlers: Any) -> TopologyTestDriver:
    builder = StreamsBuilder()
    make(builder)
    config = {f"{name}.exception.handler": handler for name, handler in handlers.items()}
    return TopologyTestDriver(builder.build(), TEXT | config, start_ms=0)


def failing_at_the_second(builder: Any) -> None:
    builder.stream("in").map_values(lambda value: value, name="first").map_values(lambda value: 1 // 0, name="second").to("out")


def pipe(driver: TopologyTestDriver) -> None:
    driver.create_input_topic("in", "string", "json").pipe_input("a", 1, 5)


def test_a_failing_processing_handler_is_not_asked_about_its_own_failure() -> None:
    """The node above took it for an error of its own, and a handler that went on there dropped the record."""
    asked = []

    def handler(context: Any, error: Exception) -> Response:
        asked.append(context.node)
        if context.node == "second":
            raise KeyError("mine")
        return Response.CONTINUE

    driver = driver_of(failing_at_the_second, processing=handler)
    with pytest.raises(StreamsProcessingError, match=r"processing\.exception\.handler raised KeyError") as caught:
        pipe(driver)
    assert asked == ["second"] and driver.dropped == 0
    assert (caught.value.node, caught.value.topic, caught.value.offset) == ("second", "in", 0)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("answer", [None, True, "go on"])
def test_a_processing_handler_that_gives_no_answer_is_named(answer: Any) -> None:
    driver = driver_of(failing_at_the_second, processing=lambda context, error: answer)
    with pytest.raises(StreamsProcessingError, match="handler returned") as caught:
        pipe(driver)
    assert caught.value.node == "second" and isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_handler_that_fails_about_a_punctuation_ends_the_task() -> None:
    class Ticking(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(1, "STREAM_TIME", lambda now: 1 // 0)

        def process(self, record: Any) -> None:
            self.context.forward(record)

    driver = driver_of(lambda builder: builder.stream("in").process(Ticking, name="ticking").to("out"), processing=lambda c, e: None)
    with pytest.raises(StreamsProcessingError, match="handler returned None"):
        pipe(driver)
    with pytest.raises(IllegalStateTransitionError):
        pipe(driver)


def test_a_deserialization_handler_that_fails_is_named() -> None:
    driver = driver_of(lambda builder: builder.stream("in").to("out"), deserialization=lambda context, error: None)
    with pytest.raises(StreamsProcessingError, match=r"deserialization\.exception\.handler returned None"):
        driver.pipe_bytes("in", b"a", b"{", 1)
    with pytest.raises(IllegalStateTransitionError):
        pipe(driver)


def test_a_production_handler_that_fails_is_not_the_processing_handlers() -> None:
    driver = driver_of(
        lambda builder: builder.stream("in").to("out", value_serde="string"), production=lambda context, error: None, processing="continue"
    )
    with pytest.raises(StreamsProcessingError, match=r"production\.exception\.handler returned None"):
        pipe(driver)


@pytest.mark.parametrize("answer", [None, "soon", float("nan"), True, "2024", 2**63, -(2**63) - 1, float("inf")])
def test_an_extractor_that_returns_no_number_is_named(answer: Any) -> None:
    driver = driver_of(lambda builder: builder.stream("in", timestamp_extractor=lambda record, time: answer).to("out"))
    with pytest.raises(StreamsProcessingError, match="timestamp extractor of .* returned") as caught:
        pipe(driver)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("in", 0, 0)


def test_a_default_extractor_that_cannot_be_called_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"default\.timestamp\.extractor"):
        StreamsConfig({"default.timestamp.extractor": "com.example.OrderTime"})


@pytest.mark.parametrize("name", [None, 5])
def test_a_sinks_topic_that_is_no_name_is_told(name: Any) -> None:
    driver = driver_of(lambda builder: builder.stream("in").to(lambda key, value, metadata: name))
    with pytest.raises(StreamsProcessingError, match="expected a topic name"):
        pipe(driver)


@pytest.mark.parametrize("chosen", ["x", -1, [0, -1], [None], 0.5])
def test_what_a_partitioner_returns_must_be_partitions(chosen: Any) -> None:
    driver = driver_of(lambda builder: builder.stream("in").to("out", partitioner=lambda topic, key, value, count: chosen))
    with pytest.raises(StreamsProcessingError, match="from the partitioner, got"):
        pipe(driver)
    assert "out" not in driver.produced_topic_names()
