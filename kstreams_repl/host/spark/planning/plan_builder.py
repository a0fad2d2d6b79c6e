"""Create the plan of a generation from a topology and a configuration: check and create topics, create and assign tasks. Does not use
Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task_specs import task_specs
from kstreams_repl.engine.topology.names import validate_application_id
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.partitions import ResolvedTopology, resolve_partitions
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.state.global_tables import partitions_of
from kstreams_repl.host.instance.state.snapshot_directory import check_directory, snapshot_directory
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.host.kafka.admin import Admin, NewTopicSpec
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.internal_topics import ensure_internal_topics
from kstreams_repl.host.query_tokens import tokens_in
from kstreams_repl.host.spark.fencing.generation_fencing import Previous
from kstreams_repl.host.spark.planning.instance_count import default_instances
from kstreams_repl.host.spark.planning.task_assignment import assign_standbys, assign_tasks, needs_copies
from kstreams_repl.system.errors import AuthorizationError, ConfigError, TopologyError, UnknownTopicError, did_you_mean


def application_id_of(config: StreamsConfig) -> str:
    """Return the checked application id.

    Raises:
        ConfigError: it is not set.
    """
    name = config["application.id"]
    if not name:
        raise ConfigError(
            "application.id is not set", hint="set application.id; topics and state are named after it", key="application.id"
        )
    return validate_application_id(name, "application.id")


def check_topics(admin: Admin, topology: Topology, config: StreamsConfig, counts: Mapping[str, int]) -> None:
    """Check that every topic with a fixed name exists, that of the dead letters too.

    Raises:
        UnknownTopicError: some do not: all of them in ``topics``, with a "did you mean".
        AuthorizationError: one of those is hidden from this user.
        TopologyError: the topology reads no topic.
    """
    if not topology.source_topics() and not any(
        isinstance(node, SourceNode) and node.pattern for node in topology.nodes.values()
    ):
        raise TopologyError("the topology reads no topic", hint="begin with builder.stream('topic') or builder.table('topic')")
    read, written = missing_topics(topology, config, counts)
    missing = (*read, *written)
    if not missing:
        return
    admin.describe_topics(missing)
    if len(missing) == 1:
        what = f"the topology {'reads' if read else 'writes'} topic {missing[0]!r}, which is not on the broker"
    else:
        parts = [f"{kind} {', '.join(map(repr, names))}" for kind, names in (("reads", read), ("writes", written)) if names]
        what = f"the topology {' and '.join(parts)}: {len(missing)} topics that are not on the broker"
    meant = next((hint for name in missing if (hint := did_you_mean(name, counts)) is not None), None)
    if read:
        calls = ", ".join(f"session.create_topic({name!r})" for name in missing)
        make = f"create {'it' if len(missing) == 1 else 'them'} first: {calls}"
    else:
        make = f"session.deploy(..., create_topics=True) creates {'it' if len(missing) == 1 else 'them'}"
    hint = make if meant is None else f"{meant} or {make}" if written else meant
    raise UnknownTopicError(what, hint=hint, topic=missing[0], topics=missing)


def missing_topics(topology: Topology, config: StreamsConfig, counts: Mapping[str, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the missing topics that are read, and those that are only written, without the application's own."""
    known = counts.keys() | set(topology.internal_topics)
    read = tuple(dict.fromkeys(name for name in topology.source_topics() if name not in known))
    return read, tuple(dict.fromkeys(name for name in written_topics(topology, config) if name not in known and name not in read))


def written_topics(topology: Topology, config: StreamsConfig) -> list[str]:
    """Return the topics of the sinks and of the dead letters: without that one the first bad record would stop the application."""
    dead_letters = config["errors.dead.letter.queue.topic.name"]
    return [*topology.sink_topics(), *([dead_letters] if dead_letters else ())]


def create_internal_topics(
    admin: Admin, resolved: ResolvedTopology, config: StreamsConfig, existing: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Create missing internal topics, check existing ones (see `ensure_internal_topics`), and return the partition counts of all."""
    replication = config["replication.factor"]
    topics = (*resolved.repartition_topics, *resolved.changelog_topics)
    specs = [
        NewTopicSpec(topic.name, topic.partitions or 1, dict(topic.config), None if replication == -1 else replication)
        for topic in topics
    ]
    ensure_internal_topics(admin, specs, existing)
    return {spec.name: spec.partitions for spec in specs}


def make_plan(
    topology: Topology,
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
    version: int = 1,
    free_slots: int | None = None,
) -> ApplicationPlan:
    """Run the steps of a deploy that do not need Spark: validate, create internal topics, create and assign tasks.

    Args:
        previous: the previous location of tasks and standby copies; they stay there as long as the assignment is balanced.
        remote: instances run in executors of a cluster; only there standby copies are useful.
        journal_start: of a remote plan, the offset at which its instances start to read the journal.
        version: of the topology.
        free_slots: of a local Spark, for `default_instances`; None: its rule is not used.

    Raises:
        UnknownTopicError, TopologyError, DeployError: see `check_topics`, `resolve_partitions` and `ensure_internal_topics`.
        AuthorizationError: the user lacks rights on topics or on the group.
        ConfigError, SnapshotError: the snapshot directory cannot be used.
    """
    application_id = application_id_of(config)
    existing = admin.topics(internal=True)
    counts = {name: count for name, count in existing.items() if not name.startswith("__")}  # without Kafka's own
    check_topics(admin, topology, config, counts)
    _check_snapshots(config, new=generation == 1 and not remote)
    resolved = resolve_partitions(topology, application_id, counts, grouper=config["partition.grouper"], topic_configs=config.topic_configs)
    known = counts | create_internal_topics(admin, resolved, config, existing)
    _check_rights(admin, application_id, topology, resolved)
    specs = task_specs(topology, application_id, config, resolved)
    by_default = default_instances(topology, config, specs, free_slots)
    if by_default is not None:
        config = config.with_(num_stream_threads=by_default.count)
    before = Previous() if previous is None else previous
    instances = min(len(config.thread_groups), max(1, len(specs)))
    slots = assign_tasks(list(specs), instances, before.tasks, before.standbys)
    places = tuple(before.places.get(slot) for slot in range(instances))
    stateful = [task for task, spec in specs.items() if needs_copies(spec)]
    standbys = assign_standbys(
        slots, stateful, config["num.standby.replicas"] if remote else 0, places=places, previous=before.standbys
    )
    global_ = topology.global_stores()
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
        global_partitions=partitions_of(_global_topics(topology), known),
        failpoints=failpoints,
        standbys=tuple(tuple(specs[task] for task in slot) for slot in standbys),
        places=places,
        remote=remote,
        journal_start=journal_start,
        version=version,
    )


def _global_topics(topology: Topology) -> list[str]:
    global_ = topology.global_stores()
    return [] if global_ is None else [topic for node in global_.nodes if isinstance(node, SourceNode) for topic in node.topics]


def _check_rights(admin: Admin, application_id: str, topology: Topology, resolved: ResolvedTopology) -> None:
    """Raise if the user may not read or write a topic, or commit: instances would otherwise fail one by one, each at its first record."""
    internal = [topic.name for topic in (*resolved.repartition_topics, *resolved.changelog_topics)]
    reads = {at.topic for partitions in resolved.tasks.values() for at in partitions} | set(internal) | set(_global_topics(topology))
    writes = (set(topology.sink_topics()) - set(topology.internal_topics)) | set(internal)
    lacking = admin.missing_rights(reads=sorted(reads), writes=sorted(writes), group=application_id)
    if lacking:
        raise AuthorizationError(
            f"the application {application_id} lacks {'a right' if len(lacking) == 1 else f'{len(lacking)} rights'}: {', '.join(lacking)}",
            hint="docs/tasks/cluster.md lists the rights (ACLs) that an application needs; grant them and deploy again",
            bootstrap_servers=admin.settings.bootstrap_servers,
        )


def _check_snapshots(config: StreamsConfig, *, new: bool) -> None:
    """Raise for a new application if snapshots would fail. An existing one runs without: its changelogs contain all data."""
    if config["repl.snapshot.dir"] is not None:
        directory = snapshot_directory(config["repl.snapshot.dir"])
        if new:
            check_directory(directory)


def with_queries(plan: ApplicationPlan, topology: Topology) -> ApplicationPlan:
    """Return the plan with what query servers need: the topology, and the tokens, which are made in the control directory at first use.

    Raises:
        ConfigError: the tokens can be read by others.
    """
    return replace(plan, topology=topology, query_tokens=tokens_in(Path(plan.control_directory)))
