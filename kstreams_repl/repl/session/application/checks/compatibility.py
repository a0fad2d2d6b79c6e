"""Check that a topology fits the state that an earlier run left under the same name.

An application that is deployed again continues from its committed offsets and stored rows. So the new topology is compared with
the one that wrote them, as in an edit: the session's own, else the version in force according to the journal, whose text counts
only if the journal confirms it (`attach`). A topology that would read rows wrongly is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes import resolve
from kstreams_repl.engine.serdes.by_topic import SETTING
from kstreams_repl.engine.topology.differences.diff import diff
from kstreams_repl.engine.topology.differences.node_diff import serde_name
from kstreams_repl.engine.topology.differences.schema_diff import SchemaChange, SchemaDiff
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.repl.session.application.checks.contracts import compare_schemas, refuse_schemas
from kstreams_repl.repl.session.application.checks.unknown_serdes import unknown_serdes
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.application.edits.versions import Version, make_topology
from kstreams_repl.repl.session.application.starting import journal_lookup
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.system.errors import SessionFileError, TopologyError


class EarlierRun(NamedTuple):
    """An earlier run of an application, as far as it is known.

    Attributes:
        topology: the one in force; None: there was none, or its text is not trusted.
        versions: its history.
        config: its settings as far as they were stored.
        serdes: its ``repl.source.serdes``; None: nothing ran before. It is used even from a text that is not trusted: it only
            names serdes, nothing is executed.
    """

    topology: Topology | None = None
    versions: list[Version] = []  # noqa: RUF012
    config: StreamsConfig | None = None
    serdes: str | None = None


def checked_topology(
    client: ClusterClient,
    thing: object,
    name: str,
    config: StreamsConfig,
    known: ApplicationCore | None = None,
    *,
    fresh: bool = False,
) -> tuple[Topology, StreamsConfig, tuple[SchemaDiff, ...]]:
    """Return the topology and settings of a deploy, checked against what an earlier run left under the same name, and what the Schema
    Registry says of its schemas.

    Args:
        known: the session's object for the application; None: the journal is asked.
        fresh: the application continues from no earlier state (a savepoint brings its own).

    Raises:
        TopologyError: as `refuse_misfit`.
        IncompatibleSchemaError, SchemaRegistryError: as `contracts.compare_schemas` and `contracts.refuse_schemas`.
    """
    if known is None:
        earlier = earlier_run(client, name, config)
    else:
        earlier = EarlierRun(known.topology, known.versions, known.config, known.config[SETTING] or "")
    built, config = _built_on(client, thing, config, earlier)
    ran = None if fresh else earlier.topology
    topics = None if fresh else lambda: client.admin.topics()  # noqa: E731
    schemas = compare_schemas(name, built, config, before=ran, ran=earlier.config, topics=topics)
    if not fresh:
        refuse_misfit(client, name, built, config, earlier, schemas, attached=known is not None)
    refuse_schemas(schemas, name, "\n".join(map(str, schemas)))
    for warning in warnings_of(name, built, config):
        client.report(warning)
    for line in dict.fromkeys(schema.reason for schema in schemas if schema.change is SchemaChange.NO_ANSWER):
        client.report(f"schemas were not compared: {line}")
    return built, config, schemas


def warnings_of(name: str, topology: Topology, config: StreamsConfig) -> list[str]:
    """Return a warning for each repartition topic with unknown serdes, and for a dead-letter topic that the application itself reads: a
    record that fails there again is written to it again, without end.
    """
    topic = config["errors.dead.letter.queue.topic.name"]
    sources = (node for node in topology.nodes.values() if isinstance(node, SourceNode))
    again = topic and any(topic in node.topics or (node.pattern is not None and node.pattern.fullmatch(topic)) for node in sources)
    own = (
        f"warning: {name} reads its own dead-letter topic {topic}: a record that fails again is written there again and again; "
        "read it in another application"
    )
    return [*([own] if again else ()), *unknown_serdes(topology, config)]


def refuse_misfit(
    client: ClusterClient,
    name: str,
    topology: Topology,
    config: StreamsConfig,
    earlier: EarlierRun,
    schemas: Sequence[SchemaDiff],
    *,
    attached: bool = False,
) -> None:
    """Raise if a topology cannot continue with the state of an earlier one under the same name.

    Args:
        schemas: what was found of its schemas.
        attached: the session has an object for the application.

    Raises:
        TopologyError: rows of a store would be read wrongly; the remedies are in the hint, the comparison is in ``plan``.
    """
    before, versions, ran, _ = earlier
    if before is None:
        return
    topics = client.admin.topics()
    compared = diff(before, topology, left=lambda store: last_writer(versions[:-1], name, store, topics), schemas=schemas)
    if compared.refused:
        store = compared.refused[0]
        found = f"session.applications[{name!r}]" if attached else f"session.attach({name!r})"
        reset = f" ({found}.edit(builder, reset_state=[{store.name!r}]) resets it)" if "reset_state" in store.hint else ""
        raise TopologyError(
            f"{name} was deployed before, and its store {store.name!r} cannot be kept: {store.reason}",
            hint=f"{store.hint}{reset}; or deploy under another name; session.cleanup({name!r}) deletes its state",
            store=store.name,
            application=name,
            plan=str(compared),
        )
    if ran is not None:
        _refuse_other_defaults(name, before, ran, topology, config)


def _refuse_other_defaults(name: str, before: Topology, ran: StreamsConfig, topology: Topology, config: StreamsConfig) -> None:
    """Raise if a store without serdes of its own would get other defaults: those are settings and not part of the topology."""
    for store in before.stores.keys() & topology.stores.keys():
        old, new = before.stores[store], topology.stores[store]
        if old.source_topic is not None:  # its rows are those of the topic
            continue
        for what, was, now in (("key", old.key_serde, new.key_serde), ("value", old.value_serde, new.value_serde)):
            setting = f"default.{what}.serde"
            is_now, has_been = (serde_name(resolve(own, defaults[setting])) for own, defaults in ((now, config), (was, ran)))
            if has_been != is_now:
                raise TopologyError(
                    f"{name} was deployed before, and its store {store!r} cannot be kept: "
                    f"its {what} serde was {has_been}, would be {is_now}",
                    hint=f"set {setting}={has_been!r}, or give the store a serde of its own; or deploy under another name; "
                    f"session.cleanup({name!r}) deletes its state",
                    store=store,
                    application=name,
                )


def earlier_run(client: ClusterClient, name: str, config: StreamsConfig) -> EarlierRun:
    """Return the last run of an application that this session has no object for, from the journal and the session file."""
    if journal_topic_name(name) not in client.admin.topics():
        return EarlierRun()
    state = journal_lookup.journal_of(client, name)
    if state.desired is None:
        return EarlierRun()
    history = journal_lookup.history_of(client, name)
    try:
        history.load(config)
        history.present(state.desired.version)
        saved = journal_lookup.confirmed(client, state, history, name, state.desired.version)
        settings = None if saved.unsaved else client.application_config(name, saved.settings)
        return EarlierRun(make_topology(client.files, saved, name, config), history.versions, settings, saved.settings.get(SETTING, ""))
    except SessionFileError as error:
        client.report(f"{name} was deployed before, and is not compared with its earlier version: {error.message}")
        return EarlierRun(serdes=journal_lookup.serdes_in_journal(state))


def _built_on(client: ClusterClient, thing: object, config: StreamsConfig, earlier: EarlierRun) -> tuple[Topology, StreamsConfig]:
    """Return the topology, and the settings with its sources' serdes: those of the last run, and known ones of new topics."""
    if earlier.serdes and SETTING not in config.given:
        config = config.with_(**{SETTING: earlier.serdes})
    if earlier.topology is None and earlier.serdes is not None:  # the topics that it read are not known
        return topology_of(thing, config), config
    settled = () if earlier.topology is None else earlier.topology.source_topics()
    return built_with_serdes(client, thing, config, settled=settled, report=True)


def last_writer(versions: Sequence[Version], name: str, store: str, topics: Mapping[str, int]) -> TopologyGraph | None:
    """Return the last of the versions that wrote rows under a store's name, if its changelog still exists."""
    if changelog_topic(name, store) not in topics:  # checked first: the text of an earlier version may be read-only
        return None
    return next((version.topology for version in reversed(versions) if store in version.topology.stores), None)
