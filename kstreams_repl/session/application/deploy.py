"""Checks of `deploy` before an application starts: that it fits what ran under its name before, and where it begins to read.

An application that is deployed again continues from its committed offsets and stored rows. So the new topology is compared with
the one that wrote them, as in an edit: the session's own, else the version in force according to the journal, whose text counts
only if the journal confirms it (`attach`). A topology that would read rows wrongly is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import DeployError, KStreamsError, SessionFileError, TopologyError, did_you_mean
from kstreams_repl.extras import require
from kstreams_repl.kafka.internal_topics import journal_topic_name
from kstreams_repl.serdes import resolve
from kstreams_repl.serdes.by_topic import SETTING
from kstreams_repl.session.application import journal_lookup
from kstreams_repl.session.application.copartitioning import SETTING as COPARTITION_CHECK
from kstreams_repl.session.application.copartitioning import CopartitionLook
from kstreams_repl.session.application.driver_selection import (
    refuse_another_driver,
    refuse_unsaved,
    refuse_what_cannot_be_told,
    refuse_what_ends_with_us,
)
from kstreams_repl.session.application.savepoints import Start
from kstreams_repl.session.application.topology_resolution import topology_of
from kstreams_repl.session.application.versions import Version, VersionHistory, make_topology
from kstreams_repl.session.source.source_slice import Program, program_of
from kstreams_repl.session.topics.produce import milliseconds
from kstreams_repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.topology.diff import diff, serde_name, whole_code
from kstreams_repl.topology.graph import TopologyGraph
from kstreams_repl.topology.names import changelog_topic
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.offset_reset import duration_ms
from kstreams_repl.topology.partitions import resolve_partitions
from kstreams_repl.topology.topology import Topology
from kstreams_repl.types import TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.session.application.application import Application
    from kstreams_repl.session.session import Session

DEFAULT_PARTITIONS = 4
POLICIES = ("earliest", "latest", "none")


def deploy(
    session: Session,
    topology: Any,
    name: str,
    settings: Mapping[str, Any],
    start: Any,
    *,
    detached: bool = False,
    create_topics: bool | Mapping[str, int] = False,
    from_savepoint: Any = None,
) -> Application:
    """Deploy, as `Session.deploy`.

    Registers the application before it starts, so an interrupt leaves no running application unregistered.
    """
    if session._spark is None:
        require("pyspark", "pandas")
    known = session._applications.get(name)
    if known is not None and known.status in ("starting", "running"):
        raise DeployError(
            f"{name} is {known.status} already", hint=f"stop or pause it first, or edit it: session.applications[{name!r}]"
        )
    if detached:
        refuse_what_ends_with_us(session)
    at_time = is_time(start)
    config = session._config(name, settings if start is None or at_time else {**settings, "main.consumer.auto.offset.reset": start})
    for key, why in config.unused.items():
        session.report(f"{key} changes nothing here: {why}")
    refuse_another_driver(name, config, known)
    built, config = checked_topology(session, topology, name, config, known, fresh=from_savepoint is not None)
    make_topics(session, built, create_topics)
    look = CopartitionLook(session.admin, built, wanted=config[COPARTITION_CHECK])
    saved = None if from_savepoint is None else Start(session, from_savepoint, name, built, config)
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
        if saved is not None:
            application._check()
            saved.write()
            begins = {at: offset for at, offset in begins.items() if at not in saved.inputs}
        if begins:
            application._check()
            session.admin.commit_offsets(name, begins)
        session._applications[name] = application
        application.start()
    except Exception:
        if len(history.versions) > kept:  # the new version never ran
            history.forget_last()
        session._applications.pop(name, None)
        if known is not None:
            session._applications[name] = known
        raise
    session._learn(application)
    for warning in look.wait():
        session.report(warning)
    return application


def make_topics(session: Session, topology: Topology, wanted: Any) -> None:
    """Create the missing topics: with True those that the topology only writes, with a mapping those named.

    The mapping gives their partition counts. A topic that is read and not named is not created: its name is more likely mistyped.

    Raises:
        TopologyError: the topology neither reads nor writes a topic that was named.
    """
    if not wanted:
        return
    if not isinstance(wanted, bool | Mapping):
        hint = f'True, or {{"name": partitions}}: {{"{wanted}": {DEFAULT_PARTITIONS}}}'
        raise KStreamsError(f"create_topics cannot be a {type(wanted).__name__}", hint=hint)
    from kstreams_repl.spark.planning import missing_topics

    there = session.admin.topics()
    read, written = missing_topics(topology, there)
    if isinstance(wanted, Mapping):
        ours = {*topology.source_topics(), *topology.sink_topics()} - set(topology.internal_topics)
        for topic in wanted:
            if topic not in ours:
                raise TopologyError(
                    f"create_topics names {topic!r}, which the topology neither reads nor writes",
                    hint=did_you_mean(topic, ours) or f"it has {', '.join(sorted(ours))}",
                    topic=topic,
                )
        made = {topic: count for topic, count in wanted.items() if topic in (*read, *written)}
    else:
        made = dict.fromkeys(written, DEFAULT_PARTITIONS)
    if not set(read) <= set(made):
        return  # the deploy is rejected later, with the list of all missing topics
    for topic, count in made.items():
        session.create_topic(topic, partitions=count)
    if made:
        session.report(f"topics made, with partitions: {', '.join(f'{topic} {count}' for topic, count in made.items())}")


def checked_topology(
    session: Session, thing: Any, name: str, config: StreamsConfig, known: Application | None = None, *, fresh: bool = False
) -> tuple[Topology, StreamsConfig]:
    """Return the topology and settings of a deploy, checked against what an earlier run left under the same name.

    Args:
        fresh: the application continues from no earlier state (a savepoint brings its own).

    Raises:
        TopologyError: as `refuse_misfit`.
    """
    if known is None:
        left = _left_behind(session, name, config)
    else:
        left = Left(known.topology, known.versions, known.config, known.config[SETTING] or "")
    built, config = _built_on(session, thing, config, left)
    if not fresh:
        refuse_misfit(session, name, built, config, left)
    return built, config


def refuse_misfit(session: Session, name: str, topology: Topology, config: StreamsConfig, left: Left | None = None) -> None:
    """Raise if a topology cannot continue with the state of an earlier one under the same name.

    Raises:
        TopologyError: rows of a store would be read wrongly; the remedies are in the hint, the comparison is in ``plan``.
    """
    before, versions, ran, _ = _left_behind(session, name, config) if left is None else left
    if before is None:
        return
    topics = session.admin.topics()
    compared = diff(before, topology, left=lambda store: left_rows(versions[:-1], name, store, topics))
    if compared.refused:
        store = compared.refused[0]
        found = f"session.applications[{name!r}]" if name in session._applications else f"session.attach({name!r})"
        reset = f" ({found}.edit(builder, reset_state=[{store.name!r}]) resets it)" if "reset_state" in store.hint else ""
        raise TopologyError(
            f"{name} was deployed before, and its store {store.name!r} cannot be kept: {store.reason}",
            hint=f"{store.hint}{reset}; or deploy under another name; session.cleanup({name!r}, dry_run=False) deletes its state",
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
                    hint=f"set {setting} to what it was, or give the store a serde of its own; or deploy under another name; "
                    f"session.cleanup({name!r}, dry_run=False) deletes its state",
                    store=store,
                    application=name,
                )


def left_rows(versions: Sequence[Version], name: str, store: str, topics: Mapping[str, int]) -> TopologyGraph | None:
    """Return the last of the versions that wrote rows under a store's name, if its changelog still exists."""
    if changelog_topic(name, store) not in topics:  # checked first: the text of an earlier version may be read-only
        return None
    return next((version.topology for version in reversed(versions) if store in version.topology.stores), None)


class Left(NamedTuple):
    """What an earlier run of an application left.

    Attributes:
        topology: the one in force then; None: there was none, or its text is not trusted.
        versions: its history.
        config: its settings as far as they were stored.
        serdes: its ``repl.source.serdes``; None: nothing ran before. It is used even from a text that is not trusted: it only
            names serdes, nothing is executed.
    """

    topology: Topology | None = None
    versions: list[Version] = []  # noqa: RUF012
    config: StreamsConfig | None = None
    serdes: str | None = None


def _left_behind(session: Session, name: str, config: StreamsConfig) -> Left:
    """Return what remains of an application that this session does not know."""
    if journal_topic_name(name) not in session.admin.topics():
        return Left()
    state = journal_lookup.journal_of(session, name)
    if state.desired is None:
        return Left()
    history = VersionHistory(session.files, name)
    try:
        history.load(config)
        history.present(state.desired.version)
        saved = journal_lookup.confirmed(session, state, history, name, state.desired.version)
        settings = None if saved.unsaved else session._config(name, saved.settings)
        return Left(make_topology(saved, name, config), history.versions, settings, saved.settings.get(SETTING, ""))
    except SessionFileError as error:
        session.report(f"{name} was deployed before; not compared with what it left: {error.message}")
        return Left(serdes=journal_lookup.serdes_told(state))


def _built_on(session: Session, thing: Any, config: StreamsConfig, left: Left) -> tuple[Topology, StreamsConfig]:
    """Return the topology, and the settings with its sources' serdes: those of the last run, and known ones of new topics."""
    if left.serdes and SETTING not in config.given:
        config = config.with_(**{SETTING: left.serdes})
    if left.topology is None and left.serdes is not None:  # the topics that it read are not known
        return topology_of(thing, config), config
    settled = () if left.topology is None else left.topology.source_topics()
    return built_with_serdes(session, thing, config, settled=settled, tell=True)


def begin_at(session: Session, name: str, topology: Topology, config: StreamsConfig, start: Any) -> dict[TopicPartition, int]:
    """Return the starting offsets, for a start at a time, of the partitions without a committed offset.

    Each is the offset of the first record at that time or later, else the end. Internal topics, sources with an offset reset of
    their own and topics of global tables are left out.

    Raises:
        UnknownTopicError, TopologyError: the topology does not fit the cluster.
        KStreamsError: `start` cannot be parsed as a time.
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
    # the ends first: records written from now on have that time or a later one
    ends = session.admin.end_offsets(fresh, isolation="read_uncommitted")
    found = session.admin.offsets_for_time(dict.fromkeys(fresh, at_ms))
    return {at: ends[at] if offset is None else offset for at, offset in found.items()}


def is_time(start: Any) -> bool:
    """Return whether `start` is a time, not an end of the topic.

    Raises:
        KStreamsError: it is neither.
    """
    if start is None or start in POLICIES or (isinstance(start, str) and duration_ms(start) is not None):
        return False
    try:
        milliseconds(start)
    except (KStreamsError, TypeError, ValueError) as error:
        raise KStreamsError(f"start={start!r} is no place to begin", hint="earliest, latest, or a time: '2013-03-01'") from error
    return True


def take_what_changed(app: Application) -> None:
    """Record a new version if a start, other than a resume, sends changed functions with the notebook's present values.

    An attach or a rollback would otherwise restore the earlier ones. A detached process has only the text of the functions, so it
    gets the changed ones as a new version or not at all.
    """
    apart = app._apart
    if app.status == "paused" or (apart is not None and apart.mailbox.driven is not None):
        return
    code = whole_code(app.topology)
    if code == app.ran:
        return
    program = _as_defined(app, code)
    if program is not None:
        app._deployment.version = app._history.keep(program, app.topology, app.config)
    if program is not None or apart is None:
        app.ran = code


def _as_defined(app: Application, code: Any) -> Program | None:
    """Return the program of its definition, if that is the code about to run, and complete; else None."""
    if app.definition is None:
        return None
    try:
        built = topology_of(app.definition, app.config)
    except KStreamsError:
        return None
    if str(built.describe()) != str(app.topology.describe()) or whole_code(built) != code:
        return None
    program = program_of(app.definition, app.topology, app.session.variables)
    return None if program.missing else program
