"""Directories for snapshots of stores: local or on any file system that fsspec supports, behind six calls.

A path or ``file://`` needs nothing but Python; any other address needs fsspec and the package of that file system. Names are
relative, created by this project, and never lead out of the directory. `publish` writes a small file atomically: by rename on a
local file system, by a single put on an object store. Every error of a file system is raised as `SnapshotError`, or as
FileNotFoundError where a file may legitimately be missing.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from kstreams_repl.config import shown_address as shown_address
from kstreams_repl.disk_errors import is_full
from kstreams_repl.errors import ConfigError, InvalidNameError, KStreamsError, SnapshotError

T = TypeVar("T")
_FTP_ABSENT = re.compile(r"550 (not a directory|no such)", re.IGNORECASE)
"""Messages by which fsspec's FTP file system sometimes reports a missing directory."""


class SnapshotDirectory(Protocol):
    """The file system operations that snapshots need.

    Raises:
        SnapshotError: the operation failed; from every call.
    """

    def children(self, name: str) -> list[str]:
        """Return the names of a directory's entries; an empty list when it does not exist."""

    def upload(self, source: Path, name: str) -> None: ...

    def download(self, name: str, target: Path) -> None: ...

    def publish(self, name: str, content: bytes) -> None: ...

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: there is none.
        """

    def remove(self, name: str) -> None:
        """Remove a file or a whole directory; do nothing when it does not exist."""


def snapshot_directory(uri: str) -> SnapshotDirectory:
    """Return the directory of an address; it connects at its first use.

    Raises:
        ConfigError: the scheme is unknown, or needs fsspec or a file system package that is not installed.
    """
    parts = urlsplit(uri)
    shown = shown_address(uri)
    if parts.scheme in ("", "file"):
        root = Path(unquote(parts.path) if parts.scheme else uri).expanduser().absolute()
        return _TellingDirectory(lambda: LocalDirectory(root), shown)
    try:
        import fsspec

        fsspec.get_filesystem_class(parts.scheme)
    except (ImportError, ValueError) as error:
        install = f"pip install fsspec and the package it names for {parts.scheme}://, or give a local directory"
        raise ConfigError(f"snapshots cannot be kept at {shown}: {error}", hint=install, key="repl.snapshot.dir") from error
    if parts.scheme == "memory":
        raise ConfigError(
            f"snapshots cannot be kept at {shown}: each process has a memory of its own, which goes with it",
            hint="give a directory, or an address that other hosts reach too",
            key="repl.snapshot.dir",
        )
    return _TellingDirectory(lambda: RemoteDirectory(*fsspec.core.url_to_fs(uri)), shown)


def check_directory(directory: SnapshotDirectory) -> None:
    """Write, read and remove a small file, as every snapshot does.

    Raises:
        SnapshotError: one of these operations failed.
    """
    name = f".check-{uuid.uuid4().hex[:8]}"
    directory.publish(name, b"ok")
    try:
        directory.read(name)
    except FileNotFoundError as error:
        raise SnapshotError(
            f"what is written to the directory of snapshots is not there afterwards: {error}", key="repl.snapshot.dir"
        ) from error
    directory.remove(name)


class _TellingDirectory:
    """Raises every error of a file system as one class with a hint. Connects at its first use, and again after a failure."""

    def __init__(self, connect: Callable[[], SnapshotDirectory], shown: str) -> None:
        self._connect = connect
        self._shown = shown
        self._files: SnapshotDirectory | None = None

    def children(self, name: str) -> list[str]:
        return self._call("listing", lambda files: files.children(name))

    def upload(self, source: Path, name: str) -> None:
        self._call("writing", lambda files: files.upload(source, name))

    def download(self, name: str, target: Path) -> None:
        self._call("reading", lambda files: files.download(name, target))

    def publish(self, name: str, content: bytes) -> None:
        self._call("writing", lambda files: files.publish(name, content))

    def read(self, name: str) -> bytes:
        return self._call("reading", lambda files: files.read(name), absent=True)

    def remove(self, name: str) -> None:
        self._call("removing", lambda files: files.remove(name))

    def _call(self, doing: str, call: Callable[[SnapshotDirectory], T], *, absent: bool = False) -> T:
        try:
            if self._files is None:
                self._files = self._connect()
            return call(self._files)
        except KStreamsError:
            raise
        except Exception as error:  # file system packages raise errors of their own
            if absent and isinstance(error, FileNotFoundError):
                raise
            self._files = None
            raise _told(self._shown, doing, error) from error


def _told(where: str, doing: str, error: Exception) -> SnapshotError:
    if isinstance(error, FileNotFoundError | NotADirectoryError | FileExistsError):
        hint = "make the directory (or bucket), or give another one: a part of the path is missing or is no directory"
    elif isinstance(error, PermissionError):
        hint = "let this user write there, or give the file system its credentials, as its fsspec package reads them"
    elif isinstance(error, OSError) and is_full(error):
        hint = "make room there, keep fewer snapshots (repl.snapshot.retention), or give another directory"
    else:
        hint = "look whether the address answers, and what its fsspec package wants for credentials"
    what = str(error) or type(error).__name__
    return SnapshotError(f"snapshots at {where}: {doing}: {what}", hint=hint, path=where, key="repl.snapshot.dir")


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\x00" in name:
        raise InvalidNameError(f"{name!r} leads out of the snapshot directory", hint="names are relative")
    return path


class LocalDirectory:
    """A directory on this host, or a mounted one."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def children(self, name: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / _checked(name)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def upload(self, source: Path, name: str) -> None:
        target = self._place(name)
        shutil.copyfile(source, target)
        _sync(target)

    def download(self, name: str, target: Path) -> None:
        shutil.copyfile(self._root / _checked(name), target)

    def publish(self, name: str, content: bytes) -> None:
        target = self._place(name)
        new = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        new.write_bytes(content)
        _sync(new)
        new.replace(target)

    def read(self, name: str) -> bytes:
        return (self._root / _checked(name)).read_bytes()

    def remove(self, name: str) -> None:
        path = self._root / _checked(name)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def _place(self, name: str) -> Path:
        """Return a file's path; directories created for it are readable by their user alone, because they hold state."""
        target = self._root / _checked(name)
        for folder in reversed([at for at in target.parents if at == self._root or self._root in at.parents]):
            if not folder.exists():
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return target


class RemoteDirectory:
    """A directory of an fsspec file system."""

    def __init__(self, files: Any, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/")

    def children(self, name: str) -> list[str]:
        at = self._at(name)
        self._files.invalidate_cache(at)
        try:
            return sorted(PurePosixPath(path).name for path in self._files.ls(at, detail=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except Exception as error:
            if _FTP_ABSENT.match(str(error)):
                return []
            raise

    def upload(self, source: Path, name: str) -> None:
        self._files.makedirs(str(PurePosixPath(self._at(name)).parent), exist_ok=True)
        self._files.put_file(str(source), self._at(name))

    def download(self, name: str, target: Path) -> None:
        self._files.get_file(self._at(name), str(target))

    def publish(self, name: str, content: bytes) -> None:
        self._files.makedirs(str(PurePosixPath(self._at(name)).parent), exist_ok=True)
        self._files.pipe_file(self._at(name), content)

    def read(self, name: str) -> bytes:
        return bytes(self._files.cat_file(self._at(name)))

    def remove(self, name: str) -> None:
        parent, _, last = name.rpartition("/")
        if last not in self.children(parent):  # rm reports a missing name differently from one file system to the next
            return
        at = self._at(name)
        if self._files.isdir(at):
            self._files.rm(at, recursive=True)
        else:
            self._files.rm_file(at)

    def _at(self, name: str) -> str:
        return f"{self._root}/{_checked(name)}"


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
