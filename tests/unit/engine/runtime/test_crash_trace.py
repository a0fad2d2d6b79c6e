"""A traced task tells where it is before every step into user code."""

from __future__ import annotations

from typing import Any

from kstreams_repl import Processor, PunctuationType, StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.system.types import RecordBatch, TaskId, TopicPartition
from tests.unit.engine.runtime.rig import DEFAULTS, Outbox

IN = TopicPartition("in", 3)


class Places:
    def __init__(self) -> None:
        self.now: tuple[Any, ...] = ()

    def at(self, node: str | None, topic: str | None, partition: int, offset: int) -> None:
        self.now = (node, topic, partition, offset)


def run(builder: StreamsBuilder, places: Places, values: list[bytes], **config: Any) -> StreamTask:
    (part,) = builder.build().subtopologies()
    settings = StreamsConfig(DEFAULTS | {"processing.exception.handler": "continue"} | config)
    spec = TaskSpec("app", part, TaskId(0, 3), {IN: part.nodes[0].name}, settings)
    task = StreamTask(spec, environment=MemoryEnvironment(), collector=Outbox(), wall_clock=lambda: 10, trace=places)
    task.initialize()
    count = len(values)
    task.add_records(IN, RecordBatch([b"k"] * count, values, [5] * count, list(range(20, 20 + count))))
    task.set_lag(IN, 0)
    while task.process(10):
        task.punctuate_stream_time()
    return task


def test_a_function_runs_at_its_nodes_record() -> None:
    places, seen = Places(), []
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=serdes.string, value_serde=serdes.string)
    first = stream.map_values(lambda value: (seen.append(places.now), value)[1], name="first")
    first.foreach(lambda *_: seen.append(places.now), name="second")
    run(builder, places, [b"a", b"b"])
    assert seen == [("first", "in", 3, 20), ("second", "in", 3, 20), ("first", "in", 3, 21), ("second", "in", 3, 21)]
    assert places.now[0] is None


def test_what_comes_after_a_forward_is_the_forwarding_nodes() -> None:
    places, seen = Places(), []

    class Twice(Processor):
        def process(self, record: Any) -> None:
            self.context.forward(record)
            seen.append(places.now[0])

    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=serdes.string, value_serde=serdes.string)
    stream.process(Twice, name="twice").foreach(lambda *_: None, name="last")
    run(builder, places, [b"a"])
    assert seen == ["twice"]


def test_a_serde_runs_at_the_record_it_reads() -> None:
    places, seen = Places(), []

    def read(data: bytes) -> str:
        seen.append(places.now)
        return data.decode()

    builder = StreamsBuilder()
    serde = serdes.Serde(lambda value: value.encode(), read)
    builder.stream("in", key_serde=serdes.string, value_serde=serde, name="source").foreach(lambda *_: None)
    run(builder, places, [b"a", b"b", b"c"])
    assert [(topic, partition, offset) for _, topic, partition, offset in seen] == [("in", 3, 20), ("in", 3, 21), ("in", 3, 22)]
    assert len({node for node, *_ in seen}) == 1 and seen[0][0] is not None


def test_a_punctuation_runs_at_its_node_and_no_record() -> None:
    places, seen = Places(), []

    class Timer(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            seen.append(places.now[0])
            context.schedule(1, PunctuationType.STREAM_TIME, lambda now: seen.append(places.now))

        def process(self, record: Any) -> None:
            pass

    builder = StreamsBuilder()
    builder.stream("in", key_serde=serdes.string, value_serde=serdes.string).process(Timer, name="timer")
    run(builder, places, [b"a"])
    assert seen == ["timer", ("timer", None, -1, -1)]


def test_a_flush_of_a_cache_runs_at_the_record_of_the_entry() -> None:
    places, seen = Places(), []
    builder = StreamsBuilder()
    counts = builder.stream("in", key_serde=serdes.string, value_serde=serdes.string).group_by_key().count(store="counts")
    counts.to_stream().foreach(lambda *_: seen.append(places.now), name="out")
    task = run(builder, places, [b"a", b"b"], **{"statestore.cache.max.bytes": 1_000_000})
    assert not seen
    task.prepare_commit()
    assert seen == [("out", "in", 3, 21)]
