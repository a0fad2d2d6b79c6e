"""What is known of a fork outside of Kafka: one small file in the session's directory, ``forks/<application>.<fork>.json`` (0600).

It is written before anything of the fork is made, and removed after everything of it is deleted. So whatever dies in between, the next
session finds the fork, sees that the process which held it is gone, and drops it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from msgspec import ValidationError, convert

from kstreams_repl.engine.topology.names import validate_application_id, validate_name
from kstreams_repl.system.errors import SessionFileError
from kstreams_repl.system.files import write_atomically
from kstreams_repl.system.processes import ProcessRecord

FOLDER = "forks"
Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class ForkRecord(ProcessRecord):
    """A fork.

    Attributes:
        application, name: its parent, and its name.
        base_version: the version of the parent that it was made from.
        at_ms: when it was made (ms since 1970).
        pid, born, host: the process that holds it, its start, and the name of its host.
        state: the directory with its local state (``state.dir``).
        snapshots: where its base is; "": in its local state.
        outputs: its topics by the parent's.
        since: where the parent's outputs ended, by topic and partition.
        bases: where the parent's changelogs ended, by topic and partition.
        commits: the parent's commits that it began with, by task.
        left_out: nodes whose effects are left out, with what that is.
        empty: stores of the parent that it began without.
        seconds: how long it took until it ran, without the start of its processes.
        gap_seconds: how long the parent was paused for it.
    """

    application: str
    name: str
    base_version: int
    at_ms: int
    pid: int
    born: str
    host: str
    state: str
    snapshots: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    since: Offsets = field(default_factory=dict)
    bases: Offsets = field(default_factory=dict)
    commits: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    empty: tuple[str, ...] = ()
    seconds: float = 0.0
    gap_seconds: float = 0.0

    @property
    def id(self) -> str:
        """The fork's application id."""
        return fork_id(self.application, self.name)

    @property
    def is_orphan(self) -> bool:
        """Whether the process that held it is gone."""
        return self.host == socket.gethostname() and not self.is_alive


def fork_id(application: str, name: str) -> str:
    """Return the application id of a fork: ``<application>.<fork>``, so that no prefix ``<application>-`` of its parent covers its topics.

    Raises:
        InvalidNameError: no application can have that id.
    """
    return validate_application_id(f"{application}.{validate_name(name, 'fork')}", "fork's application")


def write_record(directory: Path, record: ForkRecord) -> None:
    """Write the file of a fork."""
    folder = directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(folder / f"{record.id}.json", json.dumps(asdict(record)))


def read_records(directory: Path) -> list[ForkRecord]:
    """Return the forks in a session's directory, by application and name.

    Raises:
        SessionFileError: a file is not that of a fork.
    """
    return [_read(path) for path in sorted((directory / FOLDER).glob("[!.]*.json"))]


def remove_record(directory: Path, identity: str) -> None:
    """Remove the file of a fork, and the folder if it is the last; does nothing if there is none."""
    path = directory / FOLDER / f"{identity}.json"
    path.unlink(missing_ok=True)
    with suppress(OSError):  # others are in it
        path.parent.rmdir()


def _read(path: Path) -> ForkRecord:
    try:
        record = convert(json.loads(path.read_bytes()), ForkRecord, strict=False)
        if path.stem != record.id:
            raise ValueError(f"it is of the fork {record.id}")
        return record
    except (OSError, ValueError, ValidationError) as error:
        raise SessionFileError(f"{path} is not the file of a fork: {error}", hint="delete it", path=str(path)) from error
