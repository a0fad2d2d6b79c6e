"""Small files that are replaced atomically, the reserve of disk blocks that lets the last of them be written on a full disk, and locks."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.system.disk_errors import is_full

RESERVE_BYTES = 16 * 1024
_TRY_SECONDS = 0.005


def write_whole(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a small file atomically; a reader sees the old or the new content.

    Raises:
        OSError: it could not be written; the old content stays.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(json.dumps(content), encoding="utf-8")
        failpoint("F10")
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise


def write_if_room(path: Path, content: Mapping[str, Any]) -> bool:
    """Call `write_whole`; return False, and keep the old content, when the disk is full."""
    try:
        write_whole(path, content)
    except OSError as error:
        if not is_full(error):
            raise
        return False
    return True


def keep_reserve(path: Path) -> None:
    """Reserve the disk blocks that `write_last_word` to this file will need when the disk is full."""
    reserve = _reserve_of(path)
    if not reserve.exists():
        with suppress(OSError):
            reserve.write_bytes(b" " * RESERVE_BYTES)


def write_last_word(path: Path, content: Mapping[str, Any]) -> None:
    """Call `write_whole`; on a full disk the reserve becomes the file.

    Raises:
        OSError: there is no reserve either.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        if not is_full(error):
            raise
        text = json.dumps(content).encode()
        reserve = _reserve_of(path)
        if len(text) > RESERVE_BYTES or not reserve.exists():
            raise
        with reserve.open("r+b") as file:
            file.write(text)
            file.truncate()
        reserve.replace(path)


def read_whole(path: Path) -> dict[str, Any] | None:
    """Return the content of a file written by `write_whole`; None when it is missing or invalid."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


@contextmanager
def locked(path: Path, *, seconds: float | None = None) -> Iterator[None]:
    """Hold the lock of a file (flock) for this block; the end of the process releases it.

    Args:
        seconds: enter the block without the lock after so long, because its holder may be suspended, and at once when there is no room
            for the file. None: wait forever.

    Raises:
        OSError: the file cannot be made; never with `seconds`.
    """
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        if seconds is None:
            raise
        yield
        return
    try:
        if seconds is None:
            fcntl.flock(file, fcntl.LOCK_EX)
        else:
            _try_to_lock(file, time.monotonic() + seconds)
        yield
    finally:
        os.close(file)


def _try_to_lock(file: int, deadline: float) -> None:
    while time.monotonic() < deadline:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            time.sleep(_TRY_SECONDS)


def _reserve_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.reserve")
