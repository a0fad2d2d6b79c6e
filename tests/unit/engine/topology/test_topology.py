"""`Topology`: what it holds, what it refuses, how sub-topologies come about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.engine.processor import Processor
from kstreams_repl.engine.topology import Origin, ProcessorNode, SinkNode, SourceNode, StoreBuilder, StoreKind, Topology
from kstreams_repl.engine.topology.description.source_location import cell_started
from kstreams_repl.system.errors import InvalidNameError, TopologyError


def store(name: str = "s", **changes: Any) -> StoreBuilder:
    return StoreBuilder(name, StoreKind.KEY_VALUE, **changes)


def chain() -> Topology:
    return Topology().add_source("in", "topic").add_processor("work", Processor, "in").add_sink("out", "result", "work")


def refusal(call: Any) -> TopologyError:
    with pytest.raises(TopologyError) as refused:
        call()
    assert refused.value.hint
    return refused.value


def test_nodes_are_kept_in_insertion_order() -> None:
    assert list(chain().nodes) == ["in", "work", "out"]


def test_children_come_in_insertion_order() -> None:
    topology = chain().add_processor("second", Processor, "in")
    assert topology.children("in") == ("work", "second")
    assert topology.children("out") == ()


def test_nodes_name_their_parents() -> None:
    work, out = chain().node("work"), chain().node("out")
    assert isinstance(work, ProcessorNode) and work.parents == ("in",)
    assert isinstance(out, SinkNode) and out.topic == "result"


def test_a_name_used_twice_is_refused() -> None:
    error = refusal(lambda: chain().add_processor("work", Processor, "in"))
    assert error.node == "work"


def test_an_unknown_parent_is_refused_with_the_one_that_was_meant() -> None:
    error = refusal(lambda: chain().add_processor("more", Processor, "worc"))
    assert error.hint == "did you mean 'work'?"


def test_a_sink_cannot_be_a_parent() -> None:
    refusal(lambda: chain().add_processor("more", Processor, "out"))


def test_a_node_cannot_be_its_own_parent() -> None:
    refusal(lambda: chain().add_processor("self", Processor, "self"))


def test_a_processor_needs_a_parent() -> None:
    refusal(lambda: chain().add_processor("alone", Processor))


def test_a_supplier_must_be_callable() -> None:
    refusal(lambda: chain().add_processor("bad", object(), "in"))


def test_a_source_needs_a_topic() -> None:
    refusal(lambda: Topology().add_source("in"))


def test_a_topic_has_one_source() -> None:
    error = refusal(lambda: chain().add_source("again", "topic"))
    assert error.topic == "topic"


def test_a_pattern_must_not_match_a_topic_that_is_read_already() -> None:
    refusal(lambda: chain().add_source("all", re.compile("top.*")))


def test_a_topic_must_not_match_a_pattern_that_is_read_already() -> None:
    refusal(lambda: Topology().add_source("all", re.compile("top.*")).add_source("one", "topic"))


def test_a_topic_name_that_kafka_refuses_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        Topology().add_source("in", "no good")
    with pytest.raises(InvalidNameError):
        chain().add_sink("more", "no/good", "in")


def test_an_unknown_offset_reset_is_refused() -> None:
    refusal(lambda: Topology().add_source("in", "t", offset_reset="begin"))


def test_a_store_is_connected_to_its_processors() -> None:
    topology = chain().add_state_store(store(), "work")
    work = topology.node("work")
    assert isinstance(work, ProcessorNode) and work.stores == ("s",)
    assert [s.name for s in topology.subtopologies()[0].stores] == ["s"]


def test_a_different_store_of_the_same_name_is_refused() -> None:
    error = refusal(lambda: chain().add_state_store(store(), "work").add_state_store(store()))
    assert error.store == "s"


@pytest.mark.parametrize("order", [1, -1])
def test_a_store_named_like_another_one_s_history_is_refused(order: int) -> None:
    """Both kept their rows in one place, where each took the other's for its own."""
    pair = [StoreBuilder("prices", StoreKind.VERSIONED, retention_ms=1000), store("prices.history")][::order]
    topology = chain().add_state_store(pair[0], "work")
    assert "prices.history" in refusal(lambda: topology.add_state_store(pair[1], "work")).message
    chain().add_state_store(store("prices"), "work").add_state_store(store("prices.history"), "work")


def test_the_same_store_may_be_added_again_to_connect_it() -> None:
    builder = store()
    topology = chain().add_processor("more", Processor, "in").add_state_store(builder, "work").add_state_store(builder, "more")
    assert isinstance(topology.node("more"), ProcessorNode)
    assert topology.node("more").stores == ("s",)  # type: ignore[union-attr]


def test_an_unknown_store_is_refused_with_the_one_that_was_meant() -> None:
    topology = chain().add_state_store(store("counts"))
    error = refusal(lambda: topology.connect_processor_and_state_stores("work", "count"))
    assert error.hint == "did you mean 'counts'?"
    assert (error.node, error.store) == ("work", "count")


def test_a_store_cannot_be_connected_to_a_source() -> None:
    refusal(lambda: chain().add_state_store(store(), "in"))


def test_a_supplier_s_own_stores_are_added_and_connected() -> None:
    class Counting:
        def __call__(self) -> Processor:
            return Processor()

        def stores(self) -> list[StoreBuilder]:
            return [store("own")]

    topology = Topology().add_source("in", "t").add_processor("count", Counting(), "in")
    assert topology.node("count").stores == ("own",)  # type: ignore[union-attr]


def test_unconnected_parts_are_sub_topologies_of_their_own() -> None:
    topology = chain().add_source("in2", "topic2").add_sink("out2", "result2", "in2")
    assert [[node.name for node in part.nodes] for part in topology.subtopologies()] == [["in", "work", "out"], ["in2", "out2"]]


def test_a_shared_store_unites_sub_topologies() -> None:
    builder = store()
    topology = (
        chain().add_source("in2", "topic2").add_processor("work2", Processor, "in2").add_state_store(builder, "work", "work2")
    )
    assert len(topology.subtopologies()) == 1


def test_a_global_store_uses_a_sub_topology_id_up() -> None:
    topology = Topology().add_global_store(store("g", logging=False), "gs", "globals", "gp", Processor)
    topology.add_source("in", "t").add_sink("out", "o", "in")
    first, second = topology.subtopologies()
    assert (first.id, first.global_, second.id, second.global_) == (0, True, 1, False)
    together = topology.global_stores()
    assert together is not None and [s.name for s in together.stores] == ["g"]


def test_a_global_store_is_restored_from_its_topic() -> None:
    topology = Topology().add_global_store(store("g", logging=False), "gs", "globals", "gp", Processor)
    builder = topology.store("g")
    assert (builder.source_topic, builder.logging, builder.options["reprocess_on_restore"]) == ("globals", False, True)


def test_a_global_store_with_a_changelog_is_refused() -> None:
    refusal(lambda: Topology().add_global_store(store("g"), "gs", "globals", "gp", Processor))


def test_a_global_store_needs_no_connection_and_takes_none() -> None:
    topology = chain().add_global_store(store("g", logging=False), "gs", "globals", "gp", Processor)
    refusal(lambda: topology.connect_processor_and_state_stores("work", "g"))


def test_a_read_only_store_has_its_topic_as_changelog() -> None:
    topology = Topology().add_read_only_state_store(store("r"), "rs", "rows", "rp", Processor)
    source, builder = topology.node("rs"), topology.store("r")
    assert isinstance(source, SourceNode) and source.offset_reset == "earliest"
    assert (builder.source_topic, builder.logging) == ("rows", False)


def test_an_unknown_node_is_answered_with_the_one_that_was_meant() -> None:
    assert refusal(lambda: chain().node("wok")).hint == "did you mean 'work'?"


def test_a_node_knows_the_line_that_made_it() -> None:
    origin = chain().node("in").origin
    assert origin.file == __file__
    assert origin.line is not None and "add_source" in Path(__file__).read_text(encoding="utf-8").splitlines()[origin.line - 1]


def test_a_node_knows_the_cell_that_made_it() -> None:
    cell_started("cell-7")
    try:
        topology = chain()
    finally:
        cell_started(None)
    assert topology.node("in").origin.cell == "cell-7"
    assert chain().node("in").origin.cell is None


def test_origins_do_not_count_when_nodes_are_compared() -> None:
    assert SourceNode("a", ("t",), origin=Origin(cell="1")) == SourceNode("a", ("t",), origin=Origin(cell="2"))
