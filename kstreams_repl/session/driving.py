"""Which process drives an application: this one, or one of its own; and where a detached one is refused."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from kstreams_repl.config import SNAPSHOT_DIR, StreamsConfig
from kstreams_repl.errors import DeployError, DetachedApplicationError, KStreamsError, SessionFileError
from kstreams_repl.instance.control import LEASE, Signal, read_whole
from kstreams_repl.instance.state_directory import control_directory, state_root
from kstreams_repl.session.detached.mailbox import Mailbox
from kstreams_repl.session.directory import closed_error
from kstreams_repl.session.program import Program
from kstreams_repl.session.session_file import SavedVersion
from kstreams_repl.session.versions import VersionHistory
from kstreams_repl.topology.topology import Topology

if TYPE_CHECKING:
    from kstreams_repl.session.application import Application
    from kstreams_repl.session.session import Session


def application_of(
    session: Session,
    name: str,
    topology: Topology,
    config: StreamsConfig,
    history: VersionHistory,
    known: Application | None = None,
    *,
    found: str | None = None,
    detached: bool | None = None,
) -> Application:
    """The object for an application, which drives nothing yet.

    Args:
        known: the one that stood for it so far; it is stopped.
        found: what the journal says of it, for an application that was found.
        detached: whether a process of its own drives it; None: as it was deployed.
    """
    from kstreams_repl.session.application import Application

    mailbox = Mailbox(state_root(config), name)
    if detached is None:
        detached = mailbox.record is not None
    if known is not None:
        known.stop()
    if detached:
        from kstreams_repl.session.detached.client import DetachedDeployment

        apart = DetachedDeployment(topology, config, session.settings, session.directory.path, session.master)
        return Application(session, name, topology, config, apart, history, found=found, detached=True)
    from kstreams_repl.spark.deployment import Deployment

    if mailbox.driven is None:
        mailbox.forget()
    deployment = Deployment(topology, config, spark=session._spark, master=session._master, settings=session.settings)
    return Application(session, name, topology, config, deployment, history, found=found)


def refuse_closed(session: Session) -> None:
    """Nothing is started by a session that is closed.

    Raises:
        KStreamsError: it is.
    """
    if session.closed:
        raise closed_error()


def refuse_what_ends_with_us(session: Session) -> None:
    """A detached application needs a broker and a directory that are there when this process is not.

    Raises:
        DetachedApplicationError: one of them goes with this process; or it would have to drive a cluster's executors.
    """
    if session.directory.temporary:
        raise DetachedApplicationError(
            "this session's directory goes with this process, and a detached application runs from it",
            hint='connect(directory="…") with one that stays, or a current directory that can be written to',
        )
    if session._broker is not None and not session._broker.stays:
        raise DetachedApplicationError(
            "this session's broker ends with this process, and a detached application would be left without one",
            hint="session.close(), start a broker that stays: ./kstreams broker start, and connect again (it is found)",
            path=str(session._broker.directory),
        )
    master = session.master
    if master is not None and not master.startswith("local"):
        raise DetachedApplicationError(
            f"a detached application runs on local Spark, not on {master}",
            hint="deploy it without detached=True, from a process that stays: python app.py of app.export(...)",
        )


def refuse_what_cannot_be_told(name: str, program: Program) -> None:
    """Another process has the source text alone.

    Raises:
        SessionFileError: it is not complete.
    """
    if program.missing:
        raise SessionFileError(
            f"{name} cannot run in another process: its source text lacks {', '.join(program.missing)}",
            hint="define what the topology uses in cells or in modules, not inside a function; or deploy it without detached=True",
            application=name,
            missing=list(program.missing),
        )


def refuse_unsaved(name: str, saved: SavedVersion | None) -> None:
    """Settings that are objects stay in this process; a password is told to the other one.

    Raises:
        DetachedApplicationError: there are some.
    """
    objects = [] if saved is None else [key for key in saved.unsaved if key != SNAPSHOT_DIR]
    if objects:
        raise DetachedApplicationError(
            f"{name} cannot run in another process: {', '.join(objects)} had values that cannot be written down",
            hint="use settings that are texts and numbers, and serdes by their names",
            application=name,
        )


def refuse_another_driver(name: str, config: StreamsConfig, known: Application | None) -> None:
    """Nothing is deployed over an application that another process drives, unless this session stands for it.

    Raises:
        DeployError: one does.
    """
    driver = Mailbox(state_root(config), name).driven
    if driver is not None and not (known is not None and known.detached):
        raise DeployError(
            f"{name} is driven by another process already ({driver.pid}, {driver.state})",
            hint=f"session.attach({name!r}) finds it; stop it there before you deploy anew",
            pid=driver.pid,
        )


def refuse_replaced(application: Application) -> None:
    """An object that a session had for an application before it deployed or attached it anew does nothing to it.

    Raises:
        DeployError: it is such a one.
    """
    name = application.name
    if not application.detached and application.session._applications.get(name, application) is not application:
        raise DeployError(
            f"this is {name} as it was: the session has deployed or attached it anew since",
            hint=f"session.applications[{name!r}] is the one that counts",
        )


def refuse_driven(name: str, root: Any) -> None:
    """Nothing may be taken away from an application that another process drives.

    Raises:
        KStreamsError: one does.
    """
    driver = Mailbox(root, name).driven
    if driver is not None:
        raise KStreamsError(
            f"{name} is driven by process {driver.pid} ({driver.state})", hint=f"session.attach({name!r}).stop() first", pid=driver.pid
        )


def refuse_running(name: str, root: Path, known: Application | None) -> None:
    """Nor from one that runs from this directory beside what this session knows of it: in another kernel, or another session here.

    Raises:
        KStreamsError: it does.
    """
    path = control_directory(root, name) / LEASE
    lease = read_whole(path)
    pid = 0 if lease is None or lease.get("signal") != Signal.RUN.value else int(lease.get("pid", 0))
    if not pid or (pid == os.getpid() and known is not None):
        return
    with suppress(psutil.NoSuchProcess, FileNotFoundError):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= path.stat().st_mtime:  # else its number came round
            raise KStreamsError(f"{name} is running: process {pid} drives it", hint="stop it there first: app.stop()", pid=pid)
