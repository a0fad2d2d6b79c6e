"""The session file of an application: its versions, so that another kernel can continue it.

One file per application, ``sessions/<name>.json`` in the session's directory, readable by its user only (0600): each version's source text,
for reading, export, and a Python that cannot load the rest. The topology that ran, pickled as for the workers, is in a file of its own
(0600), ``sessions/<name>.closures/<sha256>``; its hash is in the version's text. The journal in Kafka holds the hash of every version's
text; a text is executed, and a topology is unpickled, only if that hash confirms it. So neither a topic nor another user of this machine
decides what runs: code is never taken from the topic, which has the hash, and never from the files without the hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from msgspec import ValidationError, convert

from kstreams_repl.engine import serdes
from kstreams_repl.engine.config import KEYS, StreamsConfig
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.repl.session.source.source_slice import Program
from kstreams_repl.system.errors import SessionFileError
from kstreams_repl.system.files import replacing
from kstreams_repl.system.types import JsonObject

FORMAT = "kstreams-session"
_CONFIG = "# config: "
_CLOSURE = "# closure: "
PYTHON = sys.implementation.cache_tag or ""
"""Pickled functions hold byte code: another Python cannot run it."""


class Closure(NamedTuple):
    """The pickled topology of a version, as its text names it.

    Attributes:
        digest: SHA-256 of the bytes.
        code: hash of what its functions do (`topology.node_diff.whole_code`): two picklings of one topology may differ.
        python: the Python that can load it.
    """

    digest: str
    code: str
    python: str


@dataclass(frozen=True, slots=True)
class SavedVersion:
    """One version as stored.

    Attributes:
        text: the program, its settings in the first line and its closure in the second; this is what the hash is of.
        missing: names that the program lacks; it is then read-only.
        unsaved: settings whose values cannot be stored (functions, objects).
        migrated: stores whose rows were converted for it, so that the version before cannot read them.
        promoted: the fork that it was; "": it was none.
    """

    number: int
    at_ms: int
    text: str
    description: str
    missing: tuple[str, ...] = ()
    unsaved: tuple[str, ...] = ()
    migrated: tuple[str, ...] = ()
    promoted: str = ""

    @property
    def program(self) -> Program:
        return Program(self.text, self.missing)

    @property
    def topology_program(self) -> Program:
        """The program without the lines of settings and closure."""
        lines = self.text.splitlines(keepends=True)
        while lines and lines[0].startswith((_CONFIG, _CLOSURE)):
            del lines[0]
        return Program("".join(lines), self.missing)

    @property
    def settings(self) -> JsonObject:
        """The settings in the first line; empty when there are none."""
        first = self.text.partition("\n")[0]
        if not first.startswith(_CONFIG):
            return {}
        settings = json.loads(first.removeprefix(_CONFIG))
        return settings if isinstance(settings, dict) else {}


@dataclass(frozen=True, slots=True)
class Saved:
    """All stored versions of an application, the oldest first."""

    application: str
    versions: tuple[SavedVersion, ...] = field(default_factory=tuple)

    def version(self, number: int) -> SavedVersion | None:
        """Return the stored version of that number; None if there is none.

        Example:
            >>> import kstreams_repl as ks
            >>> saved = ks.reports.Saved("counts", (ks.reports.SavedVersion(1, 0, "__topology__ = None", "first"),))
            >>> saved.version(1).description
            'first'
        """
        return next((version for version in self.versions if version.number == number), None)


def closure_of(version: SavedVersion) -> Closure | None:
    """Return the pickled topology that the second line of a version's text names; None when there is none."""
    second = version.text.partition("\n")[2].partition("\n")[0]
    words = second.removeprefix(_CLOSURE).split()
    if not second.startswith(_CLOSURE) or len(words) != 3 or not _is_digest(words[0]):
        return None
    return Closure(*words)


def runs_the_same(one: SavedVersion, other: SavedVersion) -> bool:
    """Return whether two versions have the same text, settings and code."""

    def content(version: SavedVersion) -> object:
        closure = closure_of(version)
        return closure and closure.code, version.settings, version.topology_program.text, version.unsaved

    return bool(content(one) == content(other))


def save_version(
    number: int, at_ms: int, program: Program, description: str, config: StreamsConfig, closure: Closure | None = None
) -> SavedVersion:
    """Return a version with its settings in its text, which the journal also has; never client settings or passwords."""
    plain: JsonObject = {}
    unsaved = []
    for name in sorted(config.given & set(KEYS) - {"application.id", "bootstrap.servers", "state.dir"}):
        value = config[name]
        written = None if config.has_password(name) else value if _is_plain(value) else _serde_name(value)
        if written is None and value is not None:
            unsaved.append(name)
        else:
            plain[name] = written
    second = "" if closure is None else f"{_CLOSURE}{' '.join(closure)}\n"
    text = f"{_CONFIG}{json.dumps(plain, sort_keys=True)}\n{second}{program.text}"
    return SavedVersion(number, at_ms, text, description, program.missing, tuple(unsaved))


class SessionFiles:
    """The session files of a directory.

    Args:
        directory: of the session; the files are in its subdirectory ``sessions``.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "sessions"
        self.trusted: set[tuple[str, int, str]] = set()
        """Application, number and hash of each version that was written here, or that a journal has confirmed. A cleanup deletes the
        journal; the versions before it stay those of this session."""
        self.lines: dict[str, Mapping[str, Mapping[int, str]]] = {}
        """`Program.lines` by the hash of the pickled topology, of what was written or loaded here."""

    def path(self, application: str) -> Path:
        """Return the path of an application's session file, whether or not it exists.

        Raises:
            InvalidNameError: not the name of an application.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import kstreams_repl as ks
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = ks.reports.SessionFiles(Path(folder))
            ...     files.path("counts").name
            'counts.json'
        """
        return self._folder / f"{validate_name(application, 'application')}.json"

    def write(self, application: str, versions: Sequence[SavedVersion]) -> Path:
        """Replace the file of an application atomically.

        Args:
            application: name of the application.
            versions: all its versions, the oldest first.

        Returns:
            The path of the file.

        Raises:
            SessionFileError: it cannot be written; the earlier file stays.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import kstreams_repl as ks
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = ks.reports.SessionFiles(Path(folder))
            ...     files.write("counts", [ks.reports.SavedVersion(1, 0, "__topology__ = None", "first")]).name
            'counts.json'
        """
        path = self.path(application)
        content = {"format": FORMAT, "version": 1, "application": application, "versions": [asdict(item) for item in versions]}
        self._write(path, json.dumps(content).encode(), application)
        wanted = {closure.digest for closure in map(closure_of, versions) if closure is not None}
        for stored in self._closures(application).glob("*"):
            if _is_digest(stored.name) and stored.name not in wanted:
                stored.unlink(missing_ok=True)
        return path

    def write_closure(self, application: str, content: bytes) -> str:
        """Store a pickled topology before the version that names it; return its hash.

        Args:
            application: name of the application.
            content: the bytes.

        Raises:
            SessionFileError: it cannot be written.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import kstreams_repl as ks
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = ks.reports.SessionFiles(Path(folder))
            ...     len(files.write_closure("counts", b"..."))
            64
        """
        digest = hashlib.sha256(content).hexdigest()
        self._write(self._closures(application) / digest, content, application)
        return digest

    def read_closure(self, application: str, digest: str) -> bytes | None:
        """Return a stored topology's bytes, which have that hash; None if the file is missing. Nothing is unpickled.

        Args:
            application: name of the application.
            digest: the hash, from a version's text.

        Raises:
            SessionFileError: it belongs to another user, others may read or write it, or its content has another hash.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import kstreams_repl as ks
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = ks.reports.SessionFiles(Path(folder))
            ...     files.read_closure("counts", files.write_closure("counts", b"..."))
            b'...'
        """
        path = self._closures(application) / digest
        try:
            content = self._read(path, application)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(path, application, error) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise _unreadable(path, application, "its content is not what its name says")
        return content

    def _closures(self, application: str) -> Path:
        path = self.path(application)
        return path.with_name(f"{path.stem}.closures")

    def _write(self, path: Path, content: bytes, application: str) -> None:
        try:
            for folder in dict.fromkeys((self._folder, path.parent)):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(path, mode=0o600) as file:
                file.write(content)
        except OSError as error:
            raise SessionFileError(
                f"the session file {path} cannot be written: {error.strerror or error}",
                hint="free disk space, or allow writing to its directory; or choose another: connect(directory=...)",
                path=str(path),
                application=application,
            ) from error

    def _read(self, path: Path, application: str) -> bytes:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            self._check_owner(os.fstat(file.fileno()), path, application)
            return file.read()

    def remove(self, application: str) -> None:
        """Delete the files of an application; does nothing if there are none.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import kstreams_repl as ks
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = ks.reports.SessionFiles(Path(folder))
            ...     _ = files.write("counts", [ks.reports.SavedVersion(1, 0, "__topology__ = None", "first")])
            ...     files.remove("counts")
            ...     files.names()
            []
        """
        self.path(application).unlink(missing_ok=True)
        shutil.rmtree(self._closures(application), ignore_errors=True)

    def names(self) -> list[str]:
        """Return the names of the applications that have a file, sorted.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import kstreams_repl as ks
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = ks.reports.SessionFiles(Path(folder))
            ...     _ = files.write("counts", [ks.reports.SavedVersion(1, 0, "__topology__ = None", "first")])
            ...     files.names()
            ['counts']
        """
        return sorted(path.stem for path in self._folder.glob("*.json"))

    def read(self, application: str) -> Saved:
        """Return the stored versions. Nothing is executed.

        Args:
            application: name of the application.

        Raises:
            SessionFileError: there is no file, it belongs to another user, others may read or write it, or it is not a session
                file.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import kstreams_repl as ks
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = ks.reports.SessionFiles(Path(folder))
            ...     _ = files.write("counts", [ks.reports.SavedVersion(1, 0, "__topology__ = None", "first")])
            ...     files.read("counts").versions[0].number
            1
        """
        path = self.path(application)
        try:
            return _saved(json.loads(self._read(path, application)), application)
        except FileNotFoundError as error:
            raise SessionFileError(
                f"there is no session file of {application!r} at {path}",
                hint=f"give the topology: session.attach({application!r}, builder); or connect(directory=...) as when it was deployed",
                path=str(path),
                application=application,
            ) from error
        except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
            raise _unreadable(path, application, error) from error

    def _check_owner(self, file: os.stat_result, path: Path, application: str) -> None:
        mode = stat.S_IMODE(file.st_mode)
        if file.st_uid == os.getuid() and not mode & 0o077 and stat.S_ISREG(file.st_mode):
            return
        why = f"has mode {mode:04o}" if file.st_uid == os.getuid() else "belongs to another user"
        raise SessionFileError(
            f"expected the session file {path} to be yours with mode 0600, but it {why}: others could have written it",
            hint=f"read it, then chmod 600 it; or continue without it: session.attach({application!r}, builder)",
            path=str(path),
            application=application,
        )


def _unreadable(path: Path, application: str, why: object) -> SessionFileError:
    return SessionFileError(
        f"the session file {path} cannot be read: {why}",
        hint=f"continue without it: session.attach({application!r}, builder)",
        path=str(path),
        application=application,
    )


def _is_digest(text: str) -> bool:
    return len(text) == 64 and not set(text) - set("0123456789abcdef")


def confirm(saved: SavedVersion, hashes: Mapping[int, str], application: str, path: str) -> None:
    """Raise if the journal does not confirm this text.

    Raises:
        SessionFileError: the journal has another text's hash, or none.
    """
    if hashes.get(saved.number) == saved.program.hash:
        return
    what = "is not the text that ran: its hash differs from the journal's" if saved.number in hashes else "is not in the journal"
    raise SessionFileError(
        f"version {saved.number} of {application!r} in {path} {what}",
        hint=f"nothing of the file was executed or loaded; give the topology of your notebook: session.attach({application!r}, builder)",
        path=path,
        application=application,
    )


def _saved(content: object, application: str) -> Saved:
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") != 1:
        raise ValueError("not a session file of version 1")
    if content["application"] != application:
        raise ValueError(f"it belongs to the application {str(content['application'])[:80]!r}")
    return Saved(application, convert(content["versions"], tuple[SavedVersion, ...]))


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _serde_name(value: object) -> str | None:
    name = getattr(value, "name", None)
    try:
        return name if isinstance(name, str) and serdes.resolve(name) is value else None
    except Exception:  # no built-in serde of that name
        return None
