"""Look up a deployed application: its journal, and the version texts that the journal confirms."""

from __future__ import annotations

import psutil

from kstreams_repl.engine.serdes.by_topic import SETTING, parse, write
from kstreams_repl.host.instance.control.file_channel import read_lease
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.host.journal.journal import JournalControl, JournalReader
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.repl.session.application.edits.versions import VersionHistory
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.session_file import SavedVersion, confirm
from kstreams_repl.repl.session.topics.internal_names import JOURNAL, journals
from kstreams_repl.system.errors import (
    BrokerUnavailableError,
    ConfigError,
    SessionFileError,
    UnknownApplicationError,
    did_you_mean,
)

_OPEN_SECONDS = 25.0
"""A live writer's transaction takes milliseconds; the broker aborts a killed writer's after 10 s and checks for it every 10 s."""
LEFT_SECONDS = 2.0


def deployed_names(client: ClusterClient) -> list[str]:
    """Return the applications that were ever deployed on the cluster and not cleaned up."""
    return [topic.removesuffix(JOURNAL) for topic in journals(client.admin)]


def journal_of(client: ClusterClient, name: str) -> JournalState:
    """Return the present state of an application's journal.

    Raises:
        UnknownApplicationError: there is no application of that name.
    """
    known = deployed_names(client)
    if journal_topic_name(name) not in client.admin.topics():
        raise UnknownApplicationError(
            f"there is no application {name!r} on this cluster",
            hint=did_you_mean(name, known)
            or (f"its applications are {', '.join(known)}" if known else f"deploy it: session.deploy(builder, {name!r})"),
        )
    reader = JournalReader(client.settings, name)
    try:
        return reader.catch_up(client.admin, seconds=_OPEN_SECONDS if _may_be_driven(client, name) else LEFT_SECONDS)
    except BrokerUnavailableError:  # a killed kernel left an open transaction: abort it, then read
        JournalControl(client.settings, name).close()
        return reader.catch_up(client.admin)
    finally:
        reader.close()


def _may_be_driven(client: ClusterClient, name: str) -> bool:
    """Return False only if the process that drove it last, from this directory, has ended."""
    lease = read_lease(control_directory(client.state_root, name))
    return lease is None or psutil.pid_exists(lease.pid)


def serdes_in_journal(state: JournalState) -> str:
    """Return `repl.source.serdes` as the journal has it; "" if it has none.

    These are names of serdes, safe to use even from a text that may not be executed: the application must read its topics as
        before.
    """
    record = None if state.desired is None else state.versions.get(state.desired.version)
    text = None if record is None else SavedVersion(record.version, 0, record.source, "").settings.get(SETTING)
    try:
        return write(parse(text)) if isinstance(text, str) else ""
    except ConfigError:
        return ""


def history_of(client: ClusterClient, name: str) -> VersionHistory:
    """Return an empty history of an application, whose versions of earlier kernels the journal must confirm."""
    return VersionHistory(client.files, name, lambda: _hashes(journal_of(client, name)))


def _hashes(state: JournalState) -> dict[int, str]:
    return {version: record.source_hash for version, record in state.versions.items()}


def confirmed(client: ClusterClient, state: JournalState, history: VersionHistory, name: str, number: int) -> SavedVersion:
    """Return the version in force, if the journal confirms it and every earlier one that is kept.

    Versions from before a cleanup are dropped from the history: the cleanup deleted the journal that could confirm them.
    """
    path = str(client.files.path(name))
    hashes = _hashes(state)
    saved = history.saved(number)
    if saved is None:
        raise SessionFileError(
            f"the session file {path} does not have version {number} of {name!r}, the one in force according to the journal",
            hint=f"give the topology of your notebook: session.attach({name!r}, builder)",
            path=path,
            application=name,
        )
    confirm(saved, hashes, name, path)
    history.only(hashes)
    for version in history.versions:
        kept = history.saved(version.number)
        assert kept is not None
        confirm(kept, hashes, name, path)
        client.files.trusted.add((name, version.number, kept.program.hash))
    return saved
