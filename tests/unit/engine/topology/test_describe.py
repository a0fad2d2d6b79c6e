"""The text of `describe()`; the 473 texts of the JVM are compared in tests/conformance."""

from __future__ import annotations

from kstreams_repl.engine.processor import Processor
from kstreams_repl.engine.topology import StoreBuilder, StoreKind, Topology


def test_a_sub_topology_is_shown_with_stores_and_arrows() -> None:
    topology = Topology().add_source("in", "b", "a").add_processor("p", Processor, "in").add_sink("out", "o", "p")
    topology.add_state_store(StoreBuilder("s", StoreKind.KEY_VALUE), "p")
    assert str(topology.describe()) == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: in (topics: [a, b])\n"
        "      --> p\n"
        "    Processor: p (stores: [s])\n"
        "      --> out\n"
        "      <-- in\n"
        "    Sink: out (topic: o)\n"
        "      <-- p\n"
        "\n"
    )


def test_a_global_store_is_shown_as_one_that_makes_no_tasks() -> None:
    topology = Topology().add_global_store(StoreBuilder("g", StoreKind.KEY_VALUE, logging=False), "gs", "t", "gp", Processor)
    assert str(topology.describe()) == (
        "Topologies:\n"
        "   Sub-topology: 0 for global store (will not generate tasks)\n"
        "    Source: gs (topics: [t])\n"
        "      --> gp\n"
        "    Processor: gp (stores: [g])\n"
        "      --> none\n"
        "      <-- gs\n"
    )


def test_topics_chosen_per_record_show_the_extractor() -> None:
    def by_size(key: object, value: object, metadata: object) -> str:
        return "small"

    text = str(Topology().add_source("in", "t").add_sink("out", by_size, "in").describe())
    assert "extractor class:" in text and "by_size)" in text


def test_the_node_with_most_below_it_comes_first() -> None:
    topology = Topology().add_source("a", "t1").add_source("z", "t2")
    topology.add_processor("m", Processor, "a", "z").add_processor("n", Processor, "z")
    names = [node.name for node in topology.describe().subtopologies[0].nodes]
    assert names == ["z", "a", "m", "n"]


def test_many_diamonds_in_a_row_are_described_at_once() -> None:
    topology = Topology().add_source("p0", "t")
    for i in range(40):  # 2 ** 40 paths from first to last
        topology.add_processor(f"l{i}", Processor, f"p{i}").add_processor(f"r{i}", Processor, f"p{i}")
        topology.add_processor(f"p{i + 1}", Processor, f"l{i}", f"r{i}")
    assert topology.describe().subtopologies[0].nodes[0].name == "p0"
