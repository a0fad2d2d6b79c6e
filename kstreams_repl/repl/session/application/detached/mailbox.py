"""The desired and the present state of a detached application, for its driver process and its clients: two small files, each replaced
atomically. What a driver's command is to instances, the desired state is to the driver process: it carries out one change after another.

    desired.json     the change that a client wants, for the process that it names; written by clients, followed by the driver process
    driver.json      who drives it (process id and start time), its state, generation and version, and the last change that it carried
                     out; written by the driver process
    driver.lock      flock'ed by the driver process while it lives: there is one at a time
    clients.lock     flock'ed by a client while it edits: two kernels do not both write version 3
    desired.lock     flock'ed by a client until its change is carried out
    driver.log       its output

A client does not write the journal: only the holder of the control id can, and each command would take the id from the driver process.
The directory is created for its user alone (0700), and is trusted as far as the session file next to it.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TypeVar

from kstreams_repl.host.instance.control.control_files import read_whole
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.system.errors import DetachedApplicationError
from kstreams_repl.system.files import locked, take_lock, write_atomically
from kstreams_repl.system.processes import ProcessRecord
from kstreams_repl.system.types import JsonMapping

STARTING, STOPPED, FAILED = "starting", "stopped", "failed"
ANSWER_SECONDS = 120.0
"""Seconds that a live driver process may take for one change: a pause or a stop waits for every instance to commit."""
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class DriverRecord(ProcessRecord):
    """Contents of ``driver.json``.

    Attributes:
        pid, born: the driver process (`ProcessMark`).
        state: as an `Application`'s status.
        version: which version of the session file runs, or would run.
        session: the directory whose session file it runs from.
        failure: the error, in the form of an instance's report; empty: it has not failed. It stays when the application is
            stopped.
        restarts: as `Application.restarts`.
        observed: id of the last change that was carried out, or refused.
        refused: the error with which it was refused; empty: it was carried out.
    """

    application: str
    pid: int
    born: str
    state: str = STARTING
    generation: int = 0
    version: int = 0
    session: str = ""
    bootstrap_servers: str = ""
    failure: JsonMapping = field(default_factory=dict)
    restarts: Sequence[str] = ()
    observed: str = ""
    refused: JsonMapping = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DesiredChange:
    """Contents of ``desired.json``.

    Attributes:
        pid, born: the driver process that it is for.
        state: running, paused or stopped; "": as it is.
        version, hash: the version of the session file to run; 0: as it is.
        emptied: changelog topics of stores that the version resets.
    """

    id: str
    pid: int
    born: str
    state: str = ""
    version: int = 0
    hash: str = ""
    emptied: Sequence[str] = ()


_Content = TypeVar("_Content", DriverRecord, DesiredChange)


class Mailbox:
    """The directory of one application. Creating the object creates no files.

    Args:
        root: ``state.dir`` of the application.
    """

    def __init__(self, root: Path, application: str) -> None:
        self.application, self.root = application, root
        self.folder = control_directory(root, application) / "driver"
        self._record = self.folder / "driver.json"
        self._desired = self.folder / "desired.json"
        self.log = self.folder / "driver.log"
        self._lock: int | None = None

    def make(self) -> Mailbox:
        """Create the directory."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self

    # ---- who drives it

    @property
    def record(self) -> DriverRecord | None:
        """The stored record, whether its process lives or not; None: there was no driver process."""
        return _read(DriverRecord, self._record)

    @property
    def driven(self) -> DriverRecord | None:
        """The record, if its process lives."""
        record = self.record
        return record if record is not None and record.is_alive else None

    def write(self, record: DriverRecord) -> None:
        write_atomically(self._record, json.dumps(asdict(record)))

    def forget(self) -> None:
        """Delete the record: the application is not detached any more."""
        self._record.unlink(missing_ok=True)

    def take(self) -> bool:
        """Take the driver lock and return True; False when another process has it. It ends with this process, or with `release`."""
        taken = take_lock(self.folder / "driver.lock")
        if taken is None:
            return False
        self._lock = taken
        return True

    def release(self) -> None:
        """Give the driver lock back: the application is stopped, and another process may drive it while this one still ends."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the clients' lock: no other client starts or edits inside this block."""
        with locked(self.make().folder / "clients.lock"):
            yield

    # ---- the desired state

    def change(
        self, driver: DriverRecord, state: str = "", *, version: int = 0, hash: str = "", emptied: Sequence[str] = ()
    ) -> JsonMapping:
        """Write a desired change and wait until the driver process has carried it out.

        Returns:
            The error with which it was refused; empty: it was carried out.

        Raises:
            DetachedApplicationError: the process has ended meanwhile, or does not follow.
        """
        with locked(self.folder / "desired.lock"):
            wanted = DesiredChange(uuid.uuid4().hex, driver.pid, driver.born, state, version, hash, emptied)
            write_atomically(self._desired, json.dumps(asdict(wanted)))
            try:
                return self._await_change(driver, wanted)
            finally:
                self._desired.unlink(missing_ok=True)

    def _await_change(self, driver: DriverRecord, wanted: DesiredChange) -> JsonMapping:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            alive = driver.is_alive  # read before the record: a process may carry it out and then end
            record = self.record
            if record is not None and record.observed == wanted.id:
                return record.refused
            if not alive or time.monotonic() > deadline:
                doing = wanted.state or f"version {wanted.version}"
                what = "does not answer" if alive else f"ended before it had done what was asked ({doing})"
                raise DetachedApplicationError(
                    f"the process {driver.pid} that drives {self.application} {what}",
                    hint=f"its output is in {self.log}; what was committed stays"
                    + (f"; kill -9 {driver.pid} ends it" if alive else ", resume() goes on"),
                    pid=driver.pid,
                    path=str(self.log),
                )
            time.sleep(_POLL_SECONDS)

    def desired(self, own: DriverRecord) -> DesiredChange | None:
        """Return the change that this driver process has to carry out; None: there is none."""
        wanted = _read(DesiredChange, self._desired)
        if wanted is None or (wanted.pid, wanted.born) != (own.pid, own.born) or wanted.id == own.observed:
            return None
        return wanted


def _read(cls: type[_Content], path: Path) -> _Content | None:
    plain = read_whole(path)
    known = {item.name for item in fields(cls)}
    try:
        return None if plain is None else cls(**{name: value for name, value in plain.items() if name in known})
    except TypeError:
        return None


def mailboxes(root: Path) -> list[Mailbox]:
    """Return the mailboxes of all applications under a ``state.dir`` that have, or had, a driver process of their own."""
    return [Mailbox(root, path.parents[2].name) for path in sorted(root.glob("*/control/driver/driver.json"))]


def end(mailbox: Mailbox, seconds: float = ANSWER_SECONDS) -> bool:
    """End a driver process at a commit, without a request to the cluster. Return whether there was one.

    Raises:
        DetachedApplicationError: it did not end in time.
    """
    driver = mailbox.driven
    if driver is None:
        return False
    driver.process.ask_to_end()
    if not driver.process.wait(seconds):
        raise DetachedApplicationError(
            f"the process {driver.pid} that drives {mailbox.application} has not ended within {seconds:.0f} s",
            hint=f"its output is in {mailbox.log}; kill -9 {driver.pid} ends it, and what it has committed stays",
            pid=driver.pid,
            path=str(mailbox.log),
        )
    return True
