"""From a topology and a configuration to the plan of a generation: topics checked and created, tasks made and assigned. No
Spark in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import ConfigError, TopologyError, UnknownTopicError, did_you_mean
from kstreams_repl.instance.assignment import assign_standbys, assign_tasks, needs_copies
from kstreams_repl.instance.global_tables import partitions_of
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.instance.snapshot_directory import check_directory, snapshot_directory
from kstreams_repl.instance.state_directory import control_directory
from kstreams_repl.kafka.admin import Admin, NewTopicSpec
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.kafka.internal_topics import ensure_internal_topics
from kstreams_repl.runtime.task import TaskSpec
from kstreams_repl.spark.generations import Previous
from kstreams_repl.topology.names import validate_name
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.partitions import ResolvedTopology, resolve_partitions
from kstreams_repl.topology.subtopologies import Subtopology
from kstreams_repl.types import TaskId, TopicPartition


def application_id_of(config: StreamsConfig) -> str:
    """The checked application id.

    Raises:
        ConfigError: there is none.
    """
    name = config["application.id"]
    if not name:
        raise ConfigError(
            "application.id is not set", hint="give the application a name; it names its topics and state", key="application.id"
        )
    return validate_name(name, "application.id")


def check_topics(topology: Any, counts: Mapping[str, int]) -> None:
    """Every topic that is read or written by a fixed name exists.

    Raises:
        UnknownTopicError: one does not, with a "did you mean".
        TopologyError: the topology reads nothing.
    """
    if not topology.source_topics() and not any(
        isinstance(node, SourceNode) and node.pattern for node in topology.nodes.values()
    ):
        raise TopologyError("the topology reads no topic", hint="begin with builder.stream('topic') or builder.table('topic')")
    internal = set(topology.internal_topics)
    for kind, names in (("reads", topology.source_topics()), ("writes", topology.sink_topics())):
        for name in names:
            if name not in internal and name not in counts:
                raise UnknownTopicError(
                    f"the topology {kind} topic {name!r}, which is not on the broker",
                    hint=did_you_mean(name, counts) or f"create it first: session.create_topic({name!r})",
                    topic=name,
                )


def create_internal_topics(admin: Admin, resolved: ResolvedTopology, config: StreamsConfig) -> dict[str, int]:
    """Create what is missing, check what is there; returns the partition counts of all internal topics."""
    replication = config["replication.factor"]
    topics = (*resolved.repartition_topics, *resolved.changelog_topics)
    specs = [
        NewTopicSpec(topic.name, topic.partitions or 1, dict(topic.config), None if replication == -1 else replication)
        for topic in topics
    ]
    ensure_internal_topics(admin, specs)
    return {spec.name: spec.partitions for spec in specs}


def make_plan(
    topology: Any,
    config: StreamsConfig,
    settings: ClientSettings,
    *,
    admin: Admin,
    generation: int,
    state_root: Path,
    previous: Previous | None = None,
    remote: bool = False,
    journal_start: int = 0,
    failpoints: str = "",
) -> ApplicationPlan:
    """Steps of a deploy that need no Spark: validate, create internal topics, make and assign tasks.

    Args:
        previous: where tasks and copies were; they stay as long as that keeps the balance.
        remote: instances run in executors of a cluster; only there standby copies are of use.
        journal_start: of a remote plan, where its instances begin to read the journal.

    Raises:
        UnknownTopicError, TopologyError, DeployError: as `check_topics`, `resolve_partitions` and `ensure_internal_topics`
        tell.
        ConfigError, SnapshotError: snapshots cannot be kept where they should.
    """
    application_id = application_id_of(config)
    counts = admin.topics()
    check_topics(topology, counts)
    _check_snapshots(config, new=generation == 1 and not remote)
    resolved = resolve_partitions(topology, application_id, counts, grouper=config["partition.grouper"], topic_configs=config.topic_configs)
    known = counts | create_internal_topics(admin, resolved, config)
    specs = _task_specs(topology, application_id, config, resolved)
    before = Previous() if previous is None else previous
    instances = min(config["num.stream.threads"], max(1, len(specs)))
    slots = assign_tasks(list(specs), instances, before.tasks, before.standbys)
    places = tuple(before.places.get(slot) for slot in range(instances))
    stateful = [task for task, spec in specs.items() if needs_copies(spec)]
    standbys = assign_standbys(
        slots, stateful, config["num.standby.replicas"] if remote else 0, places=places, previous=before.standbys
    )
    global_ = topology.global_stores()
    global_topics = (
        [] if global_ is None else [topic for node in global_.nodes if isinstance(node, SourceNode) for topic in node.topics]
    )
    return ApplicationPlan(
        application_id=application_id,
        generation=generation,
        config=config,
        settings=settings,
        assignment=tuple(tuple(specs[task] for task in slot) for slot in slots),
        state_directory=str(state_root),
        control_directory=str(control_directory(state_root, application_id)),
        partition_counts=known,
        global_subtopologies=() if global_ is None else (global_,),
        global_partitions=partitions_of(global_topics, known),
        failpoints=failpoints,
        standbys=tuple(tuple(specs[task] for task in slot) for slot in standbys),
        places=places,
        remote=remote,
        journal_start=journal_start,
    )


def _check_snapshots(config: StreamsConfig, *, new: bool) -> None:
    """A new application is told at once that snapshots will fail. One that has run before goes on without: its changelogs have it all."""
    if config["repl.snapshot.dir"] is not None:
        directory = snapshot_directory(config["repl.snapshot.dir"])
        if new:
            check_directory(directory)


def _task_specs(topology: Any, application_id: str, config: StreamsConfig, resolved: ResolvedTopology) -> dict[TaskId, TaskSpec]:
    internal = frozenset(topology.internal_topics)
    parts = {part.id: part for part in topology.subtopologies() if not part.global_}
    return {
        task: TaskSpec(
            application_id,
            parts[task.subtopology],
            task,
            {at: _source_of(parts[task.subtopology], at, application_id, internal) for at in partitions},
            config,
            internal,
        )
        for task, partitions in resolved.tasks.items()
    }


def _source_of(part: Subtopology, at: TopicPartition, application_id: str, internal: frozenset[str]) -> str:
    """The source node that reads a topic (its name on the broker)."""
    logical = at.topic.removeprefix(f"{application_id}-")
    for node in part.nodes:
        if isinstance(node, SourceNode) and (at.topic in node.topics or (logical in internal and logical in node.topics)):
            return node.name
    for node in part.nodes:
        if isinstance(node, SourceNode) and node.pattern is not None and re.fullmatch(node.pattern, at.topic):
            return node.name
    raise TopologyError(f"no source of sub-topology {part.id} reads {at.topic}", topic=at.topic)
