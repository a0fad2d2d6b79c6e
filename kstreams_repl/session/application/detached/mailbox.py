"""Messages between the driver process of a detached application and its clients: small files, each replaced atomically.

    driver.json      who drives it (process id and start time), its state, generation and version; written by the driver process
    driver.lock      flock'ed by the driver process while it lives: there is one at a time
    driver.log       its output
    clients.lock     flock'ed by a client while it edits: two kernels do not both write version 3
    ask-<id>.json    a request, for the process that it names; answer-<id>.json: its result

The directory is created for its user alone (0700), and is trusted as far as the session file next to it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kstreams_repl.errors import DetachedApplicationError
from kstreams_repl.instance.control.control_files import read_whole
from kstreams_repl.instance.state.state_directory import control_directory
from kstreams_repl.kafka.embedded.layout import write_atomically
from kstreams_repl.processes import ProcessMark

STARTING, STOPPED, FAILED = "starting", "stopped", "failed"
ANSWER_SECONDS = 120.0
"""Seconds that a live driver process may take for one request: a pause or a stop waits for every instance to commit."""
_LOOK_SECONDS = 0.02
_OLD_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class DriverRecord:
    """Contents of ``driver.json``.

    Attributes:
        pid, born: the driver process, and when it was started (seconds since 1970).
        state: as an `Application`'s status.
        version: which version of the session file runs, or would run.
        session: the directory whose session file it runs from.
        failure: the error, in the form of an instance's report; empty: it has not failed. It stays when the application is
            stopped.
        restarts: as `Application.restarts`.
    """

    application: str
    pid: int
    born: float
    state: str = STARTING
    generation: int = 0
    version: int = 0
    session: str = ""
    bootstrap_servers: str = ""
    failure: Mapping[str, Any] = field(default_factory=dict)
    restarts: Sequence[str] = ()

    @property
    def process(self) -> ProcessMark:
        return ProcessMark(self.pid, self.born)

    @property
    def is_alive(self) -> bool:
        """Whether its driver process still runs: the same process, not a later one with the same id."""
        return self.process.is_alive


class Mailbox:
    """The directory of one application. Creating the object creates no files.

    Args:
        root: ``state.dir`` of the application.
    """

    def __init__(self, root: Path, application: str) -> None:
        self.application = application
        self.folder = control_directory(root, application) / "driver"
        self._record = self.folder / "driver.json"
        self.log = self.folder / "driver.log"

    def make(self) -> Mailbox:
        """Create the directory."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self

    # ---- who drives it

    @property
    def record(self) -> DriverRecord | None:
        """The stored record, whether its process lives or not; None: there was no driver process."""
        said = read_whole(self._record)
        known = {item.name for item in fields(DriverRecord)}
        try:
            return None if said is None else DriverRecord(**{name: value for name, value in said.items() if name in known})
        except TypeError:
            return None

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

    def take(self) -> int | None:
        """Take the driver lock and return its descriptor; None when another process has it. The lock ends with this process."""
        held = os.open(self.folder / "driver.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            return None
        return held

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the clients' lock: no other client starts or edits inside this block."""
        held = os.open(self.make().folder / "clients.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    # ---- the client's side

    def ask(self, driver: DriverRecord, verb: str, **more: Any) -> dict[str, Any]:
        """Write a request and wait for its answer.

        Raises:
            DetachedApplicationError: the process has ended meanwhile, or does not answer.
        """
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        question, reply = self.folder / f"ask-{name}.json", self.folder / f"answer-{name}.json"
        write_atomically(question, json.dumps({"verb": verb, "pid": driver.pid, "born": driver.born, **more}))
        deadline = time.monotonic() + ANSWER_SECONDS
        try:
            while True:
                alive = driver.is_alive  # read before the answer: a process may answer and then end
                answer = read_whole(reply)
                if answer is not None:
                    return answer
                if not alive or time.monotonic() > deadline:
                    what = "does not answer" if alive else f"ended before it had done what was asked ({verb})"
                    raise DetachedApplicationError(
                        f"the process {driver.pid} that drives {self.application} {what}",
                        hint=f"its output is in {self.log}; what was committed stays"
                        + (f"; kill -9 {driver.pid} ends it" if alive else ", resume() goes on"),
                        pid=driver.pid,
                        path=str(self.log),
                    )
                time.sleep(_LOOK_SECONDS)
        finally:
            for path in (question, reply):
                path.unlink(missing_ok=True)

    # ---- the driver process's side

    def asked(self, own: ProcessMark) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the requests to this process, oldest first. Delete them, and obsolete ones to other processes."""
        for path in sorted(self.folder.glob("ask-*.json")):
            said = read_whole(path)
            path.unlink(missing_ok=True)
            if said is not None and (said.get("pid"), said.get("born")) == (own.pid, own.born):
                yield path.stem.removeprefix("ask-"), said

    def answer(self, name: str, content: Mapping[str, Any]) -> None:
        write_atomically(self.folder / f"answer-{name}.json", json.dumps(dict(content)))

    def sweep(self, older: float = _OLD_SECONDS) -> None:
        """Delete old answers that were never collected."""
        for path in self.folder.glob("answer-*.json"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > older:
                    path.unlink()


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
