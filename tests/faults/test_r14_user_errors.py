"""R14: user code raises, wherever it stands: the error has the line first, then node and record; a repair goes on and loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import Processor, PunctuationType, StreamsBuilder, serdes
from kstreams_repl.host.instance.failures.failure_report import failure_of
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.testing import TopologyTestDriver
from tests.faults.one_task import BOTH, OneTask
from tests.faults.reliability import note

pytestmark = pytest.mark.kafka
GOOD = {b"k%d" % number: b"v%d" % number for number in range(3)}
MORE = {b"k3": b"v3", b"k4": b"bad", b"k5": b"v5"}
BAD_OFFSET = 4
ARMED: list[bool] = []
"""Not empty when an initializer, which sees no record, is to raise."""
Touch = Callable[[Any], Any]


class Broken(Exception):
    pass


def touch(value: Any) -> Any:
    if value == b"bad":
        raise Broken("not this one")
    return value


def same(value: Any) -> Any:
    return value


def mapper(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    builder.stream(source, **BOTH).map_values(lambda value: do(value), name="here").to(sink, **BOTH)


def predicate(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    builder.stream(source, **BOTH).filter(lambda key, value: bool(do(value)), name="here").to(sink, **BOTH)


def processor(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    class Each(Processor):
        def process(self, record: Any) -> None:
            do(record.value)
            self.context.forward(record)

    builder.stream(source, **BOTH).process(Each, name="here").to(sink, **BOTH)


def aggregator(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    table = builder.stream(source, **BOTH).group_by_key(**BOTH).aggregate(
        lambda: b"", lambda key, value, total: total + do(value), store="kept", name="here", **BOTH
    )
    table.to_stream().to(sink, **BOTH)


def initializer(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    calls: list[int] = []
    armed = bool(ARMED)

    def first() -> bytes:
        calls.append(1)
        if armed and len(calls) == 2:
            do(b"bad")
        return b""

    table = builder.stream(source, **BOTH).group_by_key(**BOTH).aggregate(
        first, lambda key, value, total: total + value, store="kept", name="here", **BOTH
    )
    table.to_stream().to(sink, **BOTH)


def joiner(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    stream = builder.stream(source, **BOTH)
    table = stream.to_table(store="kept", **BOTH)
    stream.join(table, lambda value, row: do(value) + b"|" + row, name="here").to(sink, **BOTH)


def behind_a_cache(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    table = builder.stream(source, **BOTH).group_by_key(**BOTH).reduce(lambda old, new: new, store="kept")
    table.to_stream().map_values(lambda value: do(value), name="here").to(sink, **BOTH)


def punctuator(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    class Timed(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            self.seen: list[Any] = []
            context.schedule(1, PunctuationType.STREAM_TIME, self.tick)

        def process(self, record: Any) -> None:
            self.seen.append(record.value)
            self.context.forward(record)

        def tick(self, now: int) -> None:
            for value in self.seen:
                do(value)

    builder.stream(source, **BOTH).process(Timed, name="here").to(sink, **BOTH)


def extractor(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    def stamp(record: Any, partition_time: int) -> int:
        do(record.value)
        return int(record.timestamp)

    builder.stream(source, timestamp_extractor=stamp, name="here", **BOTH).to(sink, **BOTH)


def reading_serde(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    serde = serdes.Serde(lambda value: value, lambda data: do(bytes(data)))
    builder.stream(source, key_serde=serdes.bytes, value_serde=serde, name="here").to(sink, **BOTH)


def writing_serde(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    serde = serdes.Serde(lambda value: do(value), bytes)
    builder.stream(source, **BOTH).to(sink, key_serde=serdes.bytes, value_serde=serde, name="here")


def partitioner(builder: StreamsBuilder, source: str, sink: str, do: Touch) -> None:
    def place(topic: str, key: Any, value: Any, count: int) -> int:
        do(value)
        return 0

    builder.stream(source, **BOTH).to(sink, partitioner=place, name="here", **BOTH)


PLACES = (
    mapper, predicate, processor, aggregator, initializer, joiner, behind_a_cache, punctuator, extractor, reading_serde, writing_serde,
    partitioner,
)  # fmt: skip
FAST = (aggregator, writing_serde)


def topology_of(place: Callable[..., None], do: Touch) -> Callable[[str, str], Any]:
    def make(source: str, sink: str) -> Any:
        builder = StreamsBuilder()
        place(builder, source, sink, do)
        return builder.build()

    return make


def expected(place: Callable[..., None]) -> list[tuple[bytes | None, bytes | None]]:
    """What a run without errors gives."""
    with TopologyTestDriver(topology_of(place, same)("in", "out")) as driver:
        for number, (key, value) in enumerate((GOOD | MORE).items()):
            driver.pipe_bytes("in", key, value, 1_000 + number)
        return sorted((record.key, record.value) for record in driver.create_output_topic("out").read_records())


@pytest.mark.parametrize("place", [pytest.param(each, marks=() if each in FAST else pytest.mark.slow) for each in PLACES])
def test_an_error_names_line_node_and_record_and_a_repair_loses_nothing(broker: Any, tmp_path: Path, place: Callable[..., None]) -> None:
    task = OneTask(broker.bootstrap_servers, tmp_path, topology_of(place, touch))
    task.process(GOOD)
    task.write(MORE)
    ARMED.append(True)
    instance = task.open()
    ARMED.clear()
    with pytest.raises(KStreamsError) as caught:
        task.run(instance, len(MORE))
    instance.close()
    error = caught.value
    told = failure_of(error)
    assert "Broken: not this one" in told["trace"] and "not this one" in error.message
    assert told["fields"]["node"].endswith("here") or error.node == "here"
    if place is punctuator:
        assert "a punctuation" in error.message
    else:
        assert (error.topic, error.partition, error.offset) == (task.source, 0, BAD_OFFSET)
    assert told["fields"]["user_line"][0] == __file__, told
    assert "not this one" in told["message"].splitlines()[0]

    task.topology = topology_of(place, same)
    repaired = task.open()
    task.run(repaired, len(GOOD | MORE) - repaired.tasks[0].starts[next(iter(repaired.input.by_partition))])
    repaired.close()
    have = sorted(task.results())
    note("R14", f"user code raises: {place.__name__.replace('_', ' ')}", 1, int(have != expected(place)))
    assert have == expected(place)
