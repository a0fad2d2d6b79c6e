"""Translate failures of LMDB and the file system into the project's errors."""

from __future__ import annotations

import os

import lmdb

from kstreams_repl.system.disk_errors import free_bytes, is_full, room
from kstreams_repl.system.errors import StateStoreError, TaskCorruptedError

_FULL_BYTES = 1 << 20
RawError = lmdb.Error
"""What a read transaction raises, also after its environment was closed by another thread."""
_DAMAGED = (
    lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.VersionMismatchError, lmdb.PanicError,
    lmdb.BadTxnError,  # after a page that could not be read
    lmdb.MapResizedError,  # the file names a size beyond the map: no other process grows it
)  # fmt: skip


def storage_error(error: Exception, path: str, doing: str) -> StateStoreError:
    """Return a typed error for a failed read or write of an environment, which must be reopened before further use."""
    used = _bytes_used(path)
    fields = {"path": path, "bytes": used}
    if isinstance(error, lmdb.MapFullError):
        return StateStoreError(
            f"{doing} {path}: the LMDB map of this environment is full ({used:,} bytes on disk)",
            hint="earlier commits are intact. The stores of a task get 64 GiB of address space, or less where the process is "
            "limited (ulimit -v): raise the limit and resume, or reset the application and spread its state over more partitions",
            **fields,
        )
    if isinstance(error, lmdb.ReadersFullError):
        return StateStoreError(
            f"{doing} {path}: no LMDB reader slot is free; each iterator kept open across a commit occupies one",
            hint="read an iterator to its end within the call that opened it, or copy its rows with list()",
            **fields,
        )
    if isinstance(error, lmdb.DiskError) or is_full(error) or _is_partial_write(error, path):
        return StateStoreError(
            f"{doing} {path}: the disk is full ({room(path)}, {used:,} bytes in this environment)",
            hint="make room and resume the application: it continues from its last commit",
            free_bytes=free_bytes(path),
            **fields,
        )
    if isinstance(error, FileExistsError):  # a file, or a link to nothing, in the place of the directory
        return corrupted(path, f"{doing} failed: it is not a directory")
    if isinstance(error, _DAMAGED):
        return corrupted(path, f"{doing} failed: {error}", rebuilt=doing.startswith("opening"))
    return StateStoreError(
        f"{doing} {path} failed: {error}", hint="check the disk, then resume the application: it continues from its last commit", **fields
    )


def corrupted(path: str, reason: str, *, rebuilt: bool = True) -> TaskCorruptedError:
    """Return the error for damaged local state.

    Args:
        rebuilt: it is found when the state is opened, and then rebuilt without further ado.
    """
    return TaskCorruptedError(
        f"the local state in {path} is corrupted: {reason}",
        hint="no action needed: the state is rebuilt from its changelog into a fresh directory"
        if rebuilt
        else "resume the application: the state is rebuilt from its changelog, and nothing committed is lost",
        path=path,
        reason=reason,
    )


def _is_partial_write(error: Exception, path: str) -> bool:
    """Return whether the disk is full: LMDB reports a partial write as an input/output error."""
    return "Input/output error" in str(error) and free_bytes(path) < _FULL_BYTES


def _bytes_used(path: str) -> int:
    try:
        return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
    except OSError:
        return 0
