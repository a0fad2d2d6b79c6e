"""What `deploy` sees to before an application starts: that it fits what ran under its name before, and where it begins to read.

An application that is deployed again goes on from the offsets and rows that are there. So the new topology is compared with the one that
left them, as an edit is: the session's own, else the version that the journal says is in force, whose text counts only if the journal
confirms it (`attaching`). What would read rows wrongly is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kstreams_repl.errors import DeployError, KStreamsError, SessionFileError, TopologyError
from kstreams_repl.kafka.internal_topics import journal_topic_name
from kstreams_repl.serdes import resolve
from kstreams_repl.session import attaching
from kstreams_repl.session.driving import (
    refuse_another_driver,
    refuse_unsaved,
    refuse_what_cannot_be_told,
    refuse_what_ends_with_us,
)
from kstreams_repl.session.producing import milliseconds
from kstreams_repl.session.program import program_of
from kstreams_repl.session.topologies import topology_of
from kstreams_repl.session.versions import Version, VersionHistory, make_topology
from kstreams_repl.topology.diff import diff, serde_name
from kstreams_repl.topology.graph import TopologyGraph
from kstreams_repl.topology.names import changelog_topic
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.partitions import resolve_partitions
from kstreams_repl.types import TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.config import StreamsConfig
    from kstreams_repl.session.application import Application
    from kstreams_repl.session.session import Session
    from kstreams_repl.topology.topology import Topology

POLICIES = ("earliest", "latest", "none")


def deploy(
    session: Session, topology: Any, name: str, settings: Mapping[str, Any], start: Any, *, detached: bool = False
) -> Application:
    """As `Session.deploy`. The session knows the application before anything starts: an interrupt leaves nothing that runs unknown."""
    known = session._applications.get(name)
    if known is not None and known.status in ("starting", "running"):
        raise DeployError(
            f"{name} is {known.status} already", hint=f"stop or pause it first, or edit it: session.applications[{name!r}]"
        )
    if detached:
        refuse_what_ends_with_us(session)
    at_time = is_time(start)
    config = session._config(name, settings if start is None or at_time else {**settings, "main.consumer.auto.offset.reset": start})
    refuse_another_driver(name, config, known)
    built = topology_of(topology, config)
    refuse_misfit(session, name, built, config, known)
    begins = begin_at(session, name, built, config, start) if at_time else {}
    program = program_of(topology, built, session.variables)
    if detached:
        refuse_what_cannot_be_told(name, program)
    history = VersionHistory(session.files, name)
    history.continue_or_begin(config)
    application = session._application(name, built, config, history, known, detached=detached)
    kept = len(history.versions)
    version = application._deployment.version = history.keep(program, built, config)
    application.definition = topology
    try:
        if detached:
            refuse_unsaved(name, history.saved(version.number))
        if begins:
            application._check()
            session.admin.commit_offsets(name, begins)
        session._applications[name] = application
        application.start()
    except Exception:
        if len(history.versions) > kept:  # it never ran
            history.forget_last()
        session._applications.pop(name, None)
        if known is not None:
            session._applications[name] = known
        raise
    session._learn(application)
    return application


def refuse_misfit(session: Session, name: str, topology: Topology, config: StreamsConfig, known: Application | None) -> None:
    """See that a topology can go on with what an earlier one left under the same name.

    Raises:
        TopologyError: rows of a store would be read wrongly; the ways out are in the hint, the comparison is in ``plan``.
    """
    before, versions, ran = (
        (known.topology, known.versions, known.config) if known is not None else _left_behind(session, name, config)
    )
    if before is None:
        return
    topics = session.admin.topics()
    compared = diff(before, topology, left=lambda store: left_rows(versions[:-1], name, store, topics))
    if compared.refused:
        store = compared.refused[0]
        found = f"session.applications[{name!r}]" if known is not None else f"session.attach({name!r})"
        reset = f" ({found}.edit(builder, reset_state=[{store.name!r}]) resets it)" if "reset_state" in store.hint else ""
        raise TopologyError(
            f"{name} was deployed before, and its store {store.name!r} cannot be kept: {store.reason}",
            hint=f"{store.hint}{reset}; or deploy under another name; session.cleanup({name!r}, confirm=True) begins anew",
            store=store.name,
            application=name,
            plan=str(compared),
        )
    if ran is not None:
        _refuse_other_defaults(name, before, ran, topology, config)


def _refuse_other_defaults(name: str, before: Topology, ran: StreamsConfig, topology: Topology, config: StreamsConfig) -> None:
    """A store without a serde of its own has the default one, which is a setting and no part of a topology."""
    for store in before.stores.keys() & topology.stores.keys():
        old, new = before.stores[store], topology.stores[store]
        if old.source_topic is not None:  # its rows are the topic's own
            continue
        for what, was, now in (("key", old.key_serde, new.key_serde), ("value", old.value_serde, new.value_serde)):
            setting = f"default.{what}.serde"
            is_now, has_been = (serde_name(resolve(own, defaults[setting])) for own, defaults in ((now, config), (was, ran)))
            if has_been != is_now:
                raise TopologyError(
                    f"{name} was deployed before, and its store {store!r} cannot be kept: "
                    f"its {what} serde was {has_been}, would be {is_now}",
                    hint=f"set {setting} to what it was, or give the store a serde of its own; or deploy under another name; "
                    f"session.cleanup({name!r}, confirm=True) begins anew",
                    store=store,
                    application=name,
                )


def left_rows(versions: Sequence[Version], name: str, store: str, topics: Mapping[str, int]) -> TopologyGraph | None:
    """The last of some versions that wrote rows under a store's name, if its changelog is still there."""
    if changelog_topic(name, store) not in topics:  # looked at first: the text of an earlier version may be for reading only
        return None
    return next((version.topology for version in reversed(versions) if store in version.topology.stores), None)


def _left_behind(session: Session, name: str, config: StreamsConfig) -> tuple[Topology | None, list[Version], StreamsConfig | None]:
    """The topology in force of an application that this session has not seen, with its history and its settings as far as they were
    written down; (None, [], None) where there is none, or none that may be believed."""
    nothing: tuple[None, list[Version], None] = None, [], None
    if journal_topic_name(name) not in session.admin.topics():
        return nothing
    state = attaching.journal_of(session, name)
    if state.desired is None:
        return nothing
    history = VersionHistory(session.files, name)
    try:
        history.load(config)
        history.present(state.desired.version)
        saved = attaching.confirmed(session, state, history, name, state.desired.version)
        settings = None if saved.unsaved else session._config(name, saved.settings)
        return make_topology(saved, name, config), history.versions, settings
    except SessionFileError as error:
        session.report(f"{name} was deployed before; not compared with what it left: {error.message}")
        return nothing


def begin_at(session: Session, name: str, topology: Topology, config: StreamsConfig, start: Any) -> dict[TopicPartition, int]:
    """Where the partitions without a committed offset begin when they begin at a time: the first record of that time or later, else the
    end. Internal topics and sources with an offset reset of their own are left out, and so are the topics of global tables.

    Raises:
        UnknownTopicError, TopologyError: the topology does not fit the cluster.
        KStreamsError: it is no time.
    """
    at_ms = milliseconds(start)
    counts = session.admin.topics()
    resolved = resolve_partitions(topology, name, counts, grouper=config["partition.grouper"])
    nodes = [node for node in topology.nodes.values() if isinstance(node, SourceNode) and node.offset_reset]
    internal = {f"{name}-{topic}" for topic in topology.internal_topics}

    def decided(topic: str) -> bool:
        return topic in internal or any(
            topic in node.topics or (node.pattern is not None and node.pattern.fullmatch(topic)) for node in nodes
        )

    inputs = [at for partitions in resolved.tasks.values() for at in partitions if not decided(at.topic)]
    committed = session.admin.committed_offsets(name, inputs)
    fresh = [at for at in inputs if at not in committed]
    # the ends first: what is written from here on is of that time or later
    ends = session.admin.end_offsets(fresh, isolation="read_uncommitted")
    found = session.admin.offsets_for_time(dict.fromkeys(fresh, at_ms))
    return {at: ends[at] if offset is None else offset for at, offset in found.items()}


def is_time(start: Any) -> bool:
    """Whether partitions begin at a time, not at an end of their topic.

    Raises:
        KStreamsError: it is neither.
    """
    if start is None or start in POLICIES:
        return False
    try:
        milliseconds(start)
    except (KStreamsError, TypeError, ValueError) as error:
        raise KStreamsError(f"start={start!r} is no place to begin", hint="earliest, latest, or a time: '2013-03-01'") from error
    return True
