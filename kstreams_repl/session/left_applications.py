"""Applications in a session's directory: those of this session, and those that an earlier or another kernel left there.

Those left are read from small files alone (the lease, instances' reports, the record of a driver process), without the broker or
a new process, so a kernel can list them right after its restart.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from kstreams_repl.display.frames import Frames
from kstreams_repl.display.markup import one_line
from kstreams_repl.display.table import Table
from kstreams_repl.instance.control.channel import Signal
from kstreams_repl.instance.control.file_channel import LEASE, read_lease, reports_in
from kstreams_repl.instance.state.state_directory import control_directory
from kstreams_repl.session.application.detached.mailbox import FAILED, STOPPED, Mailbox
from kstreams_repl.session.application.state import ApplicationState

if TYPE_CHECKING:
    from kstreams_repl.session.application.application import Application


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
        at = datetime.fromtimestamp(self.seen).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006 (the user's clock)
        return f"{self.status}, {where}, last seen {at}"


class Applications(Frames, dict[str, "Application"]):
    """The applications of a session by name, displayed as a table; `left` are those of its directory that are not attached."""

    def __init__(self, attached: dict[str, Application], root: Path | None) -> None:
        super().__init__(attached)
        self._root = root

    @property
    def left(self) -> tuple[LeftApplication, ...]:
        """Applications in the session's directory that are not attached; `Session.attach` attaches one."""
        return left_applications(self._root, self)

    def __missing__(self, name: str) -> Application:
        found = next((left for left in self.left if left.name == name), None)
        raise KeyError(name if found is None else f"{name} is {found.standing}; session.attach({name!r}) takes it up")

    def table(self) -> Table:
        """Return one row for each application: status, records, lag, error.

        Example:
            >>> len(session.applications.table())
            1
        """
        return applications_table(self.values(), self.left)

    def __repr__(self) -> str:
        here = ", ".join(f"{app.name} {app.standing}" for app in self.values()) or "none"
        left = ", ".join(f"{left.name} {left.status}" for left in self.left)
        return f"Applications({here}{f'; not attached: {left}' if left else ''})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


def left_applications(root: Path | None, known: Collection[str] = ()) -> tuple[LeftApplication, ...]:
    """Return the applications under a ``state.dir``, by name. None: there is no such directory."""
    if root is None or not root.is_dir():
        return ()
    names = sorted(path.parents[1].name for path in root.glob(f"*/control/{LEASE}"))
    return tuple(_left(root, name) for name in names if name not in known)


def applications_table(attached: Iterable[Application], left: Collection[LeftApplication]) -> Table:
    """Return one row per application; the note explains how to attach or remove those that are not attached."""
    rows: list[tuple[Any, ...]] = []
    for app in attached:
        counts, error = app.counts, app.error
        first = "" if error is None else error.message.splitlines()[0]
        rows.append((app.name, app.standing, counts.records, round(counts.per_second), counts.lag if counts.lag >= 0 else None, first))
    rows += [(item.name, item.standing, None, None, None, item.error) for item in left]
    note = "" if rows else "no applications; %topo_deploy NAME starts one"
    if left:
        name = next(iter(left)).name
        note = (
            f"not attached: session.attach({name!r}) takes it up, and resume() goes on with it; "
            f"session.cleanup({name!r}), or %topo_remove {name}, lists what removing it deletes"
        )
    return Table.of(("application", "status", "records", "records/s", "lag", "error"), rows, note=note)


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


def failure_left(root: Path, name: str) -> Mapping[str, Any] | None:
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
        gone = record.state != STOPPED and not alive
        status = FAILED if gone or record.failure else record.state
        told, pid = record.failure or failure or {}, record.pid if alive else None
    else:
        pid = driving_process(root, name)
        rest = "paused" if lease is not None and lease.signal is Signal.PAUSE else STOPPED
        status, told = ("running", {}) if pid is not None else (rest, {}) if failure is None else (FAILED, failure)
    error = one_line(str(told.get("message", "")).partition("\n")[0], limit=200)
    return LeftApplication(name, ApplicationState(status), record is not None, pid, _seen(folder), error)


def _seen(folder: Path) -> float:
    times = []
    for path in (folder / LEASE, folder / "driver" / "driver.json", *folder.glob("report-*.json")):
        with suppress(OSError):
            times.append(os.stat(path).st_mtime)
    return max(times, default=0.0)
