"""Files that are replaced atomically, and locks of files (flock).

All of the package use these, except what runs without it: `workshop/bootstrap.py`, before anything is installed, and the supervisor of the
embedded broker.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_TRY_SECONDS = 0.005


@contextmanager
def replacing(path: Path, *, mode: int = 0o666, sync: bool = False) -> Iterator[BinaryIO]:
    """Yield a new file that takes the place of `path` when the block ends; a reader sees the old or the new content.

    Args:
        mode: permissions of the file, less the process's umask.
        sync: the new content is on disk before it takes the place.

    Raises:
        OSError: it could not be written. As after any error in the block, the old content stays.
    """
    new = path.with_name(f".{path.name}.{threading.get_native_id()}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replace the file atomically, readable by its owner only.

    Raises:
        OSError: it could not be written; the old content stays.
    """
    with replacing(path, mode=0o600) as file:
        file.write(text.encode())


def take_lock(path: Path, *, shared: bool = False, wait: bool = False) -> int | None:
    """Lock a file, made if need be, and return its descriptor; closing it, or the end of the process, releases the lock.

    Returns:
        None: another process has it, and `wait` is False.

    Raises:
        OSError: the file cannot be made.
    """
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(file)
        return None
    except BaseException:
        os.close(file)
        raise
    return file


def is_locked(path: Path) -> bool:
    """Return whether a process has the exclusive lock. It is shared for a moment, in which `take_lock` of another process fails."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@contextmanager
def locked(path: Path, *, seconds: float | None = None, shared: bool = False, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file for this block.

    Args:
        shared, wait: as `take_lock`.
        seconds: enter the block without the lock after so long, because its holder may be suspended, and at once when there is no room
            for the file. None: wait forever.

    Raises:
        BlockingIOError: another process has the lock, and `wait` is False.
        OSError: the file cannot be made; never with `seconds`.
    """
    file: int | None = None
    try:
        if seconds is None:
            file = take_lock(path, shared=shared, wait=wait)
            if file is None:
                raise BlockingIOError(f"another process has locked {path}")
        else:
            deadline = time.monotonic() + seconds
            with suppress(OSError):
                while (file := take_lock(path)) is None and time.monotonic() < deadline:
                    time.sleep(_TRY_SECONDS)
        yield
    finally:
        if file is not None:
            os.close(file)
