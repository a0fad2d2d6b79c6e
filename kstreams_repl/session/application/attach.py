"""Attach to an existing application: the journal shows that it exists and its version, the session file holds its text.

The topology comes, in this order: 1. from the argument · 2. from the session file, if its text has the hash in the journal ·
3. from the journal, only with `trust=True`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kstreams_repl.errors import SessionFileError
from kstreams_repl.instance.state.state_directory import state_root
from kstreams_repl.kafka.journal_state import JournalState
from kstreams_repl.serdes.by_topic import SETTING
from kstreams_repl.session.application import journal_lookup
from kstreams_repl.session.application.deploy import refuse_misfit
from kstreams_repl.session.application.detached.mailbox import Mailbox
from kstreams_repl.session.application.topology_resolution import topology_of
from kstreams_repl.session.application.versions import VersionHistory, make_topology
from kstreams_repl.session.left_applications import failure_left
from kstreams_repl.session.session_file import SavedVersion
from kstreams_repl.session.source.source_slice import Program, program_of

if TYPE_CHECKING:
    from kstreams_repl.session.application.application import Application
    from kstreams_repl.session.session import Session

def attached(
    session: Session, name: str, topology: Any, config: Mapping[str, Any], *, trust: bool, here: bool = False
) -> Application:
    """Attach to an application, as `Session.attach`.

    Args:
        here: this process drives it, although it is a detached application.
    """
    state = journal_lookup.journal_of(session, name)
    mailbox = Mailbox(state_root(session._config(name, config)), name)
    detached = False if here else None
    if topology is not None and not here and mailbox.driven is not None:
        app = attached(session, name, None, config, trust=trust)  # this is the code that the process runs
        app.definition = topology
        return app
    found = "paused" if state.desired is not None and state.desired.state == "paused" else "stopped"
    history = VersionHistory(session.files, name)
    if topology is not None:
        checked = session._config(name, {**_settings_left(session, state, name, config), **config})
        built = topology_of(topology, checked)
        refuse_misfit(session, name, built, checked, None)
        history.continue_or_begin(checked)
        app = _still_failed(session._application(name, built, checked, history, found=found, detached=detached))
        app.definition = topology
        app._deployment.version = history.keep(program_of(topology, built, session.variables), built, checked)
        return app
    number = state.desired.version if state.desired is not None else 1
    saved = _trusted(state, number) if trust else None
    checked = session._config(name, config)
    if saved is None:
        history.load(checked)
        history.present(number)
        saved = journal_lookup.confirmed(session, state, history, name, number)
    else:
        history.continue_or_begin(checked)
    _refuse_lacking(session, saved, name, config)
    checked = session._config(name, {**saved.settings, **config})
    app = session._application(name, make_topology(saved, name, checked), checked, history, found=found, detached=detached)
    app = app if here else _still_failed(app)
    if config or trust:
        app._deployment.version = history.keep(_without_settings(saved), app.topology, checked)
    return app


def _still_failed(app: Application) -> Application:
    """Mark an application that failed under an earlier kernel, from this directory, as failed until it is started again."""
    from kstreams_repl.spark.failure_translation import error_from

    failure = None if app.detached else failure_left(state_root(app.config), app.name)
    if failure:
        app._start_failed(error_from(failure))
    return app


def _settings_left(session: Session, state: JournalState, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the version in force, if the journal confirms them; else only its source serdes."""
    if state.desired is None:
        return {}
    history, number = VersionHistory(session.files, name), state.desired.version
    try:
        history.load(session._config(name, config))
        history.present(number)
        saved = journal_lookup.confirmed(session, state, history, name, number)
    except SessionFileError:  # the comparison reports it
        return {SETTING: told} if (told := journal_lookup.serdes_told(state)) else {}
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


def _trusted(state: JournalState, number: int) -> SavedVersion:
    record = state.versions.get(number)
    if record is None or not record.source:
        raise SessionFileError(
            f"the journal has no text of version {number}", hint="session.attach(name, builder) with the topology of your notebook"
        )
    return SavedVersion(number, record.at_ms, record.source, record.description)


def _without_settings(saved: SavedVersion) -> Any:
    return Program(saved.text.partition("\n")[2], saved.missing)
