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
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from kstreams_repl.engine.config import shown_address as shown_address
from kstreams_repl.system.disk_errors import is_full
from kstreams_repl.system.errors import ConfigError, InvalidNameError, KStreamsError, SnapshotError
from kstreams_repl.system.files import replacing

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

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
    address = shown_address(uri)
    if parts.scheme in ("", "file"):
        root = Path(unquote(parts.path) if parts.scheme else uri).expanduser().absolute()
        return _TypedErrorsDirectory(lambda: LocalDirectory(root), address)
    try:
        import fsspec

        fsspec.get_filesystem_class(parts.scheme)
    except (ImportError, ValueError) as error:
        install = f"pip install fsspec and the package that it requires for {parts.scheme}://, or set a local directory"
        raise ConfigError(f"cannot store snapshots at {address}: {error}", hint=install, key="repl.snapshot.dir") from error
    if parts.scheme == "memory":
        raise ConfigError(
            f"cannot store snapshots at {address}: this file system is private to each process",
            hint="set a directory, or an address that other hosts can reach",
            key="repl.snapshot.dir",
        )
    return _TypedErrorsDirectory(lambda: RemoteDirectory(*fsspec.core.url_to_fs(uri)), address)


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
            f"a file written to the snapshot directory cannot be read back: {error}", key="repl.snapshot.dir"
        ) from error
    directory.remove(name)


class _TypedErrorsDirectory:
    """Raises every error of a file system as one class with a hint. Connects at its first use, and again after a failure."""

    def __init__(self, connect: Callable[[], SnapshotDirectory], address: str) -> None:
        self._connect = connect
        self._address = address
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
            raise _typed(self._address, doing, error) from error


def _typed(address: str, doing: str, error: Exception) -> SnapshotError:
    if isinstance(error, FileNotFoundError | NotADirectoryError | FileExistsError):
        hint = "create the directory (or bucket), or set another one: a part of the path is missing or not a directory"
    elif isinstance(error, PermissionError):
        hint = "allow this user to write there, or configure the credentials that the fsspec package of this file system reads"
    elif isinstance(error, OSError) and is_full(error):
        hint = "free space there, keep fewer snapshots (repl.snapshot.retention), or set another directory"
    else:
        hint = "check that the address is reachable, and which credentials its fsspec package requires"
    what = str(error) or type(error).__name__
    return SnapshotError(f"{doing} snapshots at {address} failed: {what}", hint=hint, path=address, key="repl.snapshot.dir")


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\x00" in name:
        raise InvalidNameError(f"{name!r} is outside the snapshot directory", hint="use a relative name without '..'")
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
        target = self._target(name)
        shutil.copyfile(source, target)
        _sync(target)

    def download(self, name: str, target: Path) -> None:
        shutil.copyfile(self._root / _checked(name), target)

    def publish(self, name: str, content: bytes) -> None:
        target = self._target(name)
        with replacing(target, sync=True) as file:
            file.write(content)

    def read(self, name: str) -> bytes:
        return (self._root / _checked(name)).read_bytes()

    def remove(self, name: str) -> None:
        path = self._root / _checked(name)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def _target(self, name: str) -> Path:
        """Return a file's path; directories created for it are readable by their user alone, because they hold state."""
        target = self._root / _checked(name)
        for folder in reversed([parent for parent in target.parents if parent == self._root or self._root in parent.parents]):
            if not folder.exists():
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return target


class RemoteDirectory:
    """A directory of an fsspec file system."""

    def __init__(self, files: AbstractFileSystem, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/")

    def children(self, name: str) -> list[str]:
        directory = self._path(name)
        self._files.invalidate_cache(directory)
        try:
            return sorted(PurePosixPath(path).name for path in self._files.ls(directory, detail=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except Exception as error:
            if _FTP_ABSENT.match(str(error)):
                return []
            raise

    def upload(self, source: Path, name: str) -> None:
        self._files.makedirs(str(PurePosixPath(self._path(name)).parent), exist_ok=True)
        self._files.put_file(str(source), self._path(name))

    def download(self, name: str, target: Path) -> None:
        self._files.get_file(self._path(name), str(target))

    def publish(self, name: str, content: bytes) -> None:
        self._files.makedirs(str(PurePosixPath(self._path(name)).parent), exist_ok=True)
        self._files.pipe_file(self._path(name), content)

    def read(self, name: str) -> bytes:
        return bytes(self._files.cat_file(self._path(name)))

    def remove(self, name: str) -> None:
        parent, _, last = name.rpartition("/")
        if last not in self.children(parent):  # rm reports a missing name differently from one file system to the next
            return
        path = self._path(name)
        if self._files.isdir(path):
            self._files.rm(path, recursive=True)
        else:
            self._files.rm_file(path)

    def _path(self, name: str) -> str:
        return f"{self._root}/{_checked(name)}"


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
