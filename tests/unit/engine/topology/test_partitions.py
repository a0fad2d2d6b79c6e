"""Partition counts of internal topics, tasks, and co-partitioning."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import pytest

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.dsl import StreamsBuilder, TimeWindows
from kstreams_repl.engine.topology import Topology, resolve_partitions
from kstreams_repl.system.errors import ConfigError, TopologyError, UnknownTopicError
from kstreams_repl.system.types import TaskId, TopicPartition


def first(left: object, right: object) -> object:
    return left


def test_a_task_reads_the_partitions_with_its_number() -> None:
    resolved = resolve_partitions(Topology().add_source("in", "a", "b"), "app", {"a": 2, "b": 3})
    assert resolved.tasks == {
        TaskId(0, 0): (TopicPartition("a", 0), TopicPartition("b", 0)),
        TaskId(0, 1): (TopicPartition("a", 1), TopicPartition("b", 1)),
        TaskId(0, 2): (TopicPartition("b", 2),),
    }


def test_a_repartition_topic_takes_the_largest_count_upstream() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"]).group_by(first).count(store="counts")
    resolved = resolve_partitions(builder.build(), "app", {"a": 2, "b": 5})
    assert [(t.name, t.partitions) for t in resolved.repartition_topics] == [("app-counts-repartition", 5)]
    assert [(t.name, t.partitions) for t in resolved.changelog_topics] == [("app-counts-changelog", 5)]


def test_a_repartition_topic_that_is_there_keeps_its_count_when_the_input_grows() -> None:
    builder = StreamsBuilder()
    builder.stream("a").group_by(first).count(store="counts")
    resolved = resolve_partitions(builder.build(), "app", {"a": 5, "app-counts-repartition": 2})
    assert [t.partitions for t in (*resolved.repartition_topics, *resolved.changelog_topics)] == [2, 2]
    assert len([task for task in resolved.tasks if task.subtopology == 0]) == 5


def test_counts_travel_through_a_chain_of_repartition_topics() -> None:
    builder = StreamsBuilder()
    builder.stream("a").repartition(name="one").select_key(first).repartition(name="two").to("out")
    resolved = resolve_partitions(builder.build(), "app", {"a": 3})
    assert {t.name: t.partitions for t in resolved.repartition_topics} == {"app-one-repartition": 3, "app-two-repartition": 3}


def test_an_asked_for_count_wins() -> None:
    builder = StreamsBuilder()
    builder.stream("a").repartition(name="r", partitions=7).to("out")
    assert resolve_partitions(builder.build(), "app", {"a": 3}).repartition_topics[0].partitions == 7


def test_joined_topics_with_different_counts_are_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("s").join(builder.table("t"), first).to("out")
    with pytest.raises(TopologyError, match="s has 2, t has 3") as refused:
        resolve_partitions(builder.build(), "app", {"s": 2, "t": 3})
    assert refused.value.hint


def test_a_repartition_topic_takes_the_count_of_the_table_it_joins() -> None:
    builder = StreamsBuilder()
    builder.stream("s").select_key(first).join(builder.table("t"), first).to("out")
    resolved = resolve_partitions(builder.build(), "app", {"s": 2, "t": 3})
    assert [t.partitions for t in resolved.repartition_topics] == [3]


def test_an_asked_for_count_that_does_not_fit_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("s").repartition(name="r", partitions=4).join(builder.table("t"), first).to("out")
    with pytest.raises(TopologyError, match="different numbers of partitions"):
        resolve_partitions(builder.build(), "app", {"s": 2, "t": 3})


def test_two_repartition_topics_with_different_counts_are_refused_when_built() -> None:
    from kstreams_repl.engine.dsl import JoinWindows

    builder = StreamsBuilder()
    left = builder.stream("a").repartition(name="l", partitions=2)
    left.join(builder.stream("b").repartition(name="r", partitions=3), first, JoinWindows.of_time_difference(5)).to("out")
    with pytest.raises(TopologyError, match="l-repartition=2, r-repartition=3"):
        builder.build()


def test_repartition_topics_joined_with_each_other_take_the_larger_count() -> None:
    from kstreams_repl.engine.dsl import JoinWindows

    builder = StreamsBuilder()
    left = builder.stream("a").repartition(name="l")
    left.join(builder.stream("b").repartition(name="r"), first, JoinWindows.of_time_difference(5)).to("out")
    resolved = resolve_partitions(builder.build(), "app", {"a": 2, "b": 3})
    assert [t.partitions for t in resolved.repartition_topics] == [3, 3]


def test_a_source_topic_that_is_not_there_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UnknownTopicError) as refused:
        resolve_partitions(Topology().add_source("in", "clicks"), "app", {"click": 1})
    assert refused.value.hint == "did you mean 'click'?"


def test_a_pattern_reads_the_topics_it_matches_in_full() -> None:
    resolved = resolve_partitions(Topology().add_source("in", re.compile("a.")), "app", {"a1": 1, "a2": 1, "a10": 1, "b1": 1})
    assert resolved.source_topics == {0: ("a1", "a2")}


def test_a_pattern_without_topics_leaves_a_repartition_topic_without_count() -> None:
    builder = StreamsBuilder()
    builder.stream(pattern="x.*").repartition(name="r").to("out")
    with pytest.raises(UnknownTopicError):
        resolve_partitions(builder.build(), "app", {"a": 1})


def test_changelogs_have_the_settings_of_their_kind() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("a").group_by_key()
    grouped.count(store="plain")
    grouped.windowed_by(TimeWindows.of_size(1000, grace=500)).count(store="windowed")
    builder.table("t", store="versions", history=60_000)
    topics = {t.store: t.config for t in resolve_partitions(builder.build(), "app", {"a": 1, "t": 1}).changelog_topics}
    assert topics["plain"]["cleanup.policy"] == "compact"
    for_ever = str(2**63 - 1)
    assert (topics["windowed"]["cleanup.policy"], topics["windowed"]["retention.ms"]) == ("compact,delete", for_ever)
    assert topics["versions"]["min.compaction.lag.ms"] == for_ever
    assert {config["message.timestamp.after.max.ms"] for config in topics.values()} == {for_ever}


def test_join_stores_are_deleted_not_compacted() -> None:
    from kstreams_repl.engine.dsl import JoinWindows

    builder = StreamsBuilder()
    builder.stream("a").join(builder.stream("b"), first, JoinWindows.of_time_difference(5)).to("out")
    topics = resolve_partitions(builder.build(), "app", {"a": 1, "b": 1}).changelog_topics
    assert {t.config["cleanup.policy"] for t in topics} == {"delete"}


def test_an_optimised_table_needs_no_changelog() -> None:
    builder = StreamsBuilder()
    builder.table("t", store="rows")
    topology = builder.build({"topology.optimization": "all"})
    assert resolve_partitions(topology, "app", {"t": 1}).changelog_topics == ()
    assert topology.store("rows").source_topic == "t"


def test_a_custom_grouper_decides_tasks_and_changelog_partitions() -> None:
    class Pairs:
        def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
            every = [TopicPartition(topic, n) for topic, count in partitions_per_topic.items() for n in range(count)]
            return [set(every[i : i + 2]) for i in range(0, len(every), 2)]

    builder = StreamsBuilder()
    builder.stream("a").group_by_key().count(store="counts")
    resolved = resolve_partitions(builder.build(), "app", {"a": 4}, grouper=Pairs())
    assert list(resolved.tasks) == [TaskId(0, 0), TaskId(0, 1)]
    assert resolved.changelog_topics[0].partitions == 2


def test_a_grouper_that_leaves_a_partition_out_is_refused() -> None:
    class Forgetful:
        def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
            return [{TopicPartition("a", 0)}]

    with pytest.raises(TopologyError, match="a-1") as refused:
        resolve_partitions(Topology().add_source("in", "a"), "app", {"a": 2}, grouper=Forgetful())
    assert refused.value.hint


@pytest.mark.parametrize(
    "group", [lambda counts: [{TopicPartition("a", number)} for number in {2: (0, 1)}[counts["a"]]], lambda counts: None]
)
def test_a_grouper_that_cannot_group_is_named(group: Callable[[Mapping[str, int]], list[set[TopicPartition]]]) -> None:
    """Of an input that had grown the thread that looks for that ended with it, and nobody ever read the new partitions."""
    with pytest.raises(TopologyError, match="partition grouper cannot group sub-topology 0 with a: 3 partitions") as refused:
        resolve_partitions(Topology().add_source("in", "a"), "app", {"a": 3}, grouper=SimpleNamespace(group=group))
    assert refused.value.hint and refused.value.topic == "a"


def test_topic_settings_are_defaults_of_internal_topics() -> None:
    config = StreamsConfig({"topic.segment.bytes": 1_000_000, "topic.retention.ms": 5, "topic.unclean.leader.election.enable": False})
    builder = StreamsBuilder()
    grouped = builder.stream("a").group_by(lambda key, value: value)
    grouped.count(store="counts")
    grouped.windowed_by(TimeWindows.of_size(10)).count(store="windows")
    resolved = resolve_partitions(builder.build(), "app", {"a": 3}, topic_configs=config.topic_configs)
    assert all(topic.config["segment.bytes"] == "1000000" for topic in (*resolved.repartition_topics, *resolved.changelog_topics))
    assert all(topic.config["unclean.leader.election.enable"] == "false" for topic in resolved.changelog_topics)
    assert {topic.config["retention.ms"] for topic in resolved.repartition_topics} == {"5"}
    windows = next(topic for topic in resolved.changelog_topics if topic.store == "windows")
    assert int(windows.config["retention.ms"]) > 5, "a store's retention is kept"
    assert windows.config["cleanup.policy"] == "compact,delete"


def test_clean_up_policy_for_all_internal_topics_is_refused() -> None:
    with pytest.raises(ConfigError, match="topic.cleanup.policy"):
        StreamsConfig({"topic.cleanup.policy": "delete"})


def test_a_pattern_does_not_mean_the_application_s_own_topics() -> None:
    """They are there from the second start on. Inputs may begin with its name, and stay inputs."""
    builder = StreamsBuilder()
    builder.stream(re.compile("a|app-.*")).group_by(first).count(store="counts")
    topology = builder.build()
    inputs = {"a": 2, "app-eu": 2, "app-x-changelog": 1}
    fresh = resolve_partitions(topology, "app", inputs)
    own = {topic.name: topic.partitions or 1 for topic in (*fresh.repartition_topics, *fresh.changelog_topics)} | {"app-journal": 1}
    assert resolve_partitions(topology, "app", inputs | own).source_topics == fresh.source_topics
    assert fresh.source_topics[0] == ("a", "app-eu", "app-x-changelog")
