"""Choose the process that drives an application, this one or a detached one, and check what a detached one requires."""

from __future__ import annotations

import os
from pathlib import Path

from kstreams_repl.engine.config import SNAPSHOT_DIR, StreamsConfig
from kstreams_repl.host.instance.state.state_directory import state_root
from kstreams_repl.repl.session.application.detached.mailbox import STOPPED, Mailbox
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.left_applications import driving_process
from kstreams_repl.repl.session.session_file import SavedVersion
from kstreams_repl.system.errors import DeployError, DetachedApplicationError, IllegalStateError
from kstreams_repl.system.processes import ProcessMark


def refuse_what_ends_with_us(client: ClusterClient) -> None:
    """Raise if the broker or the directory ends with this process: a detached application needs both afterwards.

    Raises:
        DetachedApplicationError: one of them ends with this process.
    """
    if client.directory.temporary:
        raise DetachedApplicationError(
            "a detached application needs a directory that outlives this process, and this session's is temporary",
            hint='connect(directory="…"), or start in a directory that can be written to',
        )
    if client.broker is not None and not client.broker.stays:
        raise DetachedApplicationError(
            "a detached application needs a broker that outlives this process, and this session's ends with it",
            hint="session.close(), then ./kstreams broker start, then connect() again: it finds that broker",
            path=str(client.broker.directory),
        )


def refuse_unsaved(name: str, saved: SavedVersion | None) -> None:
    """Raise if a setting is an object, which cannot be passed to another process; a password can.

    Raises:
        DetachedApplicationError: a setting is an object.
    """
    objects = [] if saved is None else [key for key in saved.unsaved if key != SNAPSHOT_DIR]
    if objects:
        raise DetachedApplicationError(
            f"{name} cannot run in another process: expected texts and numbers, got functions or objects for {', '.join(objects)}",
            hint="name serdes by their names, and set extractors and handlers in the topology",
            application=name,
        )


def refuse_another_driver(name: str, config: StreamsConfig, *, attached: bool) -> None:
    """Raise if another process drives the application.

    Args:
        attached: this session has it as a detached application.

    Raises:
        DeployError: another process drives it.
    """
    driver = Mailbox(state_root(config), name).driven
    if driver is not None and driver.state != STOPPED and not attached and driver.process != ProcessMark.own():
        raise DeployError(
            f"{name} is {driver.state}, driven by process {driver.pid}",
            hint=f"edit it: session.attach({name!r}).edit(builder); or stop it before the deploy: session.attach({name!r}).stop()",
            pid=driver.pid,
        )


def refuse_driven(name: str, root: Path) -> None:
    """Raise if another process drives the application: nothing of it may be deleted.

    Raises:
        IllegalStateError: another process drives it.
    """
    driver = Mailbox(root, name).driven
    if driver is not None:
        raise IllegalStateError(
            f"{name} is {driver.state}, driven by process {driver.pid}",
            hint=f"stop it first: session.attach({name!r}).stop()",
            pid=driver.pid,
        )


def refuse_running(name: str, root: Path, *, attached: bool) -> None:
    """Raise if the application runs from this directory in another kernel, or in another session of this process.

    Args:
        attached: this session has it.

    Raises:
        IllegalStateError: it does.
    """
    pid = driving_process(root, name)
    if pid is not None and not (pid == os.getpid() and attached):
        raise IllegalStateError(f"{name} is running, driven by process {pid}", hint="stop it in that process first: app.stop()", pid=pid)
