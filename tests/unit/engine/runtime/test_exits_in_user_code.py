"""`sys.exit()` and other exceptions that are no `Exception` are errors of the function that raised them: node, record, line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kstreams_repl import Processor, PunctuationType, StreamsBuilder
from kstreams_repl.engine.serdes.serde import Serde
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.errors import IllegalStateTransitionError, KStreamsError, SerializationError, StreamsProcessingError
from kstreams_repl.testing import TopologyTestDriver

BOTH = {"key_serde": "string", "value_serde": "string"}


class OwnExit(BaseException):
    pass


def leave(value: str) -> str:
    if value == "exit":
        sys.exit(3)
    if value == "interrupt":
        raise KeyboardInterrupt
    if value == "generator":
        raise GeneratorExit
    if value == "own":
        raise OwnExit("mine")
    return value


def mapper(builder: StreamsBuilder) -> None:
    builder.stream("in", **BOTH).map_values(leave, name="here").to("out", **BOTH)


def behind_a_store(builder: StreamsBuilder) -> None:
    table = builder.stream("in", **BOTH).group_by_key().reduce(lambda old, new: new, store="kept")
    table.to_stream().map_values(leave, name="here").to("out", **BOTH)


def extractor(builder: StreamsBuilder) -> None:
    def stamp(record: Any, partition_time: int) -> int:
        leave(record.value)
        return int(record.timestamp)

    builder.stream("in", timestamp_extractor=stamp, name="here", **BOTH).to("out", **BOTH)


def reading(builder: StreamsBuilder) -> None:
    serde = Serde(str.encode, lambda data: leave(bytes(data).decode()))
    builder.stream("in", key_serde="string", value_serde=serde, name="here").to("out", **BOTH)


def writing(builder: StreamsBuilder) -> None:
    serde = Serde(lambda value: leave(value).encode(), lambda data: bytes(data).decode())
    builder.stream("in", **BOTH).to("out", key_serde="string", value_serde=serde, name="here")


PLACES = [mapper, behind_a_store, extractor, reading, writing]
EXITS = {"exit": SystemExit, "interrupt": KeyboardInterrupt, "generator": GeneratorExit, "own": OwnExit}


def fails(place: Callable[[StreamsBuilder], None], value: str, config: dict[str, Any] | None = None) -> KStreamsError:
    """What three records make of a topology, the third one bad; on another thread, as tasks run deployed."""
    builder = StreamsBuilder()
    place(builder)

    def run() -> KStreamsError:
        with TopologyTestDriver(builder.build(), config or {}) as driver:
            topic = driver.create_input_topic("in", "string", "string")
            with pytest.raises(KStreamsError) as caught:
                topic.pipe_records([("a", "fine", 1), ("b", "good", 2), ("c", value, 3)])
            return caught.value

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(run).result()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", EXITS)
def test_an_exit_is_reported_with_node_record_and_line(place: Callable[..., None], value: str) -> None:
    error = fails(place, value)
    assert isinstance(error, StreamsProcessingError | SerializationError)
    assert isinstance(error.__cause__, EXITS[value])
    assert (error.node, error.topic, error.partition, error.offset) == ("here", "in", 0, 2)
    assert error.user_line.file == __file__ and EXITS[value].__name__ in error.message


@pytest.mark.parametrize("place", [mapper, reading])
def test_no_handler_goes_on_after_an_exit(place: Callable[..., None]) -> None:
    """A user who writes `sys.exit()` wants the process to end, not a record to be skipped."""
    config = {"processing.exception.handler": "continue", "deserialization.exception.handler": "continue"}
    assert fails(place, "exit", config).offset == 2


def test_an_exit_in_init_close_and_punctuation_names_the_node() -> None:
    class Timed(Processor):
        at = "init"

        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(1, PunctuationType.STREAM_TIME, lambda now: self.leave("tick"))
            self.leave("init")

        def process(self, record: Any) -> None:
            pass

        def close(self) -> None:
            self.leave("close")

        def leave(self, at: str) -> None:
            if at == Timed.at:
                sys.exit(at)

    for at in ("init", "tick", "close"):
        Timed.at = at
        builder = StreamsBuilder()
        builder.stream("in", **BOTH).process(Timed, name="here")
        with pytest.raises(StreamsProcessingError, match=f"SystemExit: {at}") as caught:
            with TopologyTestDriver(builder.build()) as driver:
                driver.create_input_topic("in", "string", "string").pipe_records([("a", "b", 1), ("a", "b", 2)])
        assert caught.value.node == "here"


@pytest.mark.parametrize("place", PLACES)
def test_ctrl_c_in_the_main_thread_stays_what_it_is(place: Callable[..., None]) -> None:
    builder = StreamsBuilder()
    place(builder)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", "string", "string")
        with pytest.raises(KeyboardInterrupt):
            topic.pipe_records([("a", "fine", 1), ("c", "interrupt", 3)])


def test_what_ctrl_c_left_half_done_is_not_gone_on_with() -> None:
    builder = StreamsBuilder()
    mapper(builder)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", "string", "string")
        with pytest.raises(KeyboardInterrupt):
            topic.pipe_records([("a", "fine", 1), ("c", "interrupt", 3), ("d", "never", 4)])
        with pytest.raises(IllegalStateTransitionError, match="KeyboardInterrupt.*\n.*\n.*in node here, task 0_0, at in-0 offset 1"):
            topic.pipe_input("e", "lost")


class Interrupt(KeyboardInterrupt):
    """As `WaitInterrupted` is one: Ctrl-C, told further."""


def test_a_kind_of_ctrl_c_passes_in_the_main_thread_only() -> None:
    def interrupted(value: str) -> str:
        raise Interrupt

    builder = StreamsBuilder()
    builder.stream("in", **BOTH).map_values(interrupted, name="here").to("out", **BOTH)

    def run() -> None:
        with TopologyTestDriver(builder.build()) as driver:
            driver.create_input_topic("in", "string", "string").pipe_input("a", "b")

    with pytest.raises(Interrupt):
        run()
    with ThreadPoolExecutor(1) as threads, pytest.raises(StreamsProcessingError, match="Interrupt"):
        threads.submit(run).result()


def test_a_global_store_names_its_record() -> None:
    class Filler(Processor):
        def process(self, record: Any) -> None:
            leave(record.value)

    def place(builder: StreamsBuilder) -> None:
        builder.add_global_store(StoreBuilder("all", StoreKind.KEY_VALUE, logging=False), "in", Filler, **BOTH, name="here")
        builder.stream("other").to("out")

    error = fails(place, "own")
    assert isinstance(error.__cause__, OwnExit) and (error.topic, error.offset) == ("in", 2)
