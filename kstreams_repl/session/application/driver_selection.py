"""Choose the process that drives an application, this one or a detached one, and check what a detached one requires."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstreams_repl.config import SNAPSHOT_DIR, StreamsConfig
from kstreams_repl.errors import DeployError, DetachedApplicationError, KStreamsError, SessionFileError
from kstreams_repl.instance.state.state_directory import state_root
from kstreams_repl.session.application.detached.mailbox import Mailbox
from kstreams_repl.session.left_applications import driving_process
from kstreams_repl.session.session_directory import closed_error
from kstreams_repl.session.session_file import SavedVersion
from kstreams_repl.session.source.source_slice import Program

if TYPE_CHECKING:
    from kstreams_repl.session.application.application import Application
    from kstreams_repl.session.session import Session


def refuse_closed(session: Session) -> None:
    """Raise if the session is closed.

    Raises:
        KStreamsError: it is closed.
    """
    if session.closed:
        raise closed_error()


def refuse_what_ends_with_us(session: Session) -> None:
    """Raise if the broker or the directory ends with this process: a detached application needs both afterwards.

    Raises:
        DetachedApplicationError: one of them ends with this process; or it would have to drive a cluster's executors.
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
    """Raise if the source text is incomplete: another process has nothing but the text.

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
    """Raise if a setting is an object, which cannot be passed to another process; a password can.

    Raises:
        DetachedApplicationError: a setting is an object.
    """
    objects = [] if saved is None else [key for key in saved.unsaved if key != SNAPSHOT_DIR]
    if objects:
        raise DetachedApplicationError(
            f"{name} cannot run in another process: {', '.join(objects)} had values that cannot be written down",
            hint="use settings that are texts and numbers, and serdes by their names",
            application=name,
        )


def refuse_another_driver(name: str, config: StreamsConfig, known: Application | None) -> None:
    """Raise if another process drives the application, unless this session has it as a detached application.

    Raises:
        DeployError: another process drives it.
    """
    driver = Mailbox(state_root(config), name).driven
    if driver is not None and not (known is not None and known.detached):
        raise DeployError(
            f"{name} is driven by another process already ({driver.pid}, {driver.state})",
            hint=f"session.attach({name!r}) finds it; stop it there before you deploy anew",
            pid=driver.pid,
        )


def refuse_replaced(application: Application) -> None:
    """Raise if the session has deployed or attached the application again since, and so has another object for it.

    Raises:
        DeployError: the session has another object for it.
    """
    name = application.name
    if not application.detached and application.session._applications.get(name, application) is not application:
        raise DeployError(
            f"this is {name} as it was: the session has deployed or attached it anew since",
            hint=f"session.applications[{name!r}] is the one that counts",
        )


def refuse_driven(name: str, root: Any) -> None:
    """Raise if another process drives the application: nothing of it may be deleted.

    Raises:
        KStreamsError: another process drives it.
    """
    driver = Mailbox(root, name).driven
    if driver is not None:
        raise KStreamsError(
            f"{name} is driven by process {driver.pid} ({driver.state})", hint=f"session.attach({name!r}).stop() first", pid=driver.pid
        )


def refuse_running(name: str, root: Path, known: Application | None) -> None:
    """Raise if the application runs from this directory in another kernel, or in another session of this process.

    Raises:
        KStreamsError: it does.
    """
    pid = driving_process(root, name)
    if pid is not None and not (pid == os.getpid() and known is not None):
        raise KStreamsError(f"{name} is running: process {pid} drives it", hint="stop it there first: app.stop()", pid=pid)
