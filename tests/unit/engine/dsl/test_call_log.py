"""Building again, and building without or with another version of a notebook cell."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.dsl import KStream, StreamsBuilder
from kstreams_repl.engine.dsl.graph.call_log import go_back_to
from kstreams_repl.engine.topology.description.source_location import cell_started
from kstreams_repl.engine.topology.differences.node_diff import whole_code
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.test_driver.driver import TopologyTestDriver
from workshop.conformance import loader

CASES = Path(__file__).parents[3] / "conformance" / "cases"
CONFIG = {"default.key.serde": "string", "default.value.serde": "string"}


@pytest.fixture(autouse=True)
def no_cell_runs_afterwards() -> Iterator[None]:
    yield
    cell_started(None)


def run(cell: str, code: Callable[[], Any]) -> Any:
    """Run code as a notebook cell."""
    cell_started(cell)
    try:
        return code()
    finally:
        cell_started(None)


def piped(builder: StreamsBuilder, *values: str, source: str = "in", sink: str = "out") -> list[Any]:
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        strings = (serdes.string, serdes.string)
        entry, result = driver.create_input_topic(source, *strings), driver.create_output_topic(sink, *strings)
        for value in values:
            entry.pipe_input("k", value, 0)
        return [record.value for record in result.read_records()]


@pytest.mark.parametrize("path", sorted(CASES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_building_twice_and_calling_on_gives_the_same_topology(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(StreamsBuilder):
        def build(self, config: Any = None) -> Any:
            super().build(config)
            again = super().build(config)
            assert not self.problems
            return again

    monkeypatch.setattr(loader, "StreamsBuilder", Twice)
    for line in path.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if "describe" in case["expect"]:
            assert str(loader.build_topology(case, case["config"]).describe()) == case["expect"]["describe"], case["id"]


def test_a_builder_can_be_extended_after_it_was_built() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    before = builder.build()
    stream.to("out")
    after = builder.build()
    assert len(before.nodes) == 1
    assert list(after.nodes) == ["KSTREAM-SOURCE-0000000000", "KSTREAM-SINK-0000000001"]


def test_running_a_cell_again_replaces_what_it_made() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    run("2", lambda: stream.map_values(str.upper).to("out"))
    run("2", lambda: stream.map_values(str.title).to("out"))
    assert piped(builder, "some words") == ["Some Words"]
    assert len(builder.build().nodes) == 3


def test_cells_downstream_go_on_with_the_new_version() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    mapped = run("2", lambda: stream.map_values(str.upper))
    run("3", lambda: mapped.to("out"))
    run("2", lambda: stream.map_values(str.title))
    assert piped(builder, "some words") == ["Some Words"]


def test_numbers_stay_when_a_cell_in_the_middle_runs_again() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    mapped = run("2", lambda: stream.map_values(str.upper))
    run("3", lambda: mapped.group_by_key().count().to_stream().to("out"))
    before = str(builder.build().describe())
    run("2", lambda: stream.map_values(str.title))
    assert str(builder.build().describe()) == before


def test_a_cell_that_makes_more_puts_it_where_it_was() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    mapped = run("2", lambda: stream.map_values(str.upper, name="m"))
    run("3", lambda: mapped.to("out", name="sink"))
    run("2", lambda: stream.map_values(str.upper, name="m").peek(lambda k, v: None, name="look"))
    assert list(builder.build().nodes) == ["KSTREAM-SOURCE-0000000000", "m", "look", "sink"]


def test_a_cell_may_run_again_and_again() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    mapped = run("2", lambda: stream.map_values(str.upper))
    run("3", lambda: mapped.to("out"))
    for function in (str.title, str.lower, str.swapcase):
        run("2", lambda f=function: stream.map_values(f))  # type: ignore[misc]
    assert piped(builder, "Some") == ["sOME"]


def test_the_first_cell_may_run_again() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    run("2", lambda: stream.to("out"))
    run("1", lambda: builder.stream("other"))
    assert piped(builder, "x", source="other") == ["x"]


def test_what_a_new_version_no_longer_makes_leaves_a_problem_downstream() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    run("2", lambda: stream.map_values(str.upper))
    mapped = run("3", lambda: stream.map_values(str.lower))
    run("4", lambda: mapped.to("out"))
    run("3", lambda: stream.filter(lambda k, v: True))
    (problem,) = builder.problems
    assert (problem.call, problem.origin.cell) == ("to", "4")
    with pytest.raises(TopologyError, match=r"to\(\) in 4") as refused:
        builder.build()
    assert refused.value.hint
    run("3", lambda: stream.map_values(str.title))
    assert builder.problems == ()
    assert piped(builder, "ab") == ["Ab"]


def test_a_removed_cell_takes_its_nodes_with_it() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    run("2", lambda: stream.to("out"))
    run("3", lambda: stream.to("copy"))
    assert builder.remove_cell("2") == 1
    assert builder.build().sink_topics() == ("copy",)
    assert builder.remove_cell("2") == 0


def test_a_removed_cell_that_runs_again_comes_back_to_its_place_with_what_hung_on_it() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    run("2", lambda: stream.map_values(str.upper).to("out"))
    before = str(builder.build().describe())
    builder.remove_cell("1")
    assert builder.problems
    run("1", lambda: builder.stream("in"))
    assert builder.problems == ()
    assert str(builder.build().describe()) == before


def test_a_handle_of_a_removed_cell_cannot_be_used() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    builder.remove_cell("1")
    with pytest.raises(TopologyError, match="no longer in the topology"):
        stream.to("out")


def test_a_call_that_no_longer_works_is_a_problem_with_its_error() -> None:
    builder = StreamsBuilder()
    table = run("1", lambda: builder.table("rows", store="rows", history=100))
    stream = run("2", lambda: builder.stream("in"))
    run("3", lambda: stream.join(table, lambda a, b: a, grace=50).to("out"))
    run("1", lambda: builder.table("rows", store="rows"))
    first, second = builder.problems
    assert first.call == "join" and isinstance(first.error, TopologyError)
    assert second.call == "to"
    with pytest.raises(TopologyError, match="expected a versioned table"):
        builder.build()


def test_a_new_call_before_unchanged_ones_does_not_take_their_place() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))

    def upper(value: str) -> str:
        return value.upper()

    def title(value: str) -> str:
        return value.title()

    one, two = run("2", lambda: (stream.map_values(upper), stream.map_values(title)))
    run("3", lambda: (one.to("upper"), two.to("title")))
    run("2", lambda: (stream.map_values(str.swapcase), stream.map_values(upper), stream.map_values(title)))
    assert piped(builder, "some words", sink="upper") == ["SOME WORDS"]
    assert piped(builder, "some words", sink="title") == ["Some Words"]


def test_a_changed_call_keeps_its_place_by_its_name() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))
    named = run("2", lambda: stream.map_values(str.upper, name="shout"))
    run("3", lambda: named.to("out"))
    run("2", lambda: (stream.map_values(str.swapcase), stream.map_values(str.title, name="shout")))
    assert piped(builder, "some words") == ["Some Words"]


def test_branches_held_by_later_cells_follow_a_new_version() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in"))

    def split(size: int) -> dict[str, KStream]:
        return stream.split().branch(lambda k, v: len(v) > size, name="-long").default_branch(name="-short")

    branches = run("2", lambda: split(3))
    run("3", lambda: branches["KSTREAM-BRANCH-0000000001-long"].to("out"))
    assert piped(builder, "abc", "abcd") == ["abcd"]
    run("2", lambda: split(2))
    assert piped(builder, "abc", "abcd", "ab") == ["abc", "abcd"]


def test_groupings_and_cogroups_follow_a_new_version() -> None:
    builder = StreamsBuilder()
    stream = run("1", lambda: builder.stream("in", value_serde="string"))
    grouped = run("2", lambda: stream.group_by(lambda k, v: v[0], name="by"))
    cogrouped = run("3", lambda: grouped.cogroup(lambda k, v, total: total + v))
    run("4", lambda: cogrouped.aggregate(str, store="all").to_stream().map_values(str).to("out"))
    assert piped(builder, "ab", "ac", "b") == ["ab", "abac", "b"]
    run("2", lambda: stream.group_by(lambda k, v: "all", name="by"))
    assert piped(builder, "ab", "ac", "b") == ["ab", "abac", "abacb"]


def test_a_block_can_stand_for_a_cell() -> None:
    builder = StreamsBuilder()
    with builder.cell("a"):
        stream = builder.stream("in")
    with builder.cell("b"):
        stream.to("one")
    with builder.cell("b"):
        stream.to("two")
    assert builder.build().sink_topics() == ("two",)


def test_calls_outside_cells_are_never_replaced() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.to("one")
    stream.to("two")
    assert builder.build().sink_topics() == ("one", "two")


def test_iterators_are_read_once_and_kept() -> None:
    builder = StreamsBuilder()
    builder.stream(topic for topic in ("a", "b")).to("out")
    builder.build()
    assert builder.build().source_topics() == ("a", "b")


def test_a_node_s_function_can_be_replaced_in_place() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(str.upper, name="shout").to("out")
    before = str(builder.build().describe())
    builder.replace("shout", str.title)
    assert piped(builder, "some words") == ["Some Words"]
    assert str(builder.build().describe()) == before


def test_a_function_can_be_replaced_by_its_parameter_s_name() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    table = grouped.aggregate(lambda: "", lambda k, v, total: total + v, store="all", value_serde="string", name="sum")
    table.to_stream().to("out")
    builder.replace("sum", aggregator=lambda k, v, total: v + total)
    assert piped(builder, "a", "b") == ["a", "ba"]
    builder.replace("sum", initializer=lambda: "0")
    assert piped(builder, "a") == ["a0"]


def test_a_function_among_the_options_can_be_replaced() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("rows", store="rows")
    builder.stream("in").join(table, lambda a, b: a, key=lambda k, v: k, name="look").to("out")
    builder.replace("look", key=lambda k, v: v)
    operator: Any = builder.build().node("look").operator  # type: ignore[union-attr]
    assert operator.key_mapper("k", "v") == "v"


def test_replacing_what_is_not_there_names_what_was_meant() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="source").map_values(str.upper, name="shout").to("out")
    with pytest.raises(TopologyError) as unknown:
        builder.replace("shoot", str.title)
    assert unknown.value.hint == "did you mean 'shout'?"
    with pytest.raises(TopologyError, match="takes no function"):
        builder.replace("source", str.title)
    with pytest.raises(TopologyError, match="no function 'joiner'") as wrong:
        builder.replace("shout", joiner=str.title)
    assert wrong.value.hint == "its functions are: mapper"


def test_a_builder_goes_back_to_what_a_topology_was_built_from() -> None:
    builder = StreamsBuilder()
    with builder.cell("first"):
        source = builder.stream("in", name="source")
        kept = source.filter(lambda key, value: True, name="kept")
    with builder.cell("second"):
        kept.to("out", name="sink")
    first = builder.build()
    with builder.cell("first"):
        source = builder.stream("in", name="source")
        kept = source.filter(lambda key, value: value is None, name="kept")
        more = kept.map_values(lambda value: value, name="more")
    builder.replace("kept", lambda key, value: False)
    second = builder.build()
    gone_back = go_back_to(first, more)
    assert gone_back is not None and gone_back[0] is more
    assert str(builder.build().describe()) == str(first.describe()) and whole_code(builder.build()) == whole_code(first)
    kept.foreach(lambda key, value: None, name="seen")  # the variable's stream of the later run stands for the earlier one
    with pytest.raises(TopologyError, match="no longer in the topology"):
        more.foreach(print)
    gone_back = go_back_to(second, StreamsBuilder())
    assert gone_back is not None and gone_back[0] is builder, "it is another builder's"
    assert str(builder.build().describe()) == str(second.describe()) and whole_code(builder.build()) == whole_code(second)
    more.foreach(print, name="end")
    assert go_back_to(Topology(), builder) is None and go_back_to(second, second) is None


def test_a_topology_that_was_built_is_not_kept_alive() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    gone = weakref.ref(builder.build())
    gc.collect()
    assert gone() is None
