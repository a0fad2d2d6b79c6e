"""Attach to an existing application: the journal shows that it exists and its version, the session file holds its text.

The topology comes, in this order: 1. from the argument · 2. from the session file, if its text has the hash in the journal ·
3. from the journal, only with `trust=True`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes.by_topic import SETTING
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.state.state_directory import state_root
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.spark.fencing.generation_fencing import VersionText
from kstreams_repl.repl.session.application.checks.compatibility import earlier_run, refuse_misfit
from kstreams_repl.repl.session.application.checks.contracts import compare_schemas, refuse_schemas
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.detached.mailbox import Mailbox
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.application.edits.versions import VersionHistory, make_topology
from kstreams_repl.repl.session.application.life.registry import ApplicationRegistry
from kstreams_repl.repl.session.application.starting import journal_lookup
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.left_applications import failure_left
from kstreams_repl.repl.session.session_file import SavedVersion
from kstreams_repl.repl.session.source.source_slice import program_of
from kstreams_repl.system.errors import KStreamsError, SessionFileError


@dataclass(frozen=True, slots=True)
class FoundApplication:
    """An application as the journal and the session file have it.

    Attributes:
        status: paused or stopped.
        claimed: executors of a cluster have claimed its instances.
        version: to announce with the next start; None: the one in force stays.
    """

    topology: Topology
    config: StreamsConfig
    history: VersionHistory
    status: str
    claimed: bool
    version: VersionText | None = None


def attach(
    client: ClusterClient, applications: ApplicationRegistry, name: str, topology: object, config: Mapping[str, object], *, trust: bool
) -> ApplicationCore:
    """Attach to an application, as `Session.attach`."""
    mailbox = Mailbox(state_root(client.application_config(name, config)), name)
    if topology is None or mailbox.driven is not None:  # with a live driver process: the code that it runs
        found = find_application(client, name, config, trust=trust)
    else:
        found = _with_topology(client, name, topology, config)
    detached = Mailbox(state_root(found.config), name).record is not None
    application = applications.create(
        name,
        found.topology,
        found.config,
        found.history,
        version=found.version,
        definition=topology,
        found=found.status,
        claimed=found.claimed,
        detached=detached,
        start_error=None if detached else _earlier_failure(found.config, name),
    )
    applications[name] = application
    client.serdes.learn(found.topology, name, found.config)
    return application


def find_application(client: ClusterClient, name: str, config: Mapping[str, object], *, trust: bool = False) -> FoundApplication:
    """Return an application with the text of its version in force.

    Args:
        config: settings that differ from those it was deployed with.
        trust: take the text from the journal.

    Raises:
        KStreamsError: there is no application of that name on the cluster.
        SessionFileError: the text is missing, is not confirmed, or does not rebuild the topology.
    """
    state = journal_lookup.journal_of(client, name)
    number = state.desired.version if state.desired is not None else 1
    history = journal_lookup.history_of(client, name)
    saved = _journaled_text(state, name, number) if trust else None
    given = client.application_config(name, config)
    if saved is None:
        history.load(given)
        history.present(number)
        saved = journal_lookup.confirmed(client, state, history, name, number)
    else:
        history.continue_or_begin(given)
    _refuse_lacking(client, saved, name, config)
    checked = client.application_config(name, {**saved.settings, **config})
    topology = make_topology(client.files, saved, name, checked)
    version = history.keep(saved.topology_program, topology, checked) if config or trust else None
    return FoundApplication(topology, checked, history, _status(state), state.has_claims, version)


def _with_topology(client: ClusterClient, name: str, topology: object, config: Mapping[str, object]) -> FoundApplication:
    """Return an application with the topology of the notebook, checked against the state that is there."""
    state = journal_lookup.journal_of(client, name)
    checked = client.application_config(name, {**_earlier_settings(client, state, name, config), **config})
    built = topology_of(topology, checked)
    earlier = earlier_run(client, name, checked)
    schemas = compare_schemas(
        name, built, checked, before=earlier.topology, ran=earlier.config, topics=lambda: client.admin.topics(), sources=False
    )
    refuse_misfit(client, name, built, checked, earlier, schemas)
    refuse_schemas(schemas, name, "\n".join(map(str, schemas)))
    history = journal_lookup.history_of(client, name)
    history.continue_or_begin(checked)
    version = history.keep(program_of(topology, built, client.variables), built, checked)
    return FoundApplication(built, checked, history, _status(state), state.has_claims, version)


def _status(state: JournalState) -> str:
    return "paused" if state.desired is not None and state.desired.state == "paused" else "stopped"


def _earlier_failure(config: StreamsConfig, name: str) -> KStreamsError | None:
    """Return the error with which it failed under an earlier kernel, from this directory; it stays failed until it is started."""
    from kstreams_repl.host.spark.failures.failure_translation import error_from

    failure = failure_left(state_root(config), name)
    return error_from(failure) if failure else None


def _earlier_settings(client: ClusterClient, state: JournalState, name: str, config: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of the version in force, if the journal confirms them; else only its source serdes."""
    if state.desired is None:
        return {}
    history, number = journal_lookup.history_of(client, name), state.desired.version
    try:
        history.load(client.application_config(name, config))
        history.present(number)
        saved = journal_lookup.confirmed(client, state, history, name, number)
    except SessionFileError:  # the comparison reports it
        serdes = journal_lookup.serdes_in_journal(state)
        return {SETTING: serdes} if serdes else {}
    _refuse_lacking(client, saved, name, config)
    return saved.settings


def _refuse_lacking(client: ClusterClient, saved: SavedVersion, name: str, config: Mapping[str, object]) -> None:
    lacking = set(saved.unsaved) - set(config) - set(client.config)
    if lacking:
        raise SessionFileError(
            f"{', '.join(sorted(lacking))} of {name!r} had values that a session file cannot hold: functions or objects",
            hint=f"give them again: session.attach({name!r}, config={{{', '.join(f'{key!r}: …' for key in sorted(lacking))}}})",
            application=name,
        )


def _journaled_text(state: JournalState, name: str, number: int) -> SavedVersion:
    record = state.versions.get(number)
    if record is None or not record.source:
        raise SessionFileError(
            f"the journal of {name!r} has no text of version {number}",
            hint=f"give the topology of your notebook: session.attach({name!r}, builder)",
            application=name,
        )
    return SavedVersion(number, record.at_ms, record.source, record.description)
