"""The file system of a table: local directories, what pyarrow reads by itself (S3, GCS, Azure), and every file system of fsspec."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from kstreams_repl.engine.config import shown_address
from kstreams_repl.system.errors import ConfigError

STAGING = "_kstreams"
"""Directory inside a table for what is not part of it yet; readers of tables skip names that begin with "_"."""


class TableDirectory:
    """The files below a table's path; names are relative to it.

    Args:
        path: a local path or a URL.
        options: for S3: named as AWS's environment variables, which are the defaults; else options of fsspec's file system.

    Raises:
        ConfigError: no file system is known for the URL.
    """

    def __init__(self, path: str, options: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(path)
        self.is_local = len(parts.scheme) < 2 or parts.scheme == "file"
        if self.is_local:
            self.files: fs.FileSystem = fs.LocalFileSystem()
            self.root = str(Path(unquote(parts.path) if parts.scheme == "file" else path).expanduser().absolute())
        else:
            self.files, self.root = _remote(path, parts.scheme, dict(options or {}))
        self.url = f"file://{self.root}" if self.is_local else path.partition("?")[0].rstrip("/")

    def at(self, name: str) -> str:
        """Return a name's path in the file system."""
        return f"{self.root}/{name}"

    def make(self, name: str) -> None:
        """Create a directory with its parents; object stores have none."""
        if self.is_local:
            os.makedirs(self.at(name), exist_ok=True)

    def write(self, name: str, content: object) -> None:
        """Write a file at once."""
        with self.files.open_output_stream(self.at(name)) as stream:
            stream.write(content)

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        with self.files.open_input_stream(self.at(name)) as stream:
            return bytes(stream.read())

    def create(self, name: str, content: bytes) -> bool:
        """Write a file with its whole content, unless it exists; return whether it was written.

        Only a local file system decides between two writers at the same moment: by a link.
        """
        if not self.is_local:
            if self.exists(name):
                return False
            self.write(name, content)
            return True
        temporary = f"{self.at(name)}.{os.getpid()}.tmp"
        Path(temporary).write_bytes(content)
        try:
            os.link(temporary, self.at(name))
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        return True

    def exists(self, name: str) -> bool:
        return bool(self.files.get_file_info(self.at(name)).type == fs.FileType.File)

    def size(self, name: str) -> int:
        return int(self.files.get_file_info(self.at(name)).size or 0)

    def names(self, directory: str, *, recursive: bool = False) -> list[str]:
        """Return the files in a directory, relative to the table's path; none if it does not exist."""
        selector = fs.FileSelector(self.at(directory) if directory else self.root, recursive=recursive, allow_not_found=True)
        found = [info for info in self.files.get_file_info(selector) if info.type == fs.FileType.File]
        return sorted(info.path.removeprefix(self.root).lstrip("/") for info in found)

    def move(self, source: str, target: str) -> None:
        self.make(target.rpartition("/")[0])
        self.files.move(self.at(source), self.at(target))

    def remove(self, name: str) -> None:
        """Remove a file; do nothing if there is none."""
        with suppress(FileNotFoundError):
            self.files.delete_file(self.at(name))


_S3 = {
    "AWS_ACCESS_KEY_ID": ("access_key", "s3.access-key-id"),
    "AWS_SECRET_ACCESS_KEY": ("secret_key", "s3.secret-access-key"),
    "AWS_SESSION_TOKEN": ("session_token", "s3.session-token"),
    "AWS_REGION": ("region", "s3.region"),
    "AWS_ENDPOINT_URL": ("endpoint_override", "s3.endpoint"),
}
"""Options of S3: deltalake's names, which are those of AWS's environment variables; then pyarrow's and pyiceberg's."""


def iceberg_properties(path: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return a table's storage options as properties of pyiceberg, which does not read the endpoint of S3 from the environment."""
    if not path.startswith(("s3://", "s3a://")):
        return dict(options)
    given = {**{name: os.environ[name] for name in _S3 if name in os.environ}, **options}
    return {_S3[name.upper()][1] if name.upper() in _S3 else name: text for name, text in given.items()}


def _remote(path: str, scheme: str, options: dict[str, str]) -> tuple[fs.FileSystem, str]:
    if scheme in ("s3", "s3a") and any(name.upper().startswith("AWS_") for name in options):
        named = {_S3[name.upper()][0]: text for name, text in options.items() if name.upper() in _S3}
        parts = urlsplit(path)
        return fs.S3FileSystem(**named), f"{parts.netloc}{parts.path}".rstrip("/")
    if not options:
        with suppress(pa.ArrowException):
            found, root = fs.FileSystem.from_uri(path)
            return found, root.rstrip("/")
    try:
        import fsspec

        files, root = fsspec.core.url_to_fs(path, **options)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"cannot use the table path {shown_address(path)}: {error}",
            hint=f"pip install the fsspec package for {scheme}://, or use a local path",
            path=path,
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(files)), root.rstrip("/")
