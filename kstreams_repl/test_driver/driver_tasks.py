"""The tasks of a test driver: one for the whole topology, or, with numbers of partitions, those that a deployment has (KIP-1238)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import NamedTuple

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.runtime.task_specs import task_specs
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.nodes import SinkNode, SourceNode
from kstreams_repl.engine.topology.partitions import resolve_partitions
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.types import TaskId, TopicPartition
from kstreams_repl.test_driver.host import DriverHost

Partitions = Mapping[str, int] | int
"""Numbers of partitions by topic (1 for those that are not named), or one for all topics."""


class DriverTask(NamedTuple):
    """One task and what it runs in."""

    task: StreamTask
    host: DriverHost


class DriverTopics:
    """Which partition a record goes to, and where it is read.

    Args:
        partitions: None: each topic has one.

    Attributes:
        sinks: the topics that sinks name.
        patterns: of sources that read topics by a pattern, and the partition in whose place they read.

    Raises:
        ValueError: a number of partitions is less than 1.
        TopologyError: topics that must be co-partitioned have different numbers of partitions.
    """

    def __init__(self, topology: Topology, application_id: str, config: StreamsConfig, partitions: Partitions | None) -> None:
        internal = frozenset(topology.internal_topics)
        given: Mapping[str, int] = partitions if isinstance(partitions, Mapping) else {}
        self._each = partitions if isinstance(partitions, int) else 1
        self._given = dict(given)
        self._next = count()
        if min((self._each, *given.values())) < 1:
            raise ValueError(f"expected 1 partition or more, got {partitions!r}")
        parts = [part for part in topology.subtopologies() if not part.global_]
        self.sinks = {
            internal_topic(application_id, node.topic) if node.topic in internal else node.topic
            for part in parts
            for node in part.nodes
            if isinstance(node, SinkNode) and node.topic
        }
        self.patterns: list[tuple[re.Pattern[str], TopicPartition]] = []
        if partitions is None:
            self.specs = [_whole(topology, parts, application_id, config, internal, self.patterns)] if parts else []
            return
        sources = {topic for part in topology.subtopologies() for topic in part.source_topics} - internal
        self._given |= {topic: self._given.get(topic, self._each) for topic in sources}
        resolved = resolve_partitions(topology, application_id, self._given, topic_configs=config.topic_configs)
        self._given |= {topic.name: topic.partitions for topic in resolved.repartition_topics if topic.partitions is not None}
        self.specs = list(task_specs(topology, application_id, config, resolved).values())

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        return self._given.get(topic, self._each)

    def partition_of(self, topic: str, key: bytes | None) -> int:
        """Return the partition that a producer chooses: by the key, without one in turn."""
        partitions = self.partitions(topic)
        if partitions == 1:
            return 0
        return next(self._next) % partitions if key is None else partition_for_key(key, partitions)


def _whole(
    topology: Topology,
    parts: Iterable[Subtopology],
    application_id: str,
    config: StreamsConfig,
    internal: frozenset[str],
    patterns: list[tuple[re.Pattern[str], TopicPartition]],
) -> TaskSpec:
    """Return one task with the nodes of all sub-topologies, in the topology's order."""
    order = {name: index for index, name in enumerate(topology.nodes)}
    nodes = sorted((node for part in parts for node in part.nodes), key=lambda node: order[node.name])
    inputs: dict[TopicPartition, str] = {}
    for node in nodes:
        if isinstance(node, SourceNode):
            for topic in node.topics:
                inputs[TopicPartition(internal_topic(application_id, topic) if topic in internal else topic, 0)] = node.name
            if node.pattern is not None:
                matched = TopicPartition(node.pattern.pattern, 0)
                patterns.append((node.pattern, matched))
                inputs[matched] = node.name
    stores = {builder.name: builder for part in parts for builder in part.stores}
    merged = Subtopology(id=0, nodes=tuple(nodes), stores=tuple(stores.values()), global_=False)
    return TaskSpec(application_id, merged, TaskId(0, 0), inputs, config, internal)


class DriverTasks:
    """The tasks of a driver.

    Args:
        make: returns the task of a description, and its host.
    """

    def __init__(self, topics: DriverTopics, make: Callable[[TaskSpec], DriverTask]) -> None:
        self.topics = topics
        self.all = [make(spec) for spec in topics.specs]
        self._routes = {partition: each.task for each in self.all for partition in each.task.spec.partitions}
        self.inputs = list(dict.fromkeys(partition.topic for partition in self._routes))

    def route(self, topic: str, partition: int) -> tuple[StreamTask, TopicPartition] | None:
        """Return the task that reads a partition of a topic, and the name by which it does; None if no task reads it."""
        source = TopicPartition(topic, partition)
        if source not in self._routes:
            matched = next((input for pattern, input in self.topics.patterns if pattern.fullmatch(topic)), None)
            if matched is None:
                return None
            source = matched
        return self._routes[source], source

    def with_partition(self, partition: int) -> list[DriverTask]:
        """Return the tasks of one partition."""
        return [each for each in self.all if each.task.id.partition == partition]
