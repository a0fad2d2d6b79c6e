"""Who else owns what a deploy is about to write: the id of a running application, the outputs of another one.

Both are read from the journals on the cluster alone, before anything is written: the state that each application is to be in, and the
description of the version that it runs.
"""

from __future__ import annotations

import os
import re
from datetime import datetime

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.control.file_channel import read_lease
from kstreams_repl.host.instance.state.state_directory import control_directory, state_root
from kstreams_repl.host.journal.journal import JournalReader
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.starting.journal_lookup import LEFT_SECONDS, deployed_names
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.left_applications import driving_process
from kstreams_repl.system.errors import AlreadyOwnedError, BrokerUnavailableError

_SINK = re.compile(r"Sink: \S+ \((.*)\)$", re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def refuse_live_owner(
    client: ClusterClient, name: str, topology: Topology, config: StreamsConfig, known: ApplicationCore | None
) -> None:
    """Raise if another program runs the application: a live process in this directory, or with another topology according to the journal.

    With the same topology it cannot be distinguished from a program that was killed and is started again: the start takes over.

    Args:
        known: this session's object for the application.

    Raises:
        AlreadyOwnedError: another program runs it.
    """
    if journal_topic_name(name) not in client.admin.topics():
        return
    state = _journal(client, name)
    desired = state.desired
    if desired is None or desired.state != "running":
        return
    lease, pid = read_lease(control_directory(state_root(config), name)), driving_process(state_root(config), name)
    if lease is None or lease.generation < desired.generation:
        pid = None  # it runs elsewhere, or did
    elif pid is None or (pid == os.getpid() and known is not None):
        return
    version = state.versions.get(desired.version)
    new, old = _lines(str(topology.describe())), _lines("" if version is None else version.description)
    other = next((line for line in (*new, *old) if (line in new) != (line in old)), "") if old else ""
    if not other and pid in (None, os.getpid()):
        return
    where = "" if pid is None else f", driven by process {pid}"
    since = datetime.fromtimestamp(desired.at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006 (the user's clock)
    differs = f"; this topology is another one: {other!r} is only in {'this one' if other in new else 'that one'}" if other else ""
    raise AlreadyOwnedError(
        f"another program runs {name} (version {desired.version}, since {since}{where}){differs}",
        hint=f"deploy under another name; or stop it there; or take it over: deploy(…, take_over=True) runs this topology, "
        f"session.attach({name!r}).resume() the one that runs",
        application=name,
        pid=pid,
    )


def refuse_shared_outputs(client: ClusterClient, name: str, topology: Topology) -> None:
    """Raise if another application that runs or is paused writes a topic or table that the topology writes.

    Raises:
        AlreadyOwnedError: there is one.
    """
    own = _outputs(str(topology.describe())) - {f"topic: {topic}" for topic in topology.internal_topics}
    for other in deployed_names(client) if own else ():
        state = _journal(client, other) if other != name else JournalState()
        desired = state.desired
        version = None if desired is None or desired.state == "stopped" else state.versions.get(desired.version)
        shared = sorted(own & _outputs("" if version is None else version.description))
        if desired is not None and shared:
            raise AlreadyOwnedError(
                f"{name} would write {', '.join(shared)}, which {other} ({desired.state}) writes: readers would get results twice",
                hint="write elsewhere: deploy a topology with other topics in .to(…); or move over: stop "
                f"{other} first, session.attach({other!r}).stop(); share_outputs=True writes to the same ones all the same",
                application=other,
                outputs=shared,
            )


def _journal(client: ClusterClient, name: str) -> JournalState:
    """Return the state of a journal as of now, without taking anything from its driver: without what an open transaction may add."""
    reader = JournalReader(client.settings, name, reports=False)
    try:
        return reader.catch_up(client.admin, seconds=LEFT_SECONDS)
    except BrokerUnavailableError:
        return reader.state
    finally:
        reader.close()


def _outputs(description: str) -> set[str]:
    return set(_SINK.findall(description))


def _lines(description: str) -> list[str]:
    """Return the lines of a description, first those that name a node."""
    lines = [_ADDRESS.sub("", line.strip()) for line in description.splitlines()]
    return sorted(lines, key=lambda line: line.startswith(("-->", "<--")))
