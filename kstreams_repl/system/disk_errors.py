"""Detection and messages of full disks: every such error contains the path, the free and the required space."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MESSAGES = ("No space left on device", "Disk quota exceeded", "os error 28")


def is_full(error: BaseException | str | None) -> bool:
    """Return whether an error, one of its causes, or a program's output reports a full disk."""
    if isinstance(error, str):
        return any(text in error for text in _MESSAGES)
    while error is not None:
        if getattr(error, "errno", None) in _FULL or any(text in str(error) for text in _MESSAGES):
            return True
        error = error.__cause__ or error.__context__
    return False


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Return the free space for this user on the disk of a path, which need not exist yet; 0 if it cannot be determined."""
    where = Path(path)
    while True:
        try:
            return shutil.disk_usage(where).free
        except FileNotFoundError:
            if where == where.parent:
                return 0
            where = where.parent
        except OSError:
            return 0


def room(path: str | os.PathLike[str], needed: int | None = None) -> str:
    """Return ``3 MB free, 268 MB needed``."""
    free = f"{free_bytes(path) / 1e6:,.1f} MB free"
    return free if needed is None else f"{free}, {needed / 1e6:,.0f} MB needed"
