"""Where snapshots of stores lie: a directory here or anywhere fsspec reaches, behind five calls.

A path or ``file://`` needs nothing but Python; any other address needs fsspec and the package of that file system. Names are
relative, made by us, and never lead out of the directory. `publish` makes a small file appear whole or not at all: by renaming
it here, by the one put of an object store there.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from kstreams_repl.errors import ConfigError, InvalidNameError


class SnapshotDirectory(Protocol):
    """What snapshots need of a file system. Failures are OSErrors (or what the file system raises)."""

    def children(self, name: str) -> list[str]:
        """Names of the entries of a directory; none when it is not there."""

    def upload(self, source: Path, name: str) -> None: ...

    def download(self, name: str, target: Path) -> None: ...

    def publish(self, name: str, content: bytes) -> None: ...

    def read(self, name: str) -> bytes: ...

    def remove(self, name: str) -> None:
        """A file or a whole directory; does nothing when it is not there."""


def snapshot_directory(uri: str) -> SnapshotDirectory:
    """The directory of an address.

    Raises:
        ConfigError: it needs fsspec, or a file system for it, which is not installed.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return LocalDirectory(Path(unquote(parts.path) if parts.scheme else uri).expanduser().absolute())
    try:
        import fsspec

        return RemoteDirectory(*fsspec.core.url_to_fs(uri))
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"snapshots cannot be kept at {uri}: {error}",
            hint=f"pip install fsspec and the package it names for {parts.scheme}://, or give a local directory",
            key="repl.snapshot.dir",
        ) from error


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\x00" in name:
        raise InvalidNameError(f"{name!r} leads out of the snapshot directory", hint="names are relative")
    return path


class LocalDirectory:
    """A directory of this host, or one that is mounted."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def children(self, name: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / _checked(name)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def upload(self, source: Path, name: str) -> None:
        target = self._root / _checked(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        _sync(target)

    def download(self, name: str, target: Path) -> None:
        shutil.copyfile(self._root / _checked(name), target)

    def publish(self, name: str, content: bytes) -> None:
        target = self._root / _checked(name)
        target.parent.mkdir(parents=True, exist_ok=True)
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
        try:
            self._files.rm(self._at(name), recursive=True)
        except FileNotFoundError:
            return

    def _at(self, name: str) -> str:
        return f"{self._root}/{_checked(name)}"


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
