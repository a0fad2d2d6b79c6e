"""Tables: old values, tombstones, timestamps, caching, versions."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.operators.aggregates.stream_aggregate import StreamAggregate, StreamCount, StreamReduce
from kstreams_repl.engine.operators.aggregates.table_aggregate import TableAggregate, TableReduce
from kstreams_repl.engine.operators.joins.table_table_join import TableJoinKind, TableTableJoin, TableTableJoinMerger
from kstreams_repl.engine.operators.streams.stream_flat_map_values import StreamFlatMapValues
from kstreams_repl.engine.operators.tables.table_filter import TableFilter
from kstreams_repl.engine.operators.tables.table_map_values import TableMapValues
from kstreams_repl.engine.operators.tables.table_repartition_map import TableRepartitionMap
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.operators.tables.table_to_stream import TableToStream
from kstreams_repl.engine.operators.tables.table_transform_values import TableTransformValues
from kstreams_repl.engine.operators.tables.value_getters import (
    FilterGetter,
    JoinGetter,
    MapValuesGetter,
    StoreGetter,
    StoreKindRead,
    TransformValuesGetter,
)
from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.testing import TopologyTestDriver
from tests.unit.engine.operators.harness import Bench


def table(bench: Bench, topic: str = "in", *, old: bool = True, versioned: bool = False, **store: Any) -> str:
    kind = StoreKind.VERSIONED if versioned else StoreKind.TIMESTAMPED_KEY_VALUE
    name = bench.store(f"{topic}-rows", kind, **store)
    return bench.node(f"{topic}-table", TableSource(name, send_old_values=old, versioned=versioned), bench.source(topic), stores=[name])


# ---- aggregates of streams -------------------------------------------------------------------------------------------------------


def test_a_count_forwards_new_and_old_with_the_latest_timestamp() -> None:
    bench = Bench()
    store = bench.store("counts", value=serdes.long)
    bench.probe(bench.node("count", StreamCount(store, send_old_values=True), bench.source("in"), stores=[store]))
    assert bench.pipe("in", "a", "x", 5) == [("a", (1, 0, True), 5)]
    assert bench.pipe("in", "a", "y", 3) == [("a", (2, 1, True), 5)]
    assert bench.driver.state_store("counts").get("a") == (2, 5)


@pytest.mark.parametrize(("key", "value"), [(None, 1), ("a", None), (None, None)])
def test_an_aggregate_drops_and_counts_null_keys_and_values(key: str | None, value: int | None) -> None:
    bench = Bench()
    store = bench.store("sums")
    bench.probe(bench.node("sum", StreamReduce(store, lambda a, b: a + b), bench.source("in"), stores=[store]))
    assert bench.pipe("in", key, value) == []
    assert bench.dropped() == 1


def test_an_aggregator_that_returns_none_deletes_the_row_and_starts_afresh() -> None:
    bench = Bench()
    store = bench.store("sums")
    total = StreamAggregate(store, lambda: 100, lambda k, v, agg: None if v == 0 else agg + v, send_old_values=True)
    bench.probe(bench.node("sum", total, bench.source("in"), stores=[store]))
    assert [bench.pipe("in", "a", value, ts)[0][1:] for value, ts in ((1, 9), (0, 5), (2, 3))] == [
        ((101, 100, True), 9),
        ((None, 101, True), 9),
        ((102, 100, True), 3),
    ]


def test_a_cached_aggregate_forwards_once_per_commit_with_the_row_before() -> None:
    bench = Bench(cache=10_000_000)
    store = bench.store("sums", caching=True)
    bench.node("thrice", StreamFlatMapValues(lambda value: [value] * 3), bench.source("in"))
    bench.probe(bench.node("sum", StreamReduce(store, lambda a, b: a + b, send_old_values=True), "thrice", stores=[store]))
    assert bench.pipe("in", "a", 1, 5) == [("a", (3, None, True), 5)]
    assert bench.pipe("in", "a", 2, 4) == [("a", (9, 3, True), 5)]


@pytest.mark.parametrize("operator", ["count", "reduce", "aggregate"])
def test_an_aggregate_in_a_versioned_store_keeps_the_latest_time(operator: str) -> None:
    bench = Bench()
    store = bench.store("rows", StoreKind.VERSIONED, retention_ms=100)
    made = {
        "count": StreamCount(store, versioned=True, send_old_values=True),
        "reduce": StreamReduce(store, lambda a, b: a + b, versioned=True, send_old_values=True),
        "aggregate": StreamAggregate(store, lambda: 0, lambda k, v, agg: agg + v, versioned=True, send_old_values=True),
    }[operator]
    bench.probe(bench.node("op", made, bench.source("in"), stores=[store]))
    first = None if operator == "reduce" else 0
    assert bench.pipe("in", "a", 1, 5) == [("a", (1, first, True), 5)]
    assert bench.pipe("in", "a", 1, 3) == [("a", (2, 1, True), 5)]


# ---- sources ---------------------------------------------------------------------------------------------------------------------


def test_a_table_forwards_old_values_and_tombstones() -> None:
    bench = Bench()
    bench.probe(table(bench))
    assert bench.pipe("in", "a", 1, 1) == [("a", (1, None, True), 1)]
    assert bench.pipe("in", "a", 2, 2) == [("a", (2, 1, True), 2)]
    assert bench.pipe("in", "a", None, 3) == [("a", (None, 2, True), 3)]
    assert bench.pipe("in", "a", None, 4) == [("a", (None, None, True), 4)]
    assert bench.pipe("in", None, 1, 5) == []
    assert bench.dropped() == 1


def test_a_table_that_nothing_reads_has_no_store_and_no_old_values() -> None:
    bench = Bench()
    bench.probe(bench.node("table", TableSource(None), bench.source("in")))
    assert [bench.pipe("in", "a", value)[0][1] for value in (1, 2)] == [(1, None, True), (2, None, True)]


def test_an_out_of_order_update_is_applied() -> None:
    bench = Bench()
    bench.probe(table(bench))
    bench.pipe("in", "a", 1, 10)
    assert bench.pipe("in", "a", 2, 5) == [("a", (2, 1, True), 5)]
    assert bench.driver.state_store("in-rows").get("a") == (2, 5)


def test_an_out_of_order_update_of_a_versioned_table_is_not_the_latest_and_one_beyond_history_is_not_forwarded() -> None:
    bench = Bench()
    bench.probe(table(bench, versioned=True, retention_ms=10))
    bench.pipe("in", "a", 1, 20)
    assert bench.pipe("in", "a", 2, 15) == [("a", (2, 1, False), 15)]
    assert bench.pipe("in", "a", 3, 5) == []


def test_a_cached_table_forwards_under_the_entry_s_own_headers() -> None:
    bench = Bench(cache=10_000_000)
    headers: list[Any] = []
    name = table(bench, caching=True)
    bench.topology.add_processor("headers", _HeaderProbe(headers), name)
    bench.pipe("in", "a", 1, 1, [("h", b"1")])
    assert headers == [[("h", b"1")]]


class _HeaderProbe(TableToStream):
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def build(self, node: Any, forward: Any) -> Any:
        return lambda key, value, timestamp, headers: self.seen.append(headers)

    seen: list[Any]


# ---- filter, map -----------------------------------------------------------------------------------------------------------------


def even(key: Any, value: Any) -> bool:
    return bool(value % 2 == 0)


@pytest.mark.parametrize("stored", [False, True])
def test_a_filter_with_old_values_sends_no_tombstone_for_rows_never_shown(stored: bool) -> None:
    bench = Bench()
    source = table(bench)
    store = bench.store("evens") if stored else None
    bench.probe(bench.node("filter", TableFilter(even, store=store, send_old_values=True), source, stores=[store] if store else []))
    seen = [[change for _, change, _ in bench.pipe("in", "a", value)] for value in (1, 2, 4, 3, 5, None)]
    assert seen == [[], [(2, None, True)], [(4, 2, True)], [(None, 4, True)], [], []]


def test_a_filter_without_old_values_sends_tombstones_for_rows_never_shown() -> None:
    bench = Bench()
    bench.probe(bench.node("filter", TableFilter(even, negate=True), table(bench, old=False)))
    assert [bench.pipe("in", "a", value)[0][1] for value in (1, 2)] == [(1, None, True), (None, None, True)]


@pytest.mark.parametrize("stored", [False, True])
def test_mapped_values_map_the_old_value_too_and_skip_tombstones(stored: bool) -> None:
    bench = Bench()
    source = table(bench)
    store = bench.store("mapped") if stored else None
    mapping = TableMapValues(lambda k, v: f"{k}{v}", with_key=True, store=store, send_old_values=True)
    bench.probe(bench.node("map", mapping, source, stores=[store] if store else []))
    assert [bench.pipe("in", "a", value)[0][1] for value in (1, 2, None)] == [("a1", None, True), ("a2", "a1", True), (None, "a2", True)]


def test_versions_pass_through_an_unstored_map() -> None:
    bench = Bench()
    bench.probe(bench.node("map", TableMapValues(lambda v: v * 10), table(bench, versioned=True, retention_ms=100)))
    bench.pipe("in", "a", 1, 20)
    assert bench.pipe("in", "a", 2, 15) == [("a", (20, None, False), 15)]


class Tagging:
    """A transformer that counts its calls."""

    def init(self, context: Any) -> None:
        self.context = context
        self.calls = 0

    def transform(self, key: Any, value: Any) -> Any:
        self.calls += 1
        return f"{value}#{self.calls}"

    def close(self) -> None: ...


def test_a_transformer_is_called_for_tombstones_and_for_old_values() -> None:
    bench = Bench()
    source = table(bench)
    bench.probe(bench.node("transform", TableTransformValues(Tagging, StoreGetter("in-rows"), send_old_values=True), source))
    assert [bench.pipe("in", "a", value)[0][1] for value in (1, None)] == [("1#1", "None#2", True), ("None#3", "1#4", True)]


def test_a_transformer_cannot_forward() -> None:
    class Forwarding(Tagging):
        def transform(self, key: Any, value: Any) -> Any:
            self.context.forward(None)

    bench = Bench()
    source = table(bench)
    bench.probe(bench.node("transform", TableTransformValues(Forwarding, StoreGetter("in-rows")), source))
    with pytest.raises(KStreamsError, match="called forward"):
        bench.pipe("in", "a", 1)


# ---- grouped tables --------------------------------------------------------------------------------------------------------------


def regrouped(bench: Bench) -> str:
    """Rows [group, number] by group."""
    return bench.node("regroup", TableRepartitionMap(lambda k, v: (v[0], v[1])), table(bench))


def test_a_moved_row_leaves_its_old_group_first() -> None:
    bench = Bench()
    bench.probe(regrouped(bench))
    assert bench.pipe("in", "a", ["g", 1], 1) == [("g", (1, None, True), 1)]
    assert bench.pipe("in", "a", ["g", 2], 2) == [("g", (2, 1, True), 2)]
    assert bench.pipe("in", "a", ["h", 3], 3) == [("g", (None, 2, True), 3), ("h", (3, None, True), 3)]
    assert bench.pipe("in", "a", [None, 4], 4) == [("h", (None, 3, True), 4)]
    assert bench.pipe("in", "a", None, 5) == []
    assert bench.dropped() == 0


def test_group_keys_of_different_types_are_different_groups() -> None:
    bench = Bench()
    bench.probe(regrouped(bench))
    bench.pipe("in", "a", [1, "x"], 1)
    assert bench.pipe("in", "a", [True, "y"], 2) == [(1, (None, "x", True), 2), (True, ("y", None, True), 2)]


@pytest.mark.parametrize("kind", ["aggregate", "reduce"])
def test_a_grouped_table_subtracts_then_adds(kind: str) -> None:
    bench = Bench()
    groups = regrouped(bench)
    store = bench.store("sums")
    operator = (
        TableAggregate(store, lambda: 100, lambda k, v, agg: agg + v, lambda k, v, agg: agg - v, send_old_values=True)
        if kind == "aggregate"
        else TableReduce(store, lambda agg, v: agg + v, lambda agg, v: agg - v, send_old_values=True)
    )
    bench.probe(bench.node("sum", operator, groups, stores=[store]))
    start = 100 if kind == "aggregate" else 0
    assert bench.pipe("in", "a", ["g", 1], 9) == [("g", (start + 1, None, True), 9)]
    assert bench.pipe("in", "b", ["g", 5], 2) == [("g", (start + 6, start + 1, True), 9)]
    assert bench.pipe("in", "a", ["g", 2], 3) == [("g", (start + 7, start + 6, True), 9)]
    assert bench.pipe("in", "a", ["h", 4], 4) == [("g", (start + 5, start + 7, True), 9), ("h", (start + 4, None, True), 4)]


# ---- joins -----------------------------------------------------------------------------------------------------------------------


def joined(bench: Bench, how: str, *, store: str | None = None) -> Bench:
    left, right = table(bench, "L"), table(bench, "R")
    kinds = {"inner": ("inner", "inner"), "left": ("left", "right"), "outer": ("outer", "outer")}[how]
    make = "({},{})".format
    this = TableTableJoin(TableJoinKind(kinds[0]), StoreGetter("R-rows"), make, send_old_values=True)
    other = TableTableJoin(TableJoinKind(kinds[1]), StoreGetter("L-rows"), make, this_is_right=True, send_old_values=True)
    bench.node("this", this, left, stores=["R-rows"])
    bench.node("other", other, right, stores=["L-rows"])
    merger = TableTableJoinMerger(store, send_old_values=True)
    return bench.probe(bench.node("merge", merger, "this", "other", stores=[store] if store else []))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [[], [("(1,x)", None)], [("(2,x)", "(1,x)")], [(None, "(2,x)")], [], []]),
        ("left", [[("(1,None)", None)], [("(1,x)", "(1,None)")], [("(2,x)", "(1,x)")], [("(2,None)", "(2,x)")], [(None, "(2,None)")], []]),
        (
            "outer",
            [
                [("(1,None)", None)],
                [("(1,x)", "(1,None)")],
                [("(2,x)", "(1,x)")],
                [("(2,None)", "(2,x)")],
                [(None, "(2,None)")],
                [("(None,y)", None)],
            ],
        ),
    ],
)
def test_a_table_join_follows_both_sides(how: str, expected: list[Any]) -> None:
    bench = joined(Bench(), how)
    script = (("L", 1), ("R", "x"), ("L", 2), ("R", None), ("L", None), ("R", "y"))
    assert [[change[:2] for _, change, _ in bench.pipe(topic, "a", value)] for topic, value in script] == expected


def test_a_join_s_timestamp_is_the_later_of_both_rows() -> None:
    bench = joined(Bench(), "inner", store=None)
    bench.pipe("L", "a", 1, 10)
    assert bench.pipe("R", "a", "x", 5)[0][2] == 10
    assert bench.pipe("R", "a", "y", 15)[0][2] == 15


def test_an_inner_join_forwards_a_tombstone_whenever_the_other_side_exists() -> None:
    bench = joined(Bench(), "inner")
    bench.pipe("R", "a", "x", 1)
    assert bench.pipe("L", "a", None, 2) == [("a", (None, None, True), 2)]


def test_a_join_leaves_out_and_counts_what_is_not_the_latest() -> None:
    bench = Bench()
    left, _ = table(bench, "L", versioned=True, retention_ms=100), table(bench, "R")
    join = TableTableJoin(TableJoinKind.LEFT, StoreGetter("R-rows"), lambda key, a, b: f"{key}:{a}", with_key=True)
    bench.probe(bench.node("join", join, left, stores=["R-rows"]))
    assert bench.pipe("L", "a", 1, 20) == [("a", ("a:1", None, True), 20)]
    assert bench.pipe("L", "a", 2, 10) == []
    assert bench.dropped() == 1


def test_a_stored_join_keeps_its_result() -> None:
    bench = Bench()
    store = bench.store("joined")
    joined(bench, "inner", store=store)
    bench.pipe("L", "a", 1, 1)
    bench.pipe("R", "a", "x", 2)
    assert bench.driver.state_store("joined").get("a") == ("(1,x)", 2)


# ---- getters ---------------------------------------------------------------------------------------------------------------------

ROWS = StoreGetter("in-rows")
VERSIONS = StoreGetter("in-rows", StoreKindRead.VERSIONED)


class Reading(TableToStream):
    """Reads its own key through a getter, at the present and as of a time."""

    def __init__(self, getter: Any, as_of: int | None, seen: list[Any]) -> None:
        self.getter, self.as_of, self.seen = getter, as_of, seen

    getter: Any
    as_of: int | None
    seen: list[Any]

    def build(self, node: Any, forward: Any) -> Any:
        read = self.getter.build(node) if self.as_of is None else self.getter.build_as_of(node)

        def process(key: Any, value: Any, timestamp: int, headers: Any) -> None:
            self.seen.append(read(key) if self.as_of is None else read(key, self.as_of))

        return process


def read_through(getter: Any, rows: list[tuple[Any, int]], *, versioned: bool = False, as_of: int | None = None) -> list[Any]:
    bench, seen = Bench(), []
    name = table(bench, versioned=versioned, **({"retention_ms": 1000} if versioned else {}))
    bench.node("reader", Reading(getter, as_of, seen), name, stores=["in-rows"])
    for value, timestamp in rows:
        bench.pipe("in", "a", value, timestamp)
    return seen


def test_a_filtered_table_is_read_through_its_predicate() -> None:
    assert read_through(FilterGetter(ROWS, even), [(1, 1), (2, 2), (None, 3)]) == [None, (2, 2), None]
    assert read_through(FilterGetter(ROWS, even, negate=True), [(1, 1), (2, 2)]) == [(1, 1), None]


def test_a_mapped_table_is_read_through_its_mapper() -> None:
    assert read_through(MapValuesGetter(ROWS, lambda v: v or None), [(0, 1), (2, 2), (None, 3)]) == [None, (2, 2), None]


def test_a_versioned_table_is_read_as_of_a_time_through_filter_and_map() -> None:
    getter = MapValuesGetter(FilterGetter(VERSIONS, even), lambda k, v: f"{k}{v}", with_key=True)
    assert getter.versioned
    assert read_through(getter, [(2, 10), (4, 20), (5, 30)], versioned=True, as_of=15) == [("a2", 10)] * 3
    assert read_through(getter, [(2, 10), (4, 20), (5, 30)], versioned=True) == [("a2", 10), ("a4", 20), None]


def test_a_transformed_table_is_read_by_a_transformer_of_its_own_under_the_row_s_time() -> None:
    class Time(Tagging):
        def transform(self, key: Any, value: Any) -> Any:
            metadata = self.context.record_metadata()
            assert (metadata.topic, metadata.partition, metadata.offset) == (None, -1, -1)
            return super().transform(key, value)

    assert read_through(TransformValuesGetter(ROWS, Time), [(1, 5), (None, 6)]) == [("1#1", 5), ("None#2", -1)]


def test_a_table_that_is_not_versioned_cannot_be_read_as_of_a_time() -> None:
    with pytest.raises(KStreamsError, match="not versioned"):
        read_through(ROWS, [(1, 1)], as_of=1)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inner", [None, None, ("(1,x)", 5), None]),
        ("left", [("(1,None)", 5), ("(1,None)", 5), ("(1,x)", 5), None]),
        ("right", [None, None, ("(1,x)", 5), ("(None,x)", 2)]),
        ("outer", [("(1,None)", 5), ("(1,None)", 5), ("(1,x)", 5), ("(None,x)", 2)]),
    ],
)
def test_an_unstored_join_is_computed_from_both_sides(kind: str, expected: list[Any]) -> None:
    bench, seen = Bench(), []
    left, right = table(bench, "L"), table(bench, "R")
    getter = JoinGetter(kind, StoreGetter("L-rows"), StoreGetter("R-rows"), "({},{})".format)
    bench.node("reader", Reading(getter, None, seen), left, right, stores=["L-rows", "R-rows"])
    for topic, value, timestamp in (("L", 1, 5), ("R", None, 1), ("R", "x", 2), ("L", None, 3)):
        bench.pipe(topic, "a", value, timestamp)
    assert seen == expected


def test_to_stream_gives_the_new_value_alone() -> None:
    bench = Bench()
    bench.probe(bench.node("stream", TableToStream(), table(bench)))
    assert [bench.pipe("in", "a", value)[0][1] for value in (1, None)] == [1, None]


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value], lambda value: {"in": [value]}])
def test_a_row_changes_its_group_when_the_group_key_is_written_differently(wrap: Any) -> None:
    builder = StreamsBuilder()
    rows = builder.table("in", key_serde=serdes.string, value_serde=serdes.json, store="rows")
    groups = rows.group_by(lambda key, value: (wrap(value), value), key_serde=serdes.json, value_serde=serdes.json)
    groups.count(store="counts").to_stream().to("out", key_serde=serdes.json, value_serde=serdes.long)
    steps = (1, 1.0, True, 0.0, -0.0, "x", "x")
    with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": 0}) as driver:
        piped, out = driver.create_input_topic("in", "string", "json"), driver.create_output_topic("out", "bytes", "long")
        for value in steps:
            piped.pipe_input("k", value, 1)
        last = {record.key: record.value for record in out.read_records()}
    assert last == {serdes.json.serialize(wrap(value)): int(value == "x") for value in steps}


def test_a_group_key_that_cannot_be_written_is_left_to_the_sink() -> None:
    builder = StreamsBuilder()
    rows = builder.table("in", key_serde=serdes.string, value_serde=serdes.json, store="rows")
    groups = rows.group_by(lambda key, value: ({value}, value), key_serde=serdes.json, value_serde=serdes.json)
    groups.count(store="counts")
    with TopologyTestDriver(builder.build(), {"production.exception.handler": "continue"}) as driver:
        piped = driver.create_input_topic("in", "string", "json")
        for value in (1, 2):
            piped.pipe_input("k", value, 1)
        assert driver.dropped == 3
