"""The tasks of a topology whose topics have these numbers of partitions."""

from __future__ import annotations

import re

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.partitions import ResolvedTopology
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import TaskId, TopicPartition


def task_specs(topology: Topology, application_id: str, config: StreamsConfig, resolved: ResolvedTopology) -> dict[TaskId, TaskSpec]:
    """Return the description of each task.

    Args:
        resolved: which partitions each task reads.
    """
    internal = frozenset(topology.internal_topics)
    parts = {part.id: part for part in topology.subtopologies() if not part.global_}
    return {
        task: TaskSpec(
            application_id,
            parts[task.subtopology],
            task,
            {partition: _source_of(parts[task.subtopology], partition, application_id, internal) for partition in partitions},
            config,
            internal,
        )
        for task, partitions in resolved.tasks.items()
    }


def _source_of(part: Subtopology, partition: TopicPartition, application_id: str, internal: frozenset[str]) -> str:
    """Return the source node that reads a topic, given its name on the broker."""
    logical = partition.topic.removeprefix(f"{application_id}-")
    for node in part.nodes:
        if isinstance(node, SourceNode) and (partition.topic in node.topics or (logical in internal and logical in node.topics)):
            return node.name
    for node in part.nodes:
        if isinstance(node, SourceNode) and node.pattern is not None and re.fullmatch(node.pattern, partition.topic):
            return node.name
    raise TopologyError(f"no source of sub-topology {part.id} reads {partition.topic}", topic=partition.topic)
