"""What LMDB and the file system say when they fail, as the project's errors."""

from __future__ import annotations

import os

import lmdb

from kstreams_repl.disk import free_bytes, is_full, room
from kstreams_repl.errors import StateStoreError, TaskCorruptedError

_FULL_BYTES = 1 << 20


def storage_error(error: Exception, path: str, doing: str) -> StateStoreError:
    """A typed error for a failed read or write of an environment; the environment must be opened again before it is used."""
    used = _bytes_used(path)
    fields = {"path": path, "bytes": used}
    if isinstance(error, lmdb.MapFullError):
        return StateStoreError(
            f"{doing} {path}: the map of this environment is full ({used:,} bytes on disk)",
            hint="what was committed before is intact. The stores of a task get 64 GiB of address space, or less where the process is "
            "limited (ulimit -v): lift the limit and resume, or reset the application and spread its state over more partitions",
            **fields,
        )
    if isinstance(error, lmdb.ReadersFullError):
        return StateStoreError(
            f"{doing} {path}: no reader is free; each iterator that was kept over a commit has one",
            hint="read an iterator to its end within the call that opened it, copy what is needed with list(), and keep none",
            **fields,
        )
    if isinstance(error, lmdb.DiskError) or is_full(error) or _is_cut_short(error, path):
        return StateStoreError(
            f"{doing} {path}: the disk is full ({room(path)}, {used:,} bytes in this environment)",
            hint="make room and resume the application: it goes on from its last commit",
            free_bytes=free_bytes(path),
            **fields,
        )
    if isinstance(error, lmdb.CorruptedError | lmdb.InvalidError | lmdb.PageNotFoundError | lmdb.VersionMismatchError | lmdb.PanicError):
        return corrupted(path, f"{doing} failed: {error}")
    return StateStoreError(
        f"{doing} {path} failed: {error}", hint="check the disk; the task restores from its last commit and goes on", **fields
    )


def corrupted(path: str, reason: str) -> TaskCorruptedError:
    return TaskCorruptedError(
        f"the local state in {path} cannot be trusted: {reason}",
        hint="it is rebuilt from its changelog into a fresh directory",
        path=path,
        reason=reason,
    )


def _is_cut_short(error: Exception, path: str) -> bool:
    """LMDB calls a write of which only a part fitted an input/output error."""
    return "Input/output error" in str(error) and free_bytes(path) < _FULL_BYTES


def _bytes_used(path: str) -> int:
    try:
        return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
    except OSError:
        return 0
