"""The number of partitions of each internal topic, and hence the number of tasks of each sub-topology. Pure functions.

Repartition topics keep the count they have on the broker, or take the largest count upstream. A co-partitioned group takes the
count of its external topics or, if all its topics are internal, the largest count (or the requested one). A changelog has as many
partitions as its sub-topology has tasks.
Sources: Kafka Streams' `RepartitionTopics`, `CopartitionedTopicsEnforcer`, `ChangelogTopics`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.internal_topics import InternalTopic, changelog, repartition_config, result_log
from kstreams_repl.engine.topology.names import MAX_NAME_LENGTH, changelog_topic, internal_topic
from kstreams_repl.engine.topology.nodes import SinkNode, SourceNode
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.system.errors import InvalidNameError, TopologyError, UnknownTopicError, did_you_mean
from kstreams_repl.system.types import TaskId, TopicPartition


class PartitionGrouper(Protocol):
    """Decides which partitions one task reads (KIP-28)."""

    def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
        """Group the partitions of one sub-topology's source topics; a group's index is its task's number.

        The result must be the same for the same counts, and a partition must stay in its group when counts grow: the task's
        number is also the partition of its changelogs.

        Args:
            partitions_per_topic: number of partitions by name of the topic on the broker.

        Example:
            >>> import kstreams_repl as ks
            >>> class OneTask:
            ...     def group(self, partitions_per_topic):
            ...         return [{ks.types.TopicPartition(t, n) for t, count in partitions_per_topic.items() for n in range(count)}]
            ...
            >>> len(OneTask().group({"words": 4}))
            1
        """


class DefaultPartitionGrouper:
    """Groups partitions with the same number, so that equal keys of co-partitioned topics are in the same task."""

    def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
        """Return one group per partition number, with that partition of each topic that has it.

        Args:
            partitions_per_topic: number of partitions by name of the topic on the broker.

        Example:
            >>> from kstreams_repl.engine.dsl import kip28
            >>> groups = kip28.DefaultPartitionGrouper().group({"words": 2, "names": 1})
            >>> [len(group) for group in groups]
            [2, 1]
        """
        tasks = max(partitions_per_topic.values(), default=0)
        return [
            {TopicPartition(topic, number) for topic, count in partitions_per_topic.items() if number < count}
            for number in range(tasks)
        ]


@dataclass(frozen=True, slots=True)
class ResolvedTopology:
    """The internal topics, tasks and source topics of a topology on one cluster.

    Attributes:
        repartition_topics, changelog_topics: topics to create, with partition counts and settings.
        tasks: each task's input partitions, by names on the broker.
        source_topics: sub-topology id -> topics that its sources read on this cluster, patterns resolved.
    """

    repartition_topics: tuple[InternalTopic, ...]
    changelog_topics: tuple[InternalTopic, ...]
    tasks: Mapping[TaskId, tuple[TopicPartition, ...]]
    source_topics: Mapping[int, tuple[str, ...]]


def resolve_partitions(
    topology: TopologyGraph,
    application_id: str,
    partition_counts: Mapping[str, int],
    *,
    grouper: PartitionGrouper | None = None,
    topic_configs: Mapping[str, str] = MappingProxyType({}),
) -> ResolvedTopology:
    """Return the partition counts of all internal topics, and the tasks that follow from them.

    Args:
        topology: the topology to run.
        application_id: prefix of the names of internal topics.
        partition_counts: the cluster's topics and their numbers of partitions.
        grouper: decides which partitions a task reads; None = the topology's own, or `DefaultPartitionGrouper`.
        topic_configs: settings of the internal topics; they override the library's and are overridden by a store's.

    Raises:
        UnknownTopicError: a source topic is not on the cluster, or a pattern matches none where a count is needed.
        TopologyError: topics that must be co-partitioned are not, or a grouper omits partitions or returns them twice.
    """
    parts = [part for part in topology.subtopologies() if not part.global_]
    sources = {part.id: _source_topics(part, topology, application_id, partition_counts) for part in parts}
    existing = {
        topic: count
        for topic in topology.internal_topics
        if (count := partition_counts.get(internal_topic(application_id, topic))) is not None
    }
    counts = _repartition_counts(topology, parts, sources, partition_counts, existing)
    for group in topology.copartition_groups():
        _enforce(group, topology.internal_topics, counts, partition_counts)

    def count_of(topic: str) -> int:
        return counts[topic] if topic in counts else partition_counts[topic]

    def on_broker(topic: str) -> str:
        return internal_topic(application_id, topic) if topic in topology.internal_topics else topic

    tasks: dict[TaskId, tuple[TopicPartition, ...]] = {}
    changelogs: dict[str, InternalTopic] = {}
    for part in parts:
        sizes = {on_broker(topic): count_of(topic) for topic in sources[part.id]}
        groups = _groups(part.id, sizes, grouper or topology.partition_grouper or DefaultPartitionGrouper())
        tasks.update({TaskId(part.id, number): group for number, group in enumerate(groups)})
        for store in part.stores:
            topic = changelog(store, application_id, len(groups), topic_configs)
            if topic is not None:
                changelogs[topic.name] = topic
        for log in filter(None, (getattr(getattr(node, "operator", None), "result_log_name", None) for node in part.nodes)):
            topic = result_log(log, application_id, len(groups), topic_configs)
            if topic.name in changelogs:
                raise TopologyError(
                    f"store {log!r} and the durable results of an asynchronous node would share the topic {topic.name}",
                    hint="give the store another name", store=log,
                )  # fmt: skip
            changelogs[topic.name] = topic
    repartitions = tuple(
        InternalTopic(on_broker(topic), "repartition", count, repartition_config(topic_configs)) for topic, count in counts.items()
    )
    for topic in (*repartitions, *changelogs.values()):
        _refuse_long(topic.name)
    return ResolvedTopology(
        repartitions,
        tuple(changelogs.values()),
        tasks,
        {number: tuple(on_broker(topic) for topic in topics) for number, topics in sources.items()},
    )


def _refuse_long(topic: str) -> None:
    if len(topic) > MAX_NAME_LENGTH:
        raise InvalidNameError(
            f"the application's own topic {topic[:60]}… would have a name of {len(topic)} characters; Kafka allows {MAX_NAME_LENGTH}",
            hint="name the store or the operator that it is for (store=, name=), or give the application a shorter name",
            topic=topic,
        )


def own_topics(topology: TopologyGraph, application_id: str) -> frozenset[str]:
    """Return the broker's names of the topics that an application creates for itself: internal topics and its journal."""
    names = {internal_topic(application_id, topic) for topic in (*topology.internal_topics, "journal")}
    return frozenset(names | {changelog_topic(application_id, store) for store in topology.stores})


def _groups(part: int, sizes: Mapping[str, int], grouper: PartitionGrouper) -> list[tuple[TopicPartition, ...]]:
    """Return a grouper's result in a fixed order; raise unless each partition is in exactly one group."""
    order = {topic: position for position, topic in enumerate(sizes)}
    try:
        groups = [
            tuple(sorted(group, key=lambda tp: (order.get(tp.topic, -1), tp.partition))) for group in grouper.group(dict(sizes))
        ]
    except Exception as error:  # user code; also called when an input has grown, where an exception would go unnoticed
        raise TopologyError(
            f"the partition grouper cannot group sub-topology {part} with {', '.join(f'{topic}: {sizes[topic]}' for topic in sizes)} "
            f"partitions: {type(error).__name__}: {error}",
            hint="return a list of sets of TopicPartition for any counts",
            topic=next(iter(sizes), None),
        ) from error
    given = [partition for group in groups for partition in group]
    expected = {TopicPartition(topic, number) for topic, count in sizes.items() for number in range(count)}
    if len(given) != len(expected) or set(given) != expected:
        wrong = sorted(expected.symmetric_difference(given)) or sorted({tp for tp in given if given.count(tp) > 1})
        raise TopologyError(
            f"the partition grouper did not put {wrong[0]} of sub-topology {part} into exactly one group",
            hint="return every partition of every topic once",
            topic=wrong[0].topic,
            partition=wrong[0].partition,
        )
    return groups


def _source_topics(part: Subtopology, topology: TopologyGraph, application_id: str, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the topics its sources read. A pattern does not match the application's own topics, which exist from the second
    start on."""
    own = own_topics(topology, application_id)
    topics: dict[str, None] = {}
    for node in part.nodes:
        if not isinstance(node, SourceNode):
            continue
        if node.pattern is not None:
            pattern = node.pattern
            matching = (topic for topic in sorted(sizes) if pattern.fullmatch(topic))
            topics.update(dict.fromkeys(topic for topic in matching if topic not in own))
        for topic in node.topics:
            if topic not in topology.internal_topics and topic not in sizes:
                raise UnknownTopicError(
                    f"source {node.name!r} reads topic {topic!r}, which is not on the cluster",
                    hint=did_you_mean(topic, sizes) or f"create it first: session.create_topic({topic!r})",
                    node=node.name,
                    topic=topic,
                )
            topics[topic] = None
    return tuple(topics)


def _repartition_counts(
    topology: TopologyGraph,
    parts: Collection[Subtopology],
    sources: Mapping[int, tuple[str, ...]],
    sizes: Mapping[str, int],
    existing: Mapping[str, int],
) -> dict[str, int]:
    topics = dict.fromkeys(topic for part in parts for topic in sources[part.id] if topic in topology.internal_topics)
    counts = {topic: count for topic in topics if (count := topology.internal_topics[topic]) is not None}
    counts = {topic: existing[topic] for topic in topics if topic in existing} | counts
    writers = {
        topic: [part.id for part in parts if any(isinstance(node, SinkNode) and node.topic == topic for node in part.nodes)]
        for topic in topics
    }
    missing = [topic for topic in topics if topic not in counts]
    while missing:
        progress = False
        for topic in missing:
            upstream = [up for part in writers[topic] for up in sources[part]]
            candidates = [counts.get(up) if up in topology.internal_topics else sizes[up] for up in upstream]
            largest = max((count for count in candidates if count is not None), default=None)
            if largest is not None:
                counts[topic] = largest
                progress = True
        missing = [topic for topic in missing if topic not in counts]
        if missing and not progress:
            raise UnknownTopicError(
                f"the number of partitions of {', '.join(missing)} is unknown",
                hint="make sure that every source topic exists and that each pattern matches at least one topic",
                topic=missing[0],
            )
    return {topic: counts[topic] for topic in topics}


def _enforce(group: frozenset[str], asked: Mapping[str, int | None], counts: dict[str, int], sizes: Mapping[str, int]) -> None:
    internal = sorted(topic for topic in group if topic in counts)
    external = {topic: sizes[topic] for topic in sorted(group) if topic not in counts}
    if external:
        if len(set(external.values())) > 1:
            raise _not_copartitioned(
                external, "recreate one of them with the other's number of partitions, or repartition() that stream"
            )
        size = next(iter(external.values()))
    else:
        fixed = {topic: count for topic in internal if (count := asked[topic]) is not None}
        if len(set(fixed.values())) > 1:
            raise _not_copartitioned(fixed, "give the same partitions= to both repartition() calls")
        size = next(iter(fixed.values())) if fixed else max(counts[topic] for topic in internal)
    for topic in internal:
        if asked[topic] not in (None, size):
            raise _not_copartitioned({**external, topic: counts[topic]}, f"use partitions={size}, or leave it out")
        counts[topic] = size


def _not_copartitioned(topics: Mapping[str, int], hint: str) -> TopologyError:
    shown = ", ".join(f"{topic} has {count}" for topic, count in topics.items())
    return TopologyError(
        f"topics that are joined or merged by key have different numbers of partitions: {shown}",
        hint=hint,
        topic=next(iter(topics)),
    )
