"""When a table gets a store, and which: only if it is named or somebody has to read it."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.dsl import (
    EmitStrategy,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from kstreams_repl.engine.serdes.deferred import DeferredSerde
from kstreams_repl.engine.topology import ProcessorNode, SourceNode, StoreKind, Topology
from kstreams_repl.test_driver.driver import TopologyTestDriver


def pair(left: Any, right: Any) -> tuple[Any, Any]:
    return left, right


def yes(key: Any, value: Any) -> bool:
    return True


def stores(builder: StreamsBuilder) -> list[str]:
    return sorted(builder.build().stores)


def operator(topology: Topology, name: str) -> Any:
    node = topology.node(name)
    assert isinstance(node, ProcessorNode)
    return node.operator


def test_a_table_nobody_reads_has_no_store() -> None:
    builder = StreamsBuilder()
    builder.table("rows").map_values(str).filter(yes).to_stream().to("out")
    assert stores(builder) == []


def test_a_named_table_has_its_store() -> None:
    builder = StreamsBuilder()
    table = builder.table("rows", store="mine")
    assert table.queryable_store_name == "mine"
    assert stores(builder) == ["mine"]


def test_a_join_makes_the_store_of_the_table_it_looks_up() -> None:
    builder = StreamsBuilder()
    table = builder.table("rows")
    builder.stream("in").join(table, pair).to("out")
    assert stores(builder) == ["rows-STATE-STORE-0000000000"]
    assert table.queryable_store_name is None


def test_a_join_through_filters_reads_the_first_store_upstream() -> None:
    builder = StreamsBuilder()
    table = builder.table("rows").filter(yes).map_values(str)
    builder.stream("in").join(table, pair, name="join").to("out")
    topology = builder.build()
    assert topology.node("join").stores == ("rows-STATE-STORE-0000000000",)  # type: ignore[union-attr]


def test_a_join_reads_a_filter_s_own_store_if_it_has_one() -> None:
    builder = StreamsBuilder()
    table = builder.table("rows").filter(yes, store="kept")
    builder.stream("in").join(table, pair).to("out")
    assert stores(builder) == ["kept"]


def test_regrouping_a_table_needs_its_old_values_and_so_its_store() -> None:
    builder = StreamsBuilder()
    builder.table("rows", name="t").group_by(pair).count().to_stream().to("out")
    topology = builder.build()
    assert operator(topology, "t").send_old_values
    assert len(topology.stores) == 2


def test_old_values_are_not_sent_when_nobody_needs_them() -> None:
    builder = StreamsBuilder()
    builder.table("rows", store="rows", name="t").to_stream().to("out")
    assert not operator(builder.build(), "t").send_old_values


def test_a_filter_over_a_stored_table_asks_for_old_values() -> None:
    builder = StreamsBuilder()
    builder.table("rows", store="rows", name="t").filter(yes, name="f").to_stream().to("out")
    topology = builder.build()
    assert operator(topology, "t").send_old_values and operator(topology, "f").send_old_values


def test_a_filter_over_a_table_without_store_does_not_make_one() -> None:
    builder = StreamsBuilder()
    builder.table("rows", name="t").filter(yes, name="f").to_stream().to("out")
    assert not operator(builder.build(), "f").send_old_values


@pytest.mark.parametrize(
    ("how", "left", "right"), [("join", False, False), ("left_join", True, False), ("outer_join", True, True)]
)
def test_outer_sides_of_a_table_join_send_old_values(how: str, left: bool, right: bool) -> None:
    builder = StreamsBuilder()
    one, other = builder.table("l", name="l"), builder.table("r", name="r")
    getattr(one, how)(other, pair).to_stream().to("out")
    topology = builder.build()
    assert (operator(topology, "l").send_old_values, operator(topology, "r").send_old_values) == (left, right)


def test_suppress_asks_for_old_values_as_it_shows_what_was_there_before() -> None:
    builder = StreamsBuilder()
    builder.table("rows", name="t").suppress(Suppressed.until_time_limit(5)).to_stream().to("out")
    assert operator(builder.build(), "t").send_old_values


def test_suppressing_until_windows_close_waits_for_their_grace() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size(10, grace=7))
    windowed.count().filter(yes).suppress(Suppressed.until_window_closes(name="hold")).to_stream().to("out")
    hold = operator(builder.build(), "hold")
    assert (hold.wait_ms, hold.window_end_time, hold.drop_tombstones, hold.store) == (7, True, True, "hold-store")


def test_suppressing_until_sessions_close_waits_for_gap_and_grace() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap(10, grace=7))
    windowed.count().suppress(Suppressed.until_window_closes(name="hold")).to_stream().to("out")
    assert operator(builder.build(), "hold").wait_ms == 17


@pytest.mark.parametrize(
    ("windows", "kind", "final_kind", "retention", "final_retention"),
    [
        (TimeWindows.of_size(10, grace=5), StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW, 15, 15),
        (SlidingWindows.of_time_difference(10, grace=5), StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW, 25, 25),
        (SessionWindows.of_inactivity_gap(10, grace=5), StoreKind.SESSION, StoreKind.SESSION, 15, 26),
    ],
)
def test_windowed_stores_have_the_kind_and_retention_of_their_windows(
    windows: Any, kind: StoreKind, final_kind: StoreKind, retention: int, final_retention: int
) -> None:
    """A session that is emitted on close is kept for as long as a record in time may still join it: two gaps, grace, and the last ms."""
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key().windowed_by(windows)
    grouped.count(store="update")
    grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="final")
    topology = builder.build()
    update, final = topology.store("update"), topology.store("final")
    assert (update.kind, update.retention_ms, update.caching) == (kind, retention, True)
    assert (final.kind, final.retention_ms, final.caching) == (final_kind, final_retention, False)


def test_join_windows_keep_duplicates_and_are_not_cached() -> None:
    builder = StreamsBuilder()
    builder.stream("a").outer_join(builder.stream("b"), pair, JoinWindows.of_time_difference(10, grace=5), store="j").to("out")
    topology = builder.build()
    side = topology.store("j-outer-this-join-store")
    assert (side.kind, side.retain_duplicates, side.caching, side.retention_ms) == (StoreKind.WINDOW, True, False, 25)
    assert topology.store("j-outer-shared-join-store").kind is StoreKind.OUTER_JOIN


def test_versioned_tables_are_kept_with_their_history_and_never_cached() -> None:
    builder = StreamsBuilder()
    builder.table("rows", store="versions", history=100, caching=True)
    store = builder.build().store("versions")
    assert (store.kind, store.retention_ms, store.caching) == (StoreKind.VERSIONED, 100, False)


def test_options_may_come_as_one_value() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(
        store=Materialized("c", caching=False, topic_config={"segment.ms": "5"}), logging=False
    )
    store = builder.build().store("c")
    assert (store.caching, store.logging, store.topic_config) == (False, False, {"segment.ms": "5"})


@pytest.mark.parametrize("strict", [False, True])
def test_a_bounded_suppress_without_logging_writes_no_changelog(strict: bool) -> None:
    """Kafka Streams takes the logging up again when `emitEarlyWhenFull()` or `shutDownWhenFull()` comes after `withLoggingDisabled()`."""
    for logging, changelogs in ((False, []), (True, ["app-held-store-changelog"])):
        builder = StreamsBuilder()
        table = builder.table("rows", store="rows", key_serde="string", value_serde="long", logging=False)
        kept = Suppressed.until_time_limit(0, max_records=2, shut_down_when_full=strict, name="held", logging=logging)
        table.suppress(kept).to_stream().to("out")
        with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
            driver.create_input_topic("rows", serdes.string, serdes.long).pipe_input("a", 1, 1)
            assert [topic for topic in driver.produced_topic_names() if topic.endswith("-changelog")] == changelogs
            assert driver.create_output_topic("out", serdes.string, serdes.long).read_key_values() == [("a", 1)]


def test_serdes_are_handed_on_until_something_changes_them() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="json")
    assert stream.filter(yes).peek(pair).value_serde is serdes.json
    assert stream.map_values(str).value_serde is None and stream.map_values(str).key_serde is serdes.string
    assert stream.map(pair).key_serde is None
    assert stream.group_by_key().count().value_serde is serdes.long


def test_a_serde_may_be_given_by_name() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde="long", name="s")
    source = builder.build().node("s")
    assert isinstance(source, SourceNode) and source.key_serde is serdes.long


def test_windowed_keys_have_a_serde_around_the_known_or_the_default_one() -> None:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size(10)
    known = builder.stream("a", key_serde="string").group_by_key().windowed_by(windows).count()
    unknown = builder.stream("b").group_by_key().windowed_by(windows).count()
    assert known.key_serde.name == "time-windowed(string, 10)"
    assert isinstance(unknown.key_serde, DeferredSerde)


def test_a_topology_travels_to_another_process() -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    builder = StreamsBuilder()
    table = builder.table("rows").filter(yes)
    counts = builder.stream("in").group_by(pair).windowed_by(TimeWindows.of_size(10)).count()
    counts.suppress(Suppressed.until_window_closes()).to_stream(lambda key, value: key.key).join(table, pair).to("out")
    other = builder.table("other")
    table.join(other, pair, foreign_key=lambda value: value).to_stream().to("joined")
    topology = builder.build()
    copy = cloudpickle.loads(cloudpickle.dumps(topology))
    assert str(copy.describe()) == str(topology.describe())
