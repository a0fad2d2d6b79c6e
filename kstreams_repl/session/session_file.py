"""The session file of an application: its versions as source text, so that another kernel can continue it.

One file per application, ``sessions/<name>.json`` in the session's directory, readable by its user only (0600). The journal in
Kafka holds the hash of every version's text; a text is executed only if that hash confirms it. So neither a topic nor another
user of this machine decides what runs: code is never taken from the topic, which has the hash, and never from the file without
the hash.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.config import KEYS, StreamsConfig
from kstreams_repl.errors import SessionFileError
from kstreams_repl.session.source.source_slice import Program
from kstreams_repl.topology.names import validate_name

FORMAT = "kstreams-session"
_CONFIG = "# config: "


@dataclass(frozen=True, slots=True)
class SavedVersion:
    """One version as stored.

    Attributes:
        text: the program, its settings in the first line; this is what the hash is of.
        missing: names that the program lacks; it is then read-only.
        unsaved: settings whose values cannot be stored (functions, objects).
        migrated: stores whose rows were converted for it, so that the version before cannot read them.
    """

    number: int
    at_ms: int
    text: str
    description: str
    missing: tuple[str, ...] = ()
    unsaved: tuple[str, ...] = ()
    migrated: tuple[str, ...] = ()

    @property
    def program(self) -> Program:
        return Program(self.text, self.missing)

    @property
    def topology_program(self) -> Program:
        """The program without the line of settings."""
        return Program(self.text.partition("\n")[2], self.missing)

    @property
    def settings(self) -> dict[str, Any]:
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
            >>> saved = ks.Saved("counts", (ks.SavedVersion(1, 0, "__topology__ = None", "first"),))
            >>> saved.version(1).description
            'first'
        """
        return next((version for version in self.versions if version.number == number), None)


def save_version(number: int, at_ms: int, program: Program, description: str, config: StreamsConfig) -> SavedVersion:
    """Return a version with its settings in its text, which the journal also has; never client settings or passwords."""
    plain: dict[str, Any] = {}
    unsaved = []
    for name in sorted(config.given & set(KEYS) - {"application.id", "bootstrap.servers", "state.dir"}):
        value = config[name]
        written = None if config.has_password(name) else value if _is_plain(value) else _serde_name(value)
        if written is None and value is not None:
            unsaved.append(name)
        else:
            plain[name] = written
    text = f"{_CONFIG}{json.dumps(plain, sort_keys=True)}\n{program.text}"
    return SavedVersion(number, at_ms, text, description, program.missing, tuple(unsaved))


class SessionFiles:
    """The session files of a directory.

    Args:
        directory: of the session; the files are in its subdirectory ``sessions``.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "sessions"

    def path(self, application: str) -> Path:
        """Return the path of an application's session file, whether or not it exists.

        Raises:
            InvalidNameError: not the name of an application.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import kstreams_repl as ks
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = ks.SessionFiles(Path(folder))
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
            ...     files = ks.SessionFiles(Path(folder))
            ...     files.write("counts", [ks.SavedVersion(1, 0, "__topology__ = None", "first")]).name
            'counts.json'
        """
        path = self.path(application)
        content = {"format": FORMAT, "version": 1, "application": application, "versions": [asdict(item) for item in versions]}
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                json.dump(content, file)
            new.replace(path)
        except OSError as error:
            with suppress(OSError):
                new.unlink()
            raise SessionFileError(
                f"the session file {path} cannot be written: {error.strerror or error}",
                hint="free disk space, or allow writing to its directory; or choose another: connect(directory=...)",
                path=str(path),
                application=application,
            ) from error
        return path

    def remove(self, application: str) -> None:
        """Delete the file of an application; does nothing if there is none.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import kstreams_repl as ks
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = ks.SessionFiles(Path(folder))
            ...     _ = files.write("counts", [ks.SavedVersion(1, 0, "__topology__ = None", "first")])
            ...     files.remove("counts")
            ...     files.names()
            []
        """
        self.path(application).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return the names of the applications that have a file, sorted.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import kstreams_repl as ks
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = ks.SessionFiles(Path(folder))
            ...     _ = files.write("counts", [ks.SavedVersion(1, 0, "__topology__ = None", "first")])
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
            ...     files = ks.SessionFiles(Path(folder))
            ...     _ = files.write("counts", [ks.SavedVersion(1, 0, "__topology__ = None", "first")])
            ...     files.read("counts").versions[0].number
            1
        """
        path = self.path(application)
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "r", encoding="utf-8") as file:
                self._check_owner(os.fstat(file.fileno()), path, application)
                return _saved(json.load(file), application)
        except FileNotFoundError as error:
            raise SessionFileError(
                f"there is no session file of {application!r} at {path}",
                hint=f"give the topology: session.attach({application!r}, builder); or connect(directory=...) as when it was deployed",
                path=str(path),
                application=application,
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SessionFileError(
                f"the session file {path} cannot be read: {error}",
                hint=f"continue without it: session.attach({application!r}, builder)",
                path=str(path),
                application=application,
            ) from error

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
        hint=f"nothing of the file was executed; give the topology of your notebook: session.attach({application!r}, builder)",
        path=path,
        application=application,
    )


def _saved(content: Any, application: str) -> Saved:
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") != 1:
        raise ValueError("not a session file of version 1")
    if content["application"] != application:
        raise ValueError(f"it belongs to the application {str(content['application'])[:80]!r}")
    return Saved(application, tuple(_version(item) for item in content["versions"]))


def _version(item: Any) -> SavedVersion:
    texts = (item["text"], item["description"])
    numbers = (item["number"], item["at_ms"])
    lists = (item["missing"], item["unsaved"], item.get("migrated", []))
    sound = all(isinstance(text, str) for text in texts) and all(isinstance(n, int) for n in numbers)
    if not sound or not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists):
        raise ValueError("a version has a field of the wrong type")
    return SavedVersion(numbers[0], numbers[1], texts[0], texts[1], tuple(lists[0]), tuple(lists[1]), tuple(lists[2]))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _serde_name(value: Any) -> str | None:
    name = getattr(value, "name", None)
    try:
        return name if isinstance(name, str) and serdes.resolve(name) is value else None
    except Exception:  # no built-in serde of that name
        return None
