"""What a fork writes and leaves out, without a broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.nodes import ProcessorNode, SinkNode, SourceNode
from kstreams_repl.repl.session.application.forks.fork_record import (
    ForkRecord,
    fork_id,
    read_records,
    remove_record,
    write_record,
)
from kstreams_repl.repl.session.application.forks.fork_topology import ForkTopology, fork_topology
from kstreams_repl.system.errors import InvalidNameError, SessionFileError, TopologyError
from kstreams_repl.system.processes import ProcessMark

STRING: dict[str, Any] = {"key_serde": "string", "value_serde": "string"}


def forked(builder: ks.StreamsBuilder, *allow: str, **config: object) -> ForkTopology:
    return fork_topology(builder.build(), StreamsConfig(dict(config)), "app.x", allow)


def test_sinks_and_dead_letters_have_topics_of_the_forks_own() -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", **STRING)
    stream.to("out", name="sink")
    stream.select_key(lambda key, value: value).group_by_key(**STRING).count(store="counts")
    runs = forked(builder, **{"errors.dead.letter.queue.topic.name": "bad"})
    assert runs.outputs == {"out": "app.x-out", "bad": "app.x-bad"} and not runs.loops and not runs.left_out
    sinks = {node.topic for node in runs.topology.nodes.values() if isinstance(node, SinkNode)}
    assert "app.x-out" in sinks and "out" not in sinks, sinks
    assert sinks - {"app.x-out"} <= set(runs.topology.internal_topics), "an internal topic keeps its logical name"
    assert set(builder.build().sink_topics()) >= {"out"}, "the topology given is not changed"


def test_a_topic_that_is_written_and_read_is_renamed_at_both_ends_also_as_a_changelog() -> None:
    builder = ks.StreamsBuilder()
    builder.stream("in", **STRING).to("loop")
    builder.table("loop", **STRING, store="table", name="again")
    runs = fork_topology(builder.build({"topology.optimization": "all"}), StreamsConfig({}), "app.x", ())
    source = runs.topology.node("again") if "again" in runs.topology.nodes else None
    sources = [node for node in runs.topology.nodes.values() if isinstance(node, SourceNode)]
    assert runs.loops == {"loop"} and {topic for node in sources for topic in node.topics} == {"in", "app.x-loop"}, source
    assert runs.topology.store("table").source_topic == "app.x-loop"


def test_a_global_table_reads_the_topic_as_it_is() -> None:
    builder = ks.StreamsBuilder()
    builder.stream("in", **STRING).to("rates")
    builder.global_table("rates", **STRING, store="rates")
    runs = forked(builder)
    assert runs.outputs == {"rates": "app.x-rates"} and not runs.loops and "rates" in runs.topology.source_topics()


def test_effects_are_left_out_unless_they_are_allowed() -> None:
    seen: list[str] = []
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", **STRING)
    stream.peek(lambda key, value: seen.append(value), name="peek").to("out")
    stream.foreach(lambda key, value: seen.append(value), name="each")
    stream.print(label="shown", name="print")
    stream.to(lambda key, value, metadata: f"by-{key}", name="chosen")
    runs = forked(builder, "each")
    assert set(runs.left_out) == {"peek", "print", "chosen"}
    assert all(isinstance(runs.topology.node(name), ProcessorNode) for name in runs.left_out)
    driver = ks.testing.TopologyTestDriver(runs.topology)
    driver.create_input_topic("in", **STRING).pipe_input("k", "v")
    assert seen == ["v"], "of the one that is allowed"
    assert driver.create_output_topic("app.x-out", **STRING).read_key_value() == ("k", "v")
    driver.close()
    with pytest.raises(TopologyError, match="'peak'") as refused:
        forked(builder, "peak")
    assert "peek" in str(refused.value.hint)


def test_a_node_that_calls_out_is_refused_unless_it_is_allowed_or_its_results_are_kept() -> None:
    def calling(**options: Any) -> ks.StreamsBuilder:
        builder = ks.StreamsBuilder()
        builder.stream("in", **STRING).map_values_async(lambda value: value, name="call", value_serde="string", **options).to(
            "out"
        )
        return builder

    with pytest.raises(TopologyError, match="'call' would call out") as refused:
        forked(calling())
    assert "allow=['call']" in str(refused.value.hint) and "durable=True" in str(refused.value.hint)
    assert not forked(calling(), "call").left_out and not forked(calling(durable=True)).left_out


def test_the_id_of_a_fork_is_not_below_the_prefix_of_its_parent() -> None:
    assert fork_id("app", "next") == "app.next" and not fork_id("app", "next").startswith("app-")
    with pytest.raises(InvalidNameError):
        fork_id("app", "a~b")
    with pytest.raises(InvalidNameError):
        fork_id("a" * 240, "next")


def test_a_record_is_there_until_it_is_removed_and_says_whose_it_is(tmp_path: Path) -> None:
    mark = ProcessMark.own()
    made = ForkRecord("app", "next", 1, 5, mark.pid, mark.born, "elsewhere", str(tmp_path), outputs={"out": "app.next-out"},
                      since={"out": {0: 7}})  # fmt: skip
    write_record(tmp_path, made)
    assert read_records(tmp_path) == [made] and not made.is_orphan
    (tmp_path / "forks" / "app.next.json").chmod(0o600)
    remove_record(tmp_path, made.id)
    remove_record(tmp_path, made.id)
    assert read_records(tmp_path) == [] and not (tmp_path / "forks").exists()
    (tmp_path / "forks").mkdir()
    (tmp_path / "forks" / "app.other.json").write_text(re.sub("x", "y", "{}"))
    with pytest.raises(SessionFileError, match="not the file of a fork"):
        read_records(tmp_path)
