"""Wrong use, each refused where it is written: a typed error with a reason and a hint. One line a mistake."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import (
    EmitStrategy,
    JoinWindows,
    Processor,
    Serde,
    SessionWindows,
    SlidingWindows,
    StoreBuilder,
    StoreKind,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    UnlimitedWindows,
)
from kstreams_repl.engine.topology.partitions import resolve_partitions
from kstreams_repl.system.errors import CallError, ConfigError, InvalidNameError, KStreamsError, TopologyError, UnknownTopicError
from kstreams_repl.testing import TopologyTestDriver

Wrong = Callable[[StreamsBuilder, Any], object]
within = JoinWindows.of_time_difference
closing = EmitStrategy.ON_WINDOW_CLOSE


def first(one: Any, other: Any) -> Any:
    return one


def windowed(stream: Any) -> Any:
    return stream.group_by_key().windowed_by(TimeWindows.of_size(100))


def low() -> Topology:
    return Topology().add_source("s", "in")


WRONG: dict[str, tuple[Wrong, type[KStreamsError], str]] = {
    "unknown store": (lambda b, s: s.process(Processor, stores=["nope"]), TopologyError, "nope"),
    "a store's name twice": (lambda b, s: (s.group_by_key().count(store="x"), s.group_by_key().count(store="x")), TopologyError, "x"),
    "a node's name twice": (lambda b, s: (s.peek(print, name="a"), s.peek(print, name="a")), TopologyError, "a"),
    "a topic read twice": (lambda b, s: b.table("in"), TopologyError, "in"),
    "a topic's name": (lambda b, s: s.to("bad topic"), InvalidNameError, "bad topic"),
    "a store's name": (lambda b, s: s.group_by_key().count(store="a b"), InvalidNameError, "a b"),
    "a node's name": (lambda b, s: s.filter(lambda k, v: True, name="a/b"), InvalidNameError, "a/b"),
    "no topic": (lambda b, s: b.stream(""), InvalidNameError, "empty"),
    "a topic that is a number": (lambda b, s: s.to(3), InvalidNameError, "3"),
    "no function": (lambda b, s: s.map_values(None), TopologyError, "mapper"),
    "predicate of one": (lambda b, s: s.filter(lambda v: True), TopologyError, "key, value"),
    "mapper of two": (lambda b, s: s.map_values(lambda k, v: v), TopologyError, "1 arguments"),
    "mapper with key of one": (lambda b, s: s.map_values(lambda v: v, with_key=True), TopologyError, "key, value"),
    "joiner of one": (lambda b, s: s.join(b.table("T"), lambda a: a), TopologyError, "joiner"),
    "joiner of tables of one": (lambda b, s: b.table("T").join(b.table("U"), lambda a: a), TopologyError, "joiner"),
    "foreign key of two": (
        lambda b, s: b.table("T").join(b.table("U"), first, foreign_key=lambda k, v: v),
        TopologyError,
        "foreign_key",
    ),
    "reducer of one": (lambda b, s: s.group_by_key().reduce(lambda a: a), TopologyError, "reducer"),
    "initializer of one": (lambda b, s: s.group_by_key().aggregate(lambda x: 0, lambda k, v, a: a), TopologyError, "initializer"),
    "aggregator of two": (lambda b, s: s.group_by_key().aggregate(lambda: 0, lambda v, a: a), TopologyError, "aggregator"),
    "negative grace": (lambda b, s: TimeWindows.of_size(10, grace=-1), TopologyError, "grace"),
    "windows of no size": (lambda b, s: TimeWindows.of_size(0), TopologyError, "size"),
    "windows with gaps": (lambda b, s: TimeWindows.of_size(10, advance=20), TopologyError, "advance"),
    "sessions of a negative gap": (lambda b, s: SessionWindows.of_inactivity_gap(-1), TopologyError, "gap"),
    "sliding windows of negative size": (lambda b, s: SlidingWindows.of_time_difference(-1), TopologyError, "-1"),
    "retention below the window": (lambda b, s: windowed(s).count(store="w", retention=10), TopologyError, "retention|keep"),
    "negative retention": (lambda b, s: windowed(s).count(store="w", retention=-1), TopologyError, "retention"),
    "join window of negative size": (lambda b, s: within(-5), TopologyError, "-5"),
    "join window that ends before it starts": (lambda b, s: within(10, before=-20, after=5), TopologyError, "ends before"),
    "joins of streams without windows": (lambda b, s: s.join(b.stream("o"), first), TopologyError, "JoinWindows"),
    "windows of the wrong kind": (lambda b, s: s.join(b.stream("o"), first, TimeWindows.of_size(3)), TopologyError, "JoinWindows"),
    "join with a number": (lambda b, s: s.join(3, first), TopologyError, "3"),
    "join over two builders": (lambda b, s: s.join(StreamsBuilder().table("T"), first), TopologyError, "another"),
    "global join without key": (lambda b, s: s.join(b.global_table("G"), first), TopologyError, "key="),
    "no partitions": (lambda b, s: s.repartition(partitions=0), TopologyError, "partitions must be .* got 0"),
    "a pattern over a topic": (lambda b, s: b.stream(pattern="i.*"), TopologyError, "in"),
    "a pattern that is none": (lambda b, s: b.stream(pattern="("), TopologyError, "regular expression"),
    "a serde's name": (lambda b, s: b.stream("q", key_serde="strng"), ConfigError, "strng"),
    "a serde that is a number": (lambda b, s: b.stream("q", key_serde=3), ConfigError, "3"),
    "suppress of a table that has no windows": (
        lambda b, s: b.table("T").suppress(Suppressed.until_window_closes()), TopologyError, "window",
    ),
    "suppress of a number": (lambda b, s: b.table("T").suppress(5), TopologyError, "Suppressed"),
    "merge with a table": (lambda b, s: s.merge(b.table("T")), TopologyError, "KStream"),
    "history without a store": (lambda b, s: b.table("T", history=10), TopologyError, "name"),
    "an emit strategy's name": (lambda b, s: windowed(s).emit_strategy("final"), TopologyError, "final"),
    "unlimited windows that close": (
        lambda b, s: s.group_by_key().windowed_by(UnlimitedWindows.of()).emit_strategy(closing), TopologyError, "never close",
    ),
    "an option's name": (lambda b, s: s.group_by_key().count(cachng=True), CallError, "cachng"),
    "unknown parent": (lambda b, s: low().add_processor("p", Processor, "q"), TopologyError, "q"),
    "its own parent": (lambda b, s: low().add_processor("p", Processor, "p"), TopologyError, "p"),
    "a sink without parents": (lambda b, s: low().add_sink("k", "out"), TopologyError, "k"),
    "a store for a source": (lambda b, s: low().add_state_store(StoreBuilder("x", StoreKind.KEY_VALUE), "s"), TopologyError, "s"),
    "a store of nobody": (lambda b, s: low().connect_processor_and_state_stores("zz", "x"), TopologyError, "zz|x"),
    "one processor for all tasks": (lambda b, s: low().add_processor("p", Processor(), "s"), TopologyError, "p"),
    "unequal repartitions": (
        lambda b, s: s.repartition(partitions=2, name="a").join(b.stream("o").repartition(partitions=3, name="b"), first, within(5)),
        TopologyError,
        "partitions",
    ),
}


OF_NO_NODE = ("negative grace", "windows of no size", "windows with gaps", "sessions of a negative gap", "sliding windows of negative size",
              "join window of negative size", "join window that ends before it starts")  # fmt: skip
"""Windows are made before any node is."""


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_use_is_refused_with_a_node_a_reason_and_a_hint(mistake: str) -> None:
    wrong, kind, told = WRONG[mistake]
    builder = StreamsBuilder()
    stream = builder.stream("in")
    with pytest.raises(kind) as failure:
        wrong(builder, stream)
        resolve_partitions(builder.build(), "app", dict.fromkeys(("in", "o", "T", "U"), 4))
    assert re.search(told, failure.value.message)
    assert failure.value.hint
    assert mistake in OF_NO_NODE or "node" in failure.value.fields or "topic" in failure.value.fields


async def later(*_: Any) -> Any:
    return False


class Later(Processor):
    async def process(self, record: Any) -> None:  # type: ignore[override]
        pass


class LaterTransformer:
    async def transform(self, key: Any, value: Any) -> Any:
        return value


async def many(*_: Any) -> Any:
    yield 1


class Callable_:
    async def __call__(self, key: Any, value: Any) -> bool:
        return False


ASYNC: dict[str, tuple[Wrong, str]] = {
    "filter": (lambda b, s: s.filter(later), "filter_async"),
    "filter, an object": (lambda b, s: s.filter(Callable_()), "filter_async"),
    "filter, a partial": (lambda b, s: s.filter(functools.partial(later, 1)), "filter_async"),
    "filter_not": (lambda b, s: s.filter_not(later), "filter_async"),
    "map": (lambda b, s: s.map(later), "process_async"),
    "map_values": (lambda b, s: s.map_values(later), "map_values_async"),
    "flat_map": (lambda b, s: s.flat_map(many), "process_async"),
    "flat_map_values": (lambda b, s: s.flat_map_values(many), "flat_map_values_async"),
    "select_key": (lambda b, s: s.select_key(later), "process_async"),
    "peek": (lambda b, s: s.peek(later), "process_async"),
    "foreach": (lambda b, s: s.foreach(later), "process_async"),
    "print": (lambda b, s: s.print(mapper=later), "process_async"),
    "branch": (lambda b, s: s.split().branch(later), "process_async"),
    "map_batches": (lambda b, s: s.map_batches(later), "process_async"),
    "group_by": (lambda b, s: s.group_by(later), "process_async"),
    "group_by of a table": (lambda b, s: b.table("T").group_by(later), "process_async"),
    "reduce": (lambda b, s: s.group_by_key().reduce(later), "process_async"),
    "aggregate": (lambda b, s: s.group_by_key().aggregate(lambda: 0, later), "process_async"),
    "initializer": (lambda b, s: s.group_by_key().aggregate(later, lambda k, v, a: a), "process_async"),
    "reduce in windows": (lambda b, s: windowed(s).reduce(later), "process_async"),
    "aggregate in windows": (lambda b, s: windowed(s).aggregate(lambda: 0, later), "process_async"),
    "aggregate a table": (lambda b, s: b.table("T").group_by(pair).aggregate(lambda: 0, later, later), "process_async"),
    "reduce a table": (lambda b, s: b.table("T").group_by(pair).reduce(first, later), "process_async"),
    "cogroup": (lambda b, s: s.group_by_key().cogroup(later), "process_async"),
    "merger": (
        lambda b, s: s.group_by_key().windowed_by(SessionWindows.of_inactivity_gap(5)).aggregate(lambda: 0, lambda k, v, a: a, later),
        "process_async",
    ),
    "joiner of a table": (lambda b, s: s.join(b.table("T"), later), "process_async"),
    "joiner of streams": (lambda b, s: s.join(b.stream("o"), later, within(5)), "process_async"),
    "joiner of tables": (lambda b, s: b.table("T").left_join(b.table("U"), later), "process_async"),
    "key of a global table": (lambda b, s: s.join(b.global_table("G"), first, key=later), "process_async"),
    "foreign key": (lambda b, s: b.table("T").join(b.table("U"), first, foreign_key=later), "process_async"),
    "filter of a table": (lambda b, s: b.table("T").filter(later), "filter_async"),
    "map_values of a table": (lambda b, s: b.table("T").map_values(later), "map_values_async"),
    "transform_values": (lambda b, s: b.table("T").transform_values(LaterTransformer), "process_async"),
    "process": (lambda b, s: s.process(Later), "process_async"),
    "process_values": (lambda b, s: s.process_values(Later), "process_values_async"),
    "to topic": (lambda b, s: s.to(later), "process_async"),
    "partitioner": (lambda b, s: s.to("o", partitioner=later), "process_async"),
    "repartition": (lambda b, s: s.repartition(partitioner=later), "process_async"),
    "timestamp_extractor": (lambda b, s: b.stream("o", timestamp_extractor=later), "process_async"),
    "add_processor": (lambda b, s: low().add_processor("p", Later, "s"), "process_async"),
    "add_source": (lambda b, s: Topology().add_source("s", "in", timestamp_extractor=later), "process_async"),
    "add_sink": (lambda b, s: low().add_sink("k", "out", "s", partitioner=later), "process_async"),
    "a made processor": (lambda b, s: (s.process(lambda: Later()), TopologyTestDriver(b.build())), "process_async"),
    "a serde": (lambda b, s: Serde(later, bytes.decode), "with def"),
}


def pair(key: Any, value: Any) -> Any:
    return key, value


@pytest.mark.parametrize("call", ASYNC)
def test_an_async_function_is_refused_at_the_call_that_would_not_await_it(call: str) -> None:
    """A filter passed everything, and a mapper failed in the sink: a coroutine was taken for the result."""
    wrong, hint = ASYNC[call]
    builder = StreamsBuilder()
    with pytest.raises(KStreamsError, match="async") as failure:
        wrong(builder, builder.stream("in"))
    assert hint in failure.value.hint


def test_topics_that_do_not_fit_the_cluster_are_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in").join(builder.table("T"), first).to("out")
    with pytest.raises(TopologyError, match="in has 2, T has 3|T has 3, in has 2"):
        resolve_partitions(builder.build(), "app", {"in": 2, "T": 3})
    with pytest.raises(UnknownTopicError, match="did you mean 'inn'"):
        resolve_partitions(builder.build(), "app", {"inn": 2, "T": 2})


def test_functions_that_do_not_tell_their_arguments_are_taken() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.group_by_key().reduce(max)
    stream.flat_map_values(str.split).foreach(print)
    stream.group_by_key().aggregate(int, lambda key, value, total, step=1: total + step)
    assert builder.build()


def test_the_test_driver_refuses_an_application_id_that_no_broker_takes() -> None:
    with pytest.raises(ConfigError, match="application.id"):
        TopologyTestDriver(low(), {"application.id": "a b"})
