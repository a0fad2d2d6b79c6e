"""Applications that an earlier or another kernel left in a session's directory.

They are read from small files alone (the lease, instances' reports, the record of a driver process), without the broker or a new
process, so a kernel can list them right after its restart.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import LEASE, read_lease, reports_in
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.pictures.markup import one_line
from kstreams_repl.pictures.wording import moment
from kstreams_repl.repl.session.application.detached.mailbox import FAILED, STOPPED, Mailbox
from kstreams_repl.repl.session.application.life.state import ApplicationState
from kstreams_repl.system.types import JsonMapping


@dataclass(frozen=True, slots=True)
class LeftApplication:
    """An application in the directory that this session has not attached.

    Attributes:
        status: running, starting, paused, stopped or failed.
        detached: whether a process of its own drives it, or did.
        pid: the live process that drives it; None when there is none.
        seen: time of its last report (seconds since 1970).
        error: the first line of its error; empty: it has not failed.
    """

    name: str
    status: ApplicationState
    detached: bool
    pid: int | None
    seen: float
    error: str = ""

    @property
    def standing(self) -> str:
        """The status as display text, with what drives it and the time of its last report."""
        where = "detached" if self.detached else "in another kernel" if self.pid is not None else "not attached"
        return f"{self.status}, {where}, last seen {moment(self.seen)}"


def left_applications(root: Path | None, known: Collection[str] = ()) -> tuple[LeftApplication, ...]:
    """Return the applications under a ``state.dir``, by name. None: there is no such directory."""
    if root is None or not root.is_dir():
        return ()
    names = sorted(path.parents[1].name for path in root.glob(f"*/control/{LEASE}"))
    return tuple(_left(root, name) for name in names if name not in known)


def driving_process(root: Path, name: str) -> int | None:
    """Return the live process that runs an application from this directory, according to its lease; None: there is none."""
    folder = control_directory(root, name)
    lease = read_lease(folder)
    pid = 0 if lease is None or lease.signal is not Signal.RUN else lease.pid
    if pid:
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= (folder / LEASE).stat().st_mtime:  # else a reused id
                return pid
    return None


def failure_left(root: Path, name: str) -> JsonMapping | None:
    """Return the failure of the last run from this directory, as its instance reported it; None: it did not fail."""
    folder = control_directory(root, name)
    lease = read_lease(folder)
    reports = {} if lease is None else reports_in(folder, lease.generation)
    return next((report.get("failure") or {} for report in reports.values() if report["state"] == "failed"), None)


def _left(root: Path, name: str) -> LeftApplication:
    folder = control_directory(root, name)
    lease = read_lease(folder)
    failure = failure_left(root, name)
    record = Mailbox(root, name).record
    if record is not None:
        alive = record.is_alive
        died = record.state != STOPPED and not alive
        status = FAILED if died or record.failure else record.state
        reported, pid = record.failure or failure or {}, record.pid if alive else None
    else:
        pid = driving_process(root, name)
        rest = "paused" if lease is not None and lease.signal is Signal.PAUSE else STOPPED
        status, reported = ("running", {}) if pid is not None else (rest, {}) if failure is None else (FAILED, failure)
    error = one_line(str(reported.get("message", "")).partition("\n")[0], limit=200)
    return LeftApplication(name, ApplicationState(status), record is not None, pid, _seen(folder), error)


def _seen(folder: Path) -> float:
    times = []
    for path in (folder / LEASE, folder / "driver" / "driver.json", *folder.glob("report-*.json")):
        with suppress(OSError):
            times.append(os.stat(path).st_mtime)
    return max(times, default=0.0)
