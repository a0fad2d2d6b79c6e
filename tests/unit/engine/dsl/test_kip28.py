"""KIP-28's own front, driven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.dsl.kip28 import DefaultPartitionGrouper, KStreamBuilder, Processor, ProcessorDef, TopologyBuilder
from kstreams_repl.engine.topology import StoreBuilder, StoreKind, Topology
from kstreams_repl.engine.topology.partitions import resolve_partitions
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.system.errors import ConfigError, KStreamsError, TopologyError
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.test_driver.driver import TopologyTestDriver

SERDES = (serdes.string, serdes.json)
CONFIG = {"default.key.serde": "string", "default.value.serde": "json"}


def drive(topology: Topology, records: list[tuple[str, Any, Any, int]], *outputs: str) -> list[list[tuple[Any, Any, int]]]:
    with TopologyTestDriver(topology, CONFIG) as driver:
        for topic, key, value, timestamp in records:
            driver.create_input_topic(topic, *SERDES).pipe_input(key, value, timestamp)
        return [
            [(r.key, r.value, r.timestamp) for r in driver.create_output_topic(topic, *SERDES).read_records()]
            for topic in outputs
        ]


class SumDef(ProcessorDef):
    """The proposal's example: sums per key, printed each 1000 ms of stream time."""

    def stores(self) -> list[StoreBuilder]:
        return [StoreBuilder("local-state", StoreKind.KEY_VALUE)]

    def instance(self) -> Processor:
        return Sum()


class Sum(Processor):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1000)
        self.store = context.get_state_store("local-state")

    def process(self, key: Any, value: Any) -> None:
        self.store.put(key, (self.store.get(key) or 0) + value)
        self.context.commit()

    def punctuate(self, stream_time: int) -> None:
        for key, value in self.store.all():
            self.context.forward(key, value)


def test_the_proposal_s_example_sums_and_punctuates_on_stream_time() -> None:
    builder = TopologyBuilder()
    builder.add_source("SOURCE", "topic-source").add_processor("PROCESS", SumDef(), "SOURCE").add_sink(
        "SINK", "topic-sink", "PROCESS"
    )
    records = [("topic-source", "a", 1, 0), ("topic-source", "a", 2, 10), ("topic-source", "b", 5, 1000)]
    (out,) = drive(builder.build(), records, "topic-sink")
    assert out == [("a", 1, 0), ("a", 3, 1000), ("b", 5, 1000)]


def test_each_task_has_a_processor_of_its_own() -> None:
    made: list[Processor] = []

    class Def(ProcessorDef):
        def instance(self) -> Processor:
            made.append(Processor())
            return made[-1]

    supplier: Any = TopologyBuilder().add_source("s", "t").add_processor("p", Def(), "s").build().node("p")
    supplier.operator()
    supplier.operator()
    assert len(made) == 2 and made[0] is not made[1]


class Router(Processor):
    def process(self, key: Any, value: Any) -> None:
        context = self.context
        if value == "send":
            context.send("side", key, f"{context.topic()}/{context.partition()}/{context.offset()}@{context.timestamp()}")
        elif value == "lost":
            context.send("sides", key, value)
        else:
            context.forward(key, value)


def router() -> Topology:
    builder = TopologyBuilder().add_source("in", "t").add_processor("route", Router, "in", sends_to=["side"])
    return builder.add_sink("main", "main", "route").build()


def test_send_goes_to_its_topic_alone_and_forward_to_the_children() -> None:
    main, side = drive(router(), [("t", "k", "x", 5), ("t", "k", "send", 6)], "main", "side")
    assert main == [("k", "x", 5)]
    assert side == [("k", "t/0/1@6", 6)]


def test_send_to_a_topic_that_was_not_declared_is_refused() -> None:
    with pytest.raises(KStreamsError, match="sides"):
        drive(router(), [("t", "k", "lost", 5)], "main")


def test_a_definition_must_be_one() -> None:
    with pytest.raises(TopologyError):
        TopologyBuilder().add_source("s", "t").add_processor("p", Processor(), "s")  # type: ignore[arg-type]


def test_the_streams_example_maps_branches_and_sends() -> None:
    builder = KStreamBuilder()
    stream = builder.from_("topic1").map(lambda key, value: (key, int(value))).filter(lambda key, value: True)
    large, small = stream.branch(lambda key, value: value > 10, lambda key, value: value <= 10)
    large.send_to("topic2")
    small.send_to("topic3")
    many, few = drive(builder.build(), [("topic1", "k", "11", 0), ("topic1", "k", "10", 1)], "topic2", "topic3")
    assert (many, few) == ([("k", 11, 0)], [("k", 10, 1)])


def test_branch_drops_what_no_predicate_wants() -> None:
    builder = KStreamBuilder()
    (only,) = builder.from_("t").branch(lambda key, value: value == 1)
    only.to("out")
    (out,) = drive(builder.build(), [("t", "k", 1, 0), ("t", "k", 2, 0)], "out")
    assert out == [("k", 1, 0)]


def test_through_writes_a_topic_and_reads_it_again() -> None:
    builder = KStreamBuilder()
    builder.from_("t").map_values(lambda v: v + 1).through("middle").map_values(lambda v: v * 10).to("out")
    topology = builder.build()
    assert len(topology.subtopologies()) == 2
    middle, out = drive(topology, [("t", "k", 1, 0)], "middle", "out")
    assert (middle, out) == ([("k", 2, 0)], [("k", 20, 0)])


def joined(prior: bool, records: list[tuple[str, Any, Any, int]]) -> list[Any]:
    builder = KStreamBuilder()
    left, right = builder.from_("l").with_(10), builder.from_("r").with_(10)
    join = left.join_prior if prior else left.join
    join(right, lambda a, b: f"{a}{b}").to("out")
    (out,) = drive(builder.build(), records, "out")
    return [value for _, value, _ in out]


def test_windowed_streams_join_what_their_windows_hold() -> None:
    records = [("l", "k", "a", 0), ("r", "k", "x", 10), ("r", "k", "y", 11), ("l", "k", "b", 21)]
    assert joined(False, records) == ["ax", "by"]


def test_join_prior_takes_older_records_only() -> None:
    assert joined(True, [("l", "k", "a", 1), ("r", "k", "x", 5), ("l", "k", "b", 6)]) == ["ax", "bx"]


def test_join_prior_leaves_records_of_the_same_time_and_newer_ones_out() -> None:
    assert joined(True, [("r", "k", "x", 5), ("l", "k", "a", 5), ("l", "k", "late", 3)]) == []
    assert joined(False, [("r", "k", "x", 5), ("l", "k", "a", 5), ("l", "k", "late", 3)]) == ["ax", "latex"]


@pytest.mark.parametrize("optimization", ["none", "all"])
def test_join_prior_of_a_stream_with_itself_takes_older_records_only(optimization: str) -> None:
    builder = KStreamBuilder()
    stream = builder.from_("t").with_(10)
    stream.join_prior(stream, lambda a, b: f"{a}{b}").to("out")
    topology = builder.build({"topology.optimization": optimization})
    (out,) = drive(topology, [("t", "k", "a", 0), ("t", "k", "b", 3), ("t", "k", "c", 20)], "out")
    assert [value for _, value, _ in out] == ["ba", "ab"]


def test_a_windowed_stream_is_still_a_stream() -> None:
    builder = KStreamBuilder()
    builder.from_("t").with_(10).filter(lambda k, v: v > 1).to("out")
    (out,) = drive(builder.build(), [("t", "k", 1, 0), ("t", "k", 2, 0)], "out")
    assert out == [("k", 2, 0)]


def test_the_default_grouper_puts_equal_numbers_together() -> None:
    groups = DefaultPartitionGrouper().group({"a": 1, "b": 2})
    assert groups == [{TopicPartition("a", 0), TopicPartition("b", 0)}, {TopicPartition("b", 1)}]


def test_a_builder_keeps_a_custom_grouper() -> None:
    grouper = DefaultPartitionGrouper()
    assert TopologyBuilder(grouper).partition_grouper is grouper


def test_a_topology_brings_the_partition_grouper_of_its_builder_along() -> None:
    class AllInOne:
        def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
            return [{TopicPartition(topic, n) for topic, count in partitions_per_topic.items() for n in range(count)}]

    topology = TopologyBuilder(AllInOne()).add_source("SOURCE", "in").add_sink("SINK", "out", "SOURCE").build()
    assert list(resolve_partitions(topology, "app", {"in": 3, "out": 1}).tasks.values()) == [
        tuple(TopicPartition("in", number) for number in range(3))
    ]


def test_a_partition_grouper_that_cannot_group_is_refused() -> None:
    with pytest.raises(ConfigError, match="partition.grouper"):
        StreamsConfig({"partition.grouper": 3})


class Upper(Processor):
    def process(self, key: Any, value: Any) -> None:
        self.context.forward(key, value.upper())


class UpperDef(ProcessorDef):
    def instance(self) -> Processor:
        return Upper()


@pytest.mark.parametrize("supplier", [Upper, UpperDef()])
def test_process_takes_a_definition_and_a_class(supplier: Any) -> None:
    """A definition was refused, and a class built and failed at the first record."""
    builder = KStreamBuilder()
    builder.from_("in").process(supplier, name="upper").to("out")
    assert drive(builder.build(CONFIG), [("in", "a", "x", 1)], "out") == [[("a", "X", 1)]]


def test_the_stores_of_a_definition_are_connected_by_process() -> None:
    builder = KStreamBuilder()
    builder.from_("in").process(SumDef(), name="sum").to("out")
    assert drive(builder.build(CONFIG), [("in", "a", 1, 1), ("in", "a", 2, 2), ("in", "b", 1, 1000)], "out")[0][-2] == ("a", 3, 1000)


def test_a_processor_of_the_wrong_form_is_refused_before_the_first_record() -> None:
    builder = KStreamBuilder()
    builder.from_("in").process(lambda: Upper())
    with pytest.raises(TopologyError, match=r"process\(\) of the Upper .* must take 1 arguments \(record\)") as told:
        TopologyTestDriver(builder.build(CONFIG), CONFIG)
    assert "ProcessorDef" in told.value.hint


def test_a_topology_builder_is_taken_wherever_a_builder_is() -> None:
    builder = TopologyBuilder().add_source("SOURCE", "in").add_processor("UPPER", Upper, "SOURCE").add_sink("SINK", "out", "UPPER")
    assert topology_of(builder).source_topics() == ("in",)
    with TopologyTestDriver(builder, CONFIG) as driver:
        driver.create_input_topic("in", *SERDES).pipe_input("a", "x", 1)
        assert driver.create_output_topic("out", *SERDES).read_value() == "X"
