"""Generated and given names; the JVM's own texts are compared in tests/conformance."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl.engine.dsl import Branched, JoinWindows, KStream, StreamsBuilder, TimeWindows


def pair(left: Any, right: Any) -> tuple[Any, Any]:
    return left, right


def yes(key: Any, value: Any) -> bool:
    return True


def nodes(builder: StreamsBuilder, **config: str) -> list[str]:
    return list(builder.build({key.replace("_", "."): value for key, value in config.items()}).nodes)


def test_naming_one_node_does_not_renumber_the_others() -> None:
    def build(name: str | None) -> list[str]:
        builder = StreamsBuilder()
        builder.stream("in").map_values(str, name=name).filter(yes).to("out")
        return nodes(builder)

    plain, named = build(None), build("shout")
    assert [name for name in plain if name not in named] == ["KSTREAM-MAPVALUES-0000000001"]


def test_a_count_whose_store_has_options_but_no_name_uses_one_number_more() -> None:
    plain, kept = StreamsBuilder(), StreamsBuilder()
    plain.stream("in").group_by_key().count()
    kept.stream("in").group_by_key().count(caching=False)
    assert nodes(plain)[-1] == "KSTREAM-AGGREGATE-0000000002"
    assert nodes(kept)[-1] == "KSTREAM-AGGREGATE-0000000003"


def test_a_repartition_name_is_its_topic_s() -> None:
    builder = StreamsBuilder()
    builder.stream("in").repartition(name="again").to("out")
    topology = builder.build()
    assert dict(topology.internal_topics) == {"again-repartition": None}
    assert list(topology.nodes)[1:4] == ["again-repartition-filter", "again-repartition-sink", "again-repartition-source"]


def test_a_named_grouping_shares_one_repartition_topic() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by(pair, name="by-pair")
    grouped.count(store="a")
    grouped.count(store="b")
    assert dict(builder.build().internal_topics) == {"by-pair-repartition": None}


def test_an_unnamed_grouping_repartitions_for_each_aggregate_unless_optimised() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by(pair)
    grouped.count(store="a")
    grouped.count(store="b")
    assert len(builder.build().internal_topics) == 2
    assert list(builder.build({"topology.optimization": "all"}).internal_topics) == ["a-repartition"]


def test_branches_are_named_after_their_splitter() -> None:
    streams = StreamsBuilder().stream("in").split(name="by-").branch(yes, name="first").branch(yes).default_branch(name="rest")
    assert list(streams) == ["by-first", "by-2", "by-rest"]


def test_a_branch_can_be_led_on_at_once() -> None:
    builder = StreamsBuilder()
    seen: list[KStream] = []
    splitter = builder.stream("in").split(name="s-")
    splitter.branch(yes, Branched("mapped", with_function=lambda stream: stream.map_values(str, name="m")))
    splitter.branch(yes, Branched("sunk", with_consumer=lambda stream: seen.append(stream)))
    streams = splitter.no_default_branch()
    assert [stream.name for stream in streams.values()] == ["m"]
    assert [stream.name for stream in seen] == ["s-sunk"]


def test_sources_of_the_same_topic_become_one() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("a")
    builder.stream("in").to("b")
    assert [name for name in nodes(builder) if "SOURCE" in name] == ["KSTREAM-SOURCE-0000000000"]


def test_a_self_join_keeps_one_store_when_optimised() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.join(stream, pair, JoinWindows.of_time_difference(10)).to("out")
    assert len(builder.build().stores) == 2
    assert len(builder.build({"topology.optimization": "single.store.self.join"}).stores) == 1


def test_null_keys_are_dropped_before_a_topic_unless_an_outer_join_follows() -> None:
    def predicate(outer: bool) -> Any:
        builder = StreamsBuilder()
        left, right = builder.stream("a").repartition(name="r"), builder.stream("b")
        (left.left_join if outer else left.join)(right, pair, JoinWindows.of_time_difference(5)).to("out")
        return builder.build().node("r-repartition-filter").operator.predicate  # type: ignore[union-attr]

    assert predicate(outer=False)(None, 1) is False
    assert predicate(outer=True)(None, 1) is True


@pytest.mark.parametrize("value", [None, "none", ""])
def test_no_optimisation_is_the_default(value: str | None) -> None:
    builder = StreamsBuilder()
    builder.table("rows", store="rows")
    assert builder.build({"topology.optimization": value}).store("rows").source_topic is None


def test_windowed_reduce_and_aggregate_have_prefixes_of_their_own() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size(10))
    assert windowed.reduce(pair).name == "KSTREAM-REDUCE-0000000002"
    assert windowed.aggregate(list, lambda k, v, a: a).name == "KSTREAM-AGGREGATE-0000000004"


def test_a_foreign_key_join_names_all_its_parts() -> None:
    builder = StreamsBuilder()
    builder.table("l").join(builder.table("r"), pair, foreign_key=str, name="fk").to_stream().to("out")
    topology = builder.build()
    assert sorted(topology.internal_topics) == ["fk-subscription-registration-topic", "fk-subscription-response-topic"]
    assert "fk-subscription-store" in topology.stores
    assert "fk-result" in topology.nodes
