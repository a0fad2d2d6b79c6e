"""Finding an application again: the journal says that it is there and which version it is at, the session file has the text of it.

What is run comes, in this order: 1. from the topology given · 2. from the session file, if its text has the hash that the journal tells ·
3. from the journal itself, only with `trust=True`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import psutil

from kstreams_repl.errors import BrokerUnavailableError, KStreamsError, SessionFileError, did_you_mean
from kstreams_repl.instance.control import LEASE, read_whole
from kstreams_repl.instance.state_directory import control_directory, state_root
from kstreams_repl.kafka.internal_topics import journal_topic_name
from kstreams_repl.kafka.journal import JournalControl, JournalReader
from kstreams_repl.kafka.journal_state import JournalState
from kstreams_repl.session.detached.mailbox import Mailbox
from kstreams_repl.session.internal_names import JOURNAL, journals
from kstreams_repl.session.program import program_of
from kstreams_repl.session.session_file import SavedVersion, confirm
from kstreams_repl.session.topologies import topology_of
from kstreams_repl.session.versions import VersionHistory, make_topology

if TYPE_CHECKING:
    from kstreams_repl.session.application import Application
    from kstreams_repl.session.session import Session

_OPEN_SECONDS = 25.0
"""A living writer's transaction takes milliseconds; a killed one's is ended by the broker after 10 s, which it looks for every 10 s."""
_LEFT_SECONDS = 2.0


def deployed_names(session: Session) -> list[str]:
    """Applications that were ever deployed on the cluster and not cleaned up."""
    return [topic.removesuffix(JOURNAL) for topic in journals(session.admin)]


def journal_of(session: Session, name: str) -> JournalState:
    """What the journal of an application says now.

    Raises:
        KStreamsError: there is no application of that name.
    """
    known = deployed_names(session)
    if journal_topic_name(name) not in session.admin.topics():
        raise KStreamsError(
            f"there is no application {name!r} on this cluster",
            hint=did_you_mean(name, known) or (f"there are {', '.join(known)}" if known else "none was ever deployed here"),
        )
    reader = JournalReader(session.settings, name)
    try:
        return reader.catch_up(session.admin, seconds=_OPEN_SECONDS if _may_be_driven(session, name) else _LEFT_SECONDS)
    except BrokerUnavailableError:  # a kernel was killed in the middle of writing: its transaction is given up, then it can be read
        JournalControl(session.settings, name).close()
        return reader.catch_up(session.admin)
    finally:
        reader.close()


def _may_be_driven(session: Session, name: str) -> bool:
    """False only if the process that drove it last, from this directory, is gone."""
    lease = read_whole(control_directory(session._state_root(), name) / LEASE)
    return lease is None or psutil.pid_exists(int(lease["pid"]))


def attached(
    session: Session, name: str, topology: Any, config: Mapping[str, Any], *, trust: bool, here: bool = False
) -> Application:
    """As `Session.attach`.

    Args:
        here: this process drives it, though it is a detached one.
    """
    state = journal_of(session, name)
    mailbox = Mailbox(state_root(session._config(name, config)), name)
    detached = False if here else None
    if topology is not None and not here and mailbox.driven is not None:
        app = attached(session, name, None, config, trust=trust)  # what runs is what the process runs
        app.definition = topology
        return app
    found = "paused" if state.desired is not None and state.desired.state == "paused" else "stopped"
    history = VersionHistory(session.files, name)
    if topology is not None:
        from kstreams_repl.session.deploying import refuse_misfit

        checked = session._config(name, {**_settings_left(session, state, name, config), **config})
        built = topology_of(topology, checked)
        refuse_misfit(session, name, built, checked, None)
        history.continue_or_begin(checked)
        app = session._application(name, built, checked, history, found=found, detached=detached)
        app.definition = topology
        app._deployment.version = history.keep(program_of(topology, built, session.variables), built, checked)
        return app
    number = state.desired.version if state.desired is not None else 1
    saved = _trusted(state, number) if trust else None
    checked = session._config(name, config)
    if saved is None:
        history.load(checked)
        history.present(number)
        saved = confirmed(session, state, history, name, number)
    else:
        history.continue_or_begin(checked)
    _refuse_lacking(session, saved, name, config)
    checked = session._config(name, {**saved.settings, **config})
    app = session._application(name, make_topology(saved, name, checked), checked, history, found=found, detached=detached)
    if config or trust:
        app._deployment.version = history.keep(_without_settings(saved), app.topology, checked)
    return app


def _settings_left(session: Session, state: JournalState, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the version in force, if the journal confirms it."""
    if state.desired is None:
        return {}
    history, number = VersionHistory(session.files, name), state.desired.version
    try:
        history.load(session._config(name, config))
        history.present(number)
        saved = confirmed(session, state, history, name, number)
    except SessionFileError:  # the comparison says so
        return {}
    _refuse_lacking(session, saved, name, config)
    return saved.settings


def _refuse_lacking(session: Session, saved: SavedVersion, name: str, config: Mapping[str, Any]) -> None:
    lacking = set(saved.unsaved) - set(config) - set(session.config)
    if lacking:
        raise SessionFileError(
            f"{', '.join(sorted(lacking))} of {name!r} had values that cannot be written down",
            hint=f"session.attach({name!r}, config={{{', '.join(f'{key!r}: …' for key in sorted(lacking))}}})",
            application=name,
        )


def confirmed(session: Session, state: JournalState, history: VersionHistory, name: str, number: int) -> SavedVersion:
    """The version in force, when the journal confirms it; and so every earlier one that is kept. Versions from before a cleanup are no
    history any more: the journal that knew them went with it.
    """
    path = str(session.files.path(name))
    hashes = {version: record.source_hash for version, record in state.versions.items()}
    saved = history.saved(number)
    if saved is None:
        raise SessionFileError(
            f"the session file {path} has no version {number} of {name!r}, which the journal says is in force",
            hint=f"session.attach({name!r}, builder) with the topology of your notebook",
            path=path,
            application=name,
        )
    confirm(saved, hashes, name, path)
    history.only(hashes)
    for version in history.versions:
        kept = history.saved(version.number)
        assert kept is not None
        confirm(kept, hashes, name, path)
    return saved


def _trusted(state: JournalState, number: int) -> SavedVersion:
    record = state.versions.get(number)
    if record is None or not record.source:
        raise SessionFileError(
            f"the journal has no text of version {number}", hint="session.attach(name, builder) with the topology of your notebook"
        )
    return SavedVersion(number, record.at_ms, record.source, record.description)


def _without_settings(saved: SavedVersion) -> Any:
    from kstreams_repl.session.program import Program

    return Program(saved.text.partition("\n")[2], saved.missing)
