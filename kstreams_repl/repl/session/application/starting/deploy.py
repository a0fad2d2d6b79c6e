"""Deploy a topology as an application.

Numbered: 1. reject what runs already, and settings and drivers that do not fit · 2. build the topology and check it against the state
of an earlier run (`compatibility`), against the schemas of its topics (`contracts`), and against other owners of its id and outputs
(`live_owners`) · 3. create missing topics if asked · 4. find where it begins: at a time, or at a savepoint · 5. write its version into
the session file · 6. write state and offsets of the beginning, and schemas that begin a subject · 7. register and start the
application. A failure in 6 or 7 removes the version and registers the earlier object again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.checks.compatibility import checked_topology
from kstreams_repl.repl.session.application.checks.contracts import begin_versions
from kstreams_repl.repl.session.application.checks.copartitioning import SETTING as COPARTITION_CHECK
from kstreams_repl.repl.session.application.checks.copartitioning import CopartitionCheck
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.life.registry import ApplicationRegistry
from kstreams_repl.repl.session.application.savepoints.savepoint_start import SavepointStart
from kstreams_repl.repl.session.application.savepoints.savepoints import find_savepoint
from kstreams_repl.repl.session.application.starting import journal_lookup
from kstreams_repl.repl.session.application.starting.beginning import Beginning
from kstreams_repl.repl.session.application.starting.deploy_preview import check, late_warnings, preview_table
from kstreams_repl.repl.session.application.starting.driver_selection import (
    refuse_another_driver,
    refuse_unsaved,
    refuse_what_ends_with_us,
)
from kstreams_repl.repl.session.application.starting.live_owners import refuse_live_owner, refuse_shared_outputs
from kstreams_repl.repl.session.application.starting.start_offsets import is_time, starting_offsets
from kstreams_repl.repl.session.cleanup import cleanup_of
from kstreams_repl.repl.session.cluster_client import DEFAULT_PARTITIONS, ClusterClient
from kstreams_repl.repl.session.source.source_slice import program_of
from kstreams_repl.system.errors import CallError, DeployError, TopologyError, did_you_mean
from kstreams_repl.system.extras import require

Begins = Callable[[Topology, StreamsConfig], Beginning]
"""Returns the state and offsets with which an application begins."""


def deploy(
    client: ClusterClient,
    applications: ApplicationRegistry,
    topology: object,
    name: str,
    settings: Mapping[str, object],
    start: object,
    *,
    detached: bool = False,
    create_topics: bool | Mapping[str, int] = False,
    beginning: Begins | None = None,
    share_outputs: bool = False,
    take_over: bool = False,
    is_needed: Callable[[Topology, StreamsConfig], bool] | None = None,
) -> ApplicationCore:
    """Deploy, as `Session.deploy`.

    Registers the application before it starts, so an interrupt leaves no running application unregistered.

    Args:
        beginning: makes the state and offsets at which it begins, from the topology and settings; None: it continues from its own.
        is_needed: asked after the topics are created (of a bounded run); False: the application is registered at rest.
    """
    if client.spark.given is None:
        require("pyspark", "pandas")
    # 1. Refuse.
    client.ensure_open()
    earlier = applications.get(name)
    if earlier is not None and earlier.status in ("starting", "running"):
        raise DeployError(
            f"{name} is {earlier.status} already", hint=f"stop or pause it first, or edit it: session.applications[{name!r}].edit(builder)"
        )
    if detached:
        refuse_what_ends_with_us(client)
    config = _config(client, name, settings, start)
    if config["repl.trace.rate"] is not None or config["repl.otlp.endpoint"] is not None:
        require("opentelemetry")
    if config["repl.openlineage.url"] is not None:
        require("openlineage")
    refuse_another_driver(name, config, attached=earlier is not None and earlier.detached)
    # 2. Build and compare.
    built, config, schemas = checked_topology(client, topology, name, config, earlier, fresh=beginning is not None)
    if not take_over:
        refuse_live_owner(client, name, built, config, earlier)
    if beginning is not None and not share_outputs:
        refuse_shared_outputs(client, name, built)
    # 3. Topics.
    create_missing_topics(client, built, config, create_topics)
    needed = is_needed is None or is_needed(built, config)
    copartitions = CopartitionCheck(client.admin, built, wanted=config[COPARTITION_CHECK])
    # 4. The beginning.
    begins = None if beginning is None else beginning(built, config)
    offsets = starting_offsets(client.admin, name, built, config, start) if is_time(start) else {}
    # 5. The version.
    program = program_of(topology, built, client.variables)
    history = journal_lookup.history_of(client, name)
    history.continue_or_begin(config)
    if earlier is not None:
        earlier.stop()
    count = len(history.versions)
    version = history.keep(program, built, config)
    try:
        if detached:
            refuse_unsaved(name, history.saved(version.number))
        # 6. State and offsets.
        if begins is not None or offsets:
            check(client.admin, built, name, config)
        if begins is not None:
            begins.write()
            offsets = {partition: offset for partition, offset in offsets.items() if partition not in begins.inputs}
        if offsets:
            client.admin.commit_offsets(name, offsets)
        begin_versions(name, built, config, [schema for schema in schemas if schema.begins])
        # 7. Register and start.
        found = None if needed else "stopped"
        application = applications.create(
            name, built, config, history, version=version, definition=topology, detached=detached, found=found
        )
        applications[name] = application
        if needed:
            application.start()
    except Exception:
        if len(history.versions) > count:  # the new version never ran
            history.forget_last()
        applications.pop(name, None)
        if earlier is not None:
            applications[name] = earlier
        raise
    client.serdes.learn(built, name, config)
    if needed:
        _tell_instances(client, built, name, config)
    for warning in (*copartitions.wait(), *late_warnings(client.admin, built, config)):
        client.report(warning)
    return application


def at_savepoint(client: ClusterClient, applications: ApplicationRegistry, wanted: object, name: str) -> Begins:
    """Return what makes the beginning of an application at a savepoint, as `Session.deploy` names it."""

    def begin(topology: Topology, config: StreamsConfig) -> Beginning:
        source = find_savepoint(client.directory.path, wanted, name)
        return SavepointStart(client, source, name, topology, config, own=cleanup_of(client, applications, name))

    return begin


def preview(
    client: ClusterClient, applications: ApplicationRegistry, topology: object, name: str, settings: Mapping[str, object], start: object
) -> Table:
    """Return what `deploy` would create and run, as `Session.plan`."""
    config = client.application_config(name, settings)
    built, config, schemas = checked_topology(client, topology, name, config, applications.get(name))
    offsets = starting_offsets(client.admin, name, built, config, start) if is_time(start) else {}
    return preview_table(client.admin, built, name, config, offsets, schemas)


def _config(client: ClusterClient, name: str, settings: Mapping[str, object], start: object) -> StreamsConfig:
    """Return the settings, with `start` as the reset policy if it is one; report those that have no effect."""
    policy = {} if start is None or is_time(start) else {"main.consumer.auto.offset.reset": start}
    config = client.application_config(name, {**settings, **policy})
    for key, why in config.unused.items():
        client.report(f"{key} has no effect here: {why}")
    return config


def _tell_instances(client: ClusterClient, topology: Topology, name: str, config: StreamsConfig) -> None:
    """Report the number of instances if it follows from the machine and the partitions, with the setting that changes it."""
    from kstreams_repl.host.spark.planning.instance_count import default_instances
    from kstreams_repl.host.spark.slots.spark_slots import free_slots

    tasks = check(client.admin, topology, name, config).tasks
    if (chosen := default_instances(topology, config, tasks, free_slots(name, client.spark.master))) is not None:
        client.report(f"{name}: {chosen}")


def create_missing_topics(client: ClusterClient, topology: Topology, config: StreamsConfig, wanted: object) -> None:
    """Create the missing topics: with True those that the topology only writes, with a mapping those named.

    The mapping gives their partition counts. A topic that is read and not named is not created: its name is more likely mistyped.

    Raises:
        TopologyError: the topology neither reads nor writes a topic that was named.
    """
    if not wanted:
        return
    if not isinstance(wanted, bool | Mapping):
        names = wanted if isinstance(wanted, list | tuple | set) else [wanted]
        raise CallError(
            f"create_topics must be True or {{topic: partitions}}, got a {type(wanted).__name__}",
            hint=f"create_topics={json.dumps({str(name): DEFAULT_PARTITIONS for name in names})}",
        )
    from kstreams_repl.host.spark.planning.plan_builder import missing_topics, written_topics

    known = client.admin.topics()
    read, written = missing_topics(topology, config, known)
    if isinstance(wanted, Mapping):
        ours = {*topology.source_topics(), *written_topics(topology, config)} - set(topology.internal_topics)
        for topic in wanted:
            if topic not in ours:
                raise TopologyError(
                    f"create_topics names {topic!r}, which the topology neither reads nor writes",
                    hint=did_you_mean(topic, ours) or f"its topics are {', '.join(sorted(ours))}",
                    topic=topic,
                )
        created = {topic: count for topic, count in wanted.items() if topic in (*read, *written)}
    else:
        created = dict.fromkeys(written, DEFAULT_PARTITIONS)
    if not set(read) <= set(created):
        return  # the deploy is rejected later, with the list of all missing topics
    for topic, count in created.items():
        client.create_topic(topic, partitions=count)
    if created:
        client.report(f"created topics, with partitions: {', '.join(f'{topic} {count}' for topic, count in created.items())}")
