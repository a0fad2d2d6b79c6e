"""Wrong use of the DSL is refused at the call or when the topology is built, with node, reason and hint."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.dsl import (
    EmitStrategy,
    JoinWindows,
    Materialized,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
)
from kstreams_repl.engine.processor import Processor
from kstreams_repl.engine.topology import StoreBuilder, StoreKind
from kstreams_repl.system.errors import CallError, ConfigError, InvalidNameError, KStreamsError, TopologyError

TEN = JoinWindows.of_time_difference(10)


def left_value(left: Any, right: Any) -> Any:
    return left


def refused(call: Callable[[], Any], kind: type[KStreamsError] = TopologyError) -> KStreamsError:
    with pytest.raises(kind) as error:
        call()
    assert error.value.hint, str(error.value)
    return error.value


def test_a_topic_name_that_kafka_refuses() -> None:
    refused(lambda: StreamsBuilder().stream("no topic"), InvalidNameError)
    refused(lambda: StreamsBuilder().table("no/topic"), InvalidNameError)
    refused(lambda: StreamsBuilder().stream("t").to(""), InvalidNameError)


def test_a_node_name_that_kafka_streams_refuses() -> None:
    refused(lambda: StreamsBuilder().stream("t").filter(bool, name="a b"), InvalidNameError)


def test_a_store_name_that_kafka_refuses() -> None:
    refused(lambda: StreamsBuilder().stream("t").group_by_key().count(store="a b"), InvalidNameError)


def test_a_node_name_used_twice() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("t")
    stream.peek(print, name="x").peek(print, name="x")
    error = refused(builder.build)
    assert error.node == "x"
    assert f"made in {__file__}:{error.origin.line}" in str(error)


def test_a_store_name_used_twice() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("t").group_by_key()
    grouped.count(store="s")
    grouped.count(store="s")
    assert refused(builder.build).store == "s"


def test_a_store_that_was_not_added() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(StoreBuilder("counts", StoreKind.KEY_VALUE))
    builder.stream("t").process(Processor, stores=["count"], name="work")
    error = refused(builder.build)
    assert (error.node, error.store, error.hint) == ("work", "count", "did you mean 'counts'?")


def test_overlapping_but_different_sources() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"]).to("x")
    builder.stream(["b", "c"]).to("y")
    assert refused(builder.build).topic == "b"


def test_the_same_topic_with_different_offset_resets() -> None:
    builder = StreamsBuilder()
    builder.stream("a", offset_reset="earliest").to("x")
    builder.stream("a", offset_reset="latest").to("y")
    refused(builder.build)


def test_a_topic_read_as_stream_and_as_table() -> None:
    builder = StreamsBuilder()
    builder.stream("a").to("x")
    builder.table("a")
    refused(builder.build)


def test_an_unknown_offset_reset() -> None:
    assert refused(lambda: StreamsBuilder().stream("t", offset_reset="erliest")).hint == "did you mean 'earliest'?"


def test_a_serde_that_is_none() -> None:
    refused(lambda: StreamsBuilder().stream("t", value_serde="jsn"), ConfigError)
    refused(lambda: StreamsBuilder().stream("t", key_serde=5), ConfigError)


def test_something_that_is_no_function() -> None:
    stream = StreamsBuilder().stream("t")
    for call in (
        lambda: stream.filter(None),  # type: ignore[arg-type]
        lambda: stream.map("x"),  # type: ignore[arg-type]
        lambda: stream.group_by(5),  # type: ignore[arg-type]
        lambda: stream.process(Processor()),  # type: ignore[arg-type]
        lambda: stream.group_by_key().aggregate(0, left_value),  # type: ignore[arg-type]
    ):
        refused(call)


def test_a_join_of_streams_without_windows() -> None:
    builder = StreamsBuilder()
    refused(lambda: builder.stream("a").join(builder.stream("b"), left_value))


def test_a_join_with_a_table_and_windows() -> None:
    builder = StreamsBuilder()
    refused(lambda: builder.stream("a").join(builder.table("b"), left_value, TEN))


def test_an_outer_join_with_a_table() -> None:
    builder = StreamsBuilder()
    refused(lambda: builder.stream("a").outer_join(builder.table("b"), left_value))  # type: ignore[arg-type]


def test_a_join_with_something_else() -> None:
    builder = StreamsBuilder()
    refused(lambda: builder.stream("a").join("b", left_value))  # type: ignore[arg-type]


def test_a_global_join_without_key() -> None:
    builder = StreamsBuilder()
    refused(lambda: builder.stream("a").join(builder.global_table("b"), left_value))


def test_an_option_that_there_is_not_names_the_one_that_was_meant() -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream("a"), builder.table("b")
    assert refused(lambda: stream.join(table, left_value, grase=5), CallError).hint == "did you mean 'grace'?"  # type: ignore[call-overload]
    refused(lambda: stream.group_by_key().count(cashing=True), CallError)  # type: ignore[call-arg]


def test_an_argument_of_another_kind_of_join_is_refused_with_those_that_this_one_has() -> None:
    builder = StreamsBuilder()
    stream, table, other = builder.stream("a"), builder.table("b"), builder.stream("c")
    assert refused(lambda: stream.join(table, left_value, store="s")).hint == "it has: grace, key_serde, value_serde, name"  # type: ignore[call-overload]
    refused(lambda: stream.join(other, left_value, TEN, grace=5))  # type: ignore[call-overload]
    refused(lambda: stream.left_join(builder.global_table("g"), left_value, key=left_value, grace=5))  # type: ignore[call-overload]
    refused(lambda: table.join(builder.table("d"), left_value, partitioner=print))
    refused(lambda: stream.group_by_key().count(retention=5), CallError)  # type: ignore[call-arg]
    refused(lambda: stream.group_by_key().windowed_by(TimeWindows.of_size(10)).count(history=5), CallError)  # type: ignore[call-arg]


def test_a_join_with_grace_on_a_table_without_versions() -> None:
    builder = StreamsBuilder()
    refused(lambda: builder.stream("a").join(builder.table("b", store="s"), left_value, grace=5))


def test_a_join_with_more_grace_than_history() -> None:
    builder = StreamsBuilder()
    builder.stream("a").join(builder.table("b", store="s", history=4), left_value, grace=5).to("x")
    assert refused(builder.build).store == "s"


def test_a_versioned_table_without_name() -> None:
    refused(lambda: StreamsBuilder().table("b", history=4))


def test_a_versioned_global_table() -> None:
    refused(lambda: StreamsBuilder().global_table("b", store=Materialized("s", history=4)))


def test_suppressing_a_versioned_table() -> None:
    builder = StreamsBuilder()
    refused(lambda: builder.table("b", store="s", history=4).suppress(Suppressed.until_time_limit(5)))


def test_suppressing_behind_a_versioned_table() -> None:
    builder = StreamsBuilder()
    builder.table("b", store="s", history=4).map_values(str).suppress(Suppressed.until_time_limit(5)).to_stream().to("x")
    refused(builder.build)


def test_waiting_for_a_window_to_close_where_there_is_none() -> None:
    table = StreamsBuilder().stream("t").group_by_key().count()
    refused(lambda: table.suppress(Suppressed.until_window_closes()))


def test_emitting_when_unlimited_windows_close() -> None:
    windowed = StreamsBuilder().stream("t").group_by_key().windowed_by(UnlimitedWindows.of())
    refused(lambda: windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE))


def test_windows_of_another_kind() -> None:
    refused(lambda: StreamsBuilder().stream("t").group_by_key().windowed_by(TEN))  # type: ignore[call-overload]


def test_a_topic_without_partitions() -> None:
    for partitions in (0, -1, True, "2"):
        refused(lambda n=partitions: StreamsBuilder().stream("t").repartition(partitions=n))  # type: ignore[misc]


def test_two_builders_in_one_join() -> None:
    one, two = StreamsBuilder(), StreamsBuilder()
    refused(lambda: one.stream("a").merge(two.stream("b")))


def test_an_unknown_optimisation() -> None:
    error = refused(lambda: StreamsBuilder().build({"topology.optimization": "merge.repartition.topic"}), ConfigError)
    assert error.hint == "did you mean 'merge.repartition.topics'?"
    refused(lambda: StreamsBuilder().build({"topology.optimization": "all,none"}), ConfigError)


def test_a_call_that_is_refused_leaves_nothing_behind() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("t")
    refused(lambda: stream.filter(bool, name="no good"), InvalidNameError)
    refused(lambda: stream.group_by_key().windowed_by(TimeWindows.of_size(10)).count(store="s", retention=1))
    stream.map_values(str).to("out")
    assert list(builder.build().nodes) == ["KSTREAM-SOURCE-0000000000", "KSTREAM-MAPVALUES-0000000001", "KSTREAM-SINK-0000000002"]


def test_a_stream_reads_topics_or_a_pattern() -> None:
    refused(lambda: StreamsBuilder().stream("a", pattern="b"))
    refused(lambda: StreamsBuilder().stream())
    refused(lambda: StreamsBuilder().stream([]))


def test_a_partitioner_of_a_foreign_key_join_must_choose_one_partition() -> None:
    from kstreams_repl.engine.dsl.tables.foreign_key_joins import _by_key_alone

    many = _by_key_alone(lambda topic, key, value, partitions: {0, 1})
    assert many is not None
    refused(lambda: many("t", "k", "v", 2))
    one = _by_key_alone(lambda topic, key, value, partitions: {1} if value is None else {0})
    assert one is not None and one("t", "k", "v", 2) == {1}


def test_what_is_allowed_is_not_refused() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("logs-.*"), key_serde="string", value_serde=serdes.json).to("all-logs")
    builder.stream("t").group_by_key().count(store=Materialized("s", caching=False))
    topology = builder.build({"topology.optimization": "merge.repartition.topics, reuse.ktable.source.topics"})
    assert topology.store("s").caching is False
