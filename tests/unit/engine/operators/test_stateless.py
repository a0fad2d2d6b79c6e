"""Stateless stream operators: what is forwarded, in which order, with nulls passed on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.operators.streams.pass_through import PassThrough
from kstreams_repl.engine.operators.streams.stream_branch import StreamBranch
from kstreams_repl.engine.operators.streams.stream_filter import StreamFilter
from kstreams_repl.engine.operators.streams.stream_flat_map import StreamFlatMap
from kstreams_repl.engine.operators.streams.stream_flat_map_values import StreamFlatMapValues
from kstreams_repl.engine.operators.streams.stream_map import StreamMap
from kstreams_repl.engine.operators.streams.stream_map_values import StreamMapValues
from kstreams_repl.engine.operators.streams.stream_peek import StreamPeek, StreamPrint
from kstreams_repl.engine.operators.streams.stream_select_key import StreamSelectKey
from kstreams_repl.system.errors import StreamsProcessingError
from tests.unit.engine.operators.harness import Bench


def run(operator: Operator, key: Any, value: Any) -> list[Any]:
    bench = Bench()
    bench.probe(bench.node("op", operator, bench.source("in")))
    return bench.pipe("in", key, value, 7)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (StreamFilter(lambda k, v: v > 1), [("a", 2, 7)]),
        (StreamFilter(lambda k, v: v > 1, negate=True), []),
        (StreamMap(lambda k, v: (k * 2, v + 1)), [("aa", 3, 7)]),
        (StreamMapValues(lambda v: v + 1), [("a", 3, 7)]),
        (StreamMapValues(lambda k, v: f"{k}{v}", with_key=True), [("a", "a2", 7)]),
        (StreamFlatMap(lambda k, v: [(f"{k}{i}", i) for i in range(v)]), [("a0", 0, 7), ("a1", 1, 7)]),
        (StreamFlatMap(lambda k, v: ()), []),
        (StreamFlatMapValues(range), [("a", 0, 7), ("a", 1, 7)]),
        (StreamFlatMapValues(lambda k, v: [k] * v, with_key=True), [("a", "a", 7), ("a", "a", 7)]),
        (StreamSelectKey(lambda k, v: str(v)), [("2", 2, 7)]),
        (StreamSelectKey(lambda k, v: None), [(None, 2, 7)]),
        (StreamPeek(lambda k, v: None), [("a", 2, 7)]),
        (StreamPeek(lambda k, v: None, forward_down=False), []),
        (PassThrough(), [("a", 2, 7)]),
    ],
    ids=lambda item: type(item).__name__ if isinstance(item, Operator) else "",
)
def test_an_operator_forwards_what_its_function_says(operator: Operator, expected: list[Any]) -> None:
    assert run(operator, "a", 2) == expected


def test_null_keys_and_values_reach_the_user_s_function() -> None:
    assert run(StreamMap(lambda k, v: (repr(k), repr(v))), None, None) == [("None", "None", 7)]


def test_each_pair_is_forwarded_before_the_next_is_made() -> None:
    order: list[str] = []

    def pairs(key: Any, value: Any) -> Any:
        for number in (1, 2):
            order.append(f"made {number}")
            yield key, number

    bench = Bench()
    flat = bench.node("flat", StreamFlatMap(pairs), bench.source("in"))
    bench.node("peek", StreamPeek(lambda k, v: order.append(f"seen {v}")), flat)
    bench.pipe("in", "a", 1)
    assert order == ["made 1", "seen 1", "made 2", "seen 2"]


def test_a_map_that_gives_no_pair_names_its_node() -> None:
    with pytest.raises(StreamsProcessingError) as failure:
        run(StreamMap(lambda k, v: v), "a", 2)
    assert failure.value.node == "op"


def test_a_branch_takes_the_first_predicate_that_holds_then_the_default() -> None:
    def branches(default: bool) -> Callable[[int], list[Any]]:
        names = ["small", "even", "rest"] if default else ["small", "even"]
        bench = Bench()
        bench.node("split", StreamBranch([lambda k, v: v < 3, lambda k, v: v % 2 == 0], names), bench.source("in"))
        for name in names:
            bench.node(name, StreamMapValues(lambda v, name=name: f"{name} {v}"), "split")
            bench.probe_named(f"probe-{name}", name, bench.seen)
        return lambda value: [seen[1] for seen in bench.pipe("in", "a", value)]

    with_default, without = branches(True), branches(False)
    assert [with_default(number) for number in (2, 4, 5)] == [["small 2"], ["even 4"], ["rest 5"]]
    assert [without(number) for number in (2, 4, 5)] == [["small 2"], ["even 4"], []]


def test_print_writes_a_line_per_record_and_closes_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench, path = Bench(), tmp_path / "out.txt"
    source = bench.source("in")
    bench.node("file", StreamPrint("n", path=str(path)), source)
    bench.node("screen", StreamPrint("n", mapper=lambda k, v: f"{k}={v}"), source)
    bench.pipe("in", "a", 1)
    bench.pipe("in", None, None)
    bench.driver.close()
    assert path.read_text() == "[n]: a, 1\n[n]: None, None\n"
    assert capsys.readouterr().out == "[n]: a=1\n[n]: None=None\n"
