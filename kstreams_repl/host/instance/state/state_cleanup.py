"""Cleanup: remove unused state directories after `state.cleanup.delay.ms`.

A task's directory is removed when the task is not in the plan (on the driver's host, where all workers share one folder, of no
instance; on a cluster's executor, not of this one), it has not been written for the delay, and no process has it open. Two locks
make that safe: LMDB's own on ``lock.mdb``, which every process with the environment open holds, and one per folder that is held
shared while an environment is being opened (`opening`) and exclusively while directories are checked and moved away. The rows are
deleted with the directory; a task that comes back reads its changelogs. Leftovers of interrupted removals and downloads are
removed, too. Source: Kafka Streams' StateDirectory.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.state.state_directory import tasks_folder
from kstreams_repl.system.files import locked

DRIVER = "driver"
_LOG = logging.getLogger("kstreams_repl.host.instance")
_LOCK = ".cleanup.lock"
_TASK = re.compile(r"\d+_\d+")
_ASIDE = re.compile(r"\.\d+_\d+\.(incoming-)?[0-9a-f]{8}")
"""A directory moved away for removal, or an incoming snapshot."""


@contextmanager
def opening(folder: Path) -> Iterator[None]:
    """Block the cleanup while an environment of the folder is being opened."""
    with locked(_lock_of(folder), shared=True):
        yield


def clean_application(plan: ApplicationPlan, slot: int, executor: str) -> list[str]:
    """Remove unused state in the folder of this instance's tasks."""
    slots = range(plan.instances) if executor == DRIVER else (slot,)
    groups = [plan.assignment[number] for number in slots] + [plan.standbys[number] for number in slots if number < len(plan.standbys)]
    kept = {str(spec.task_id) for group in groups for spec in group}
    folder = tasks_folder(Path(plan.state_directory), plan.application_id, executor)
    return clean(folder, kept, plan.config["state.cleanup.delay.ms"] / 1000)


def clean(folder: Path, kept: Collection[str], delay_seconds: float, now: float | None = None) -> list[str]:
    """Remove unused task directories; return the names of the tasks whose state was removed.

    Does nothing, without waiting, while an environment is being opened.

    Args:
        folder: of task directories.
        kept: names of tasks to leave alone: their owners may be about to open them.
        now: seconds since 1970; None: the clock.
    """
    if not folder.is_dir():
        return []
    now = time.time() if now is None else now
    aside: list[tuple[str, Path]] = []
    with suppress(BlockingIOError), locked(_lock_of(folder), wait=False):
        for path in sorted(folder.iterdir()):
            if _ASIDE.fullmatch(path.name) and now - _written_at(path) >= delay_seconds:
                aside.append(("", path))
            elif not _TASK.fullmatch(path.name) or path.name in kept or now - _written_at(path) < delay_seconds:
                continue
            elif not is_in_use(path):
                aside.append((path.name, _moved_aside(path)))
    for name, path in aside:
        shutil.rmtree(path, ignore_errors=True)
        if name:
            _LOG.info("removed the unused state in %s: not written for %.0f s", folder, delay_seconds, extra={"task": name})
    return [name for name, _ in aside if name]


def discard(path: Path) -> None:
    """Remove a directory, or the file or link in its place, if it exists; it is moved away first, so that its path is free at once."""
    with suppress(FileNotFoundError):
        moved = _moved_aside(path)
        if moved.is_symlink() or not moved.is_dir():
            moved.unlink()
        shutil.rmtree(moved, ignore_errors=True)


def discard_unused(path: Path) -> bool:
    """Remove an environment unless a process has it open or is opening one on this host; return whether it is gone."""
    try:
        with locked(_lock_of(path.parent), wait=False):
            if is_in_use(path):
                return False
            moved = _moved_aside(path)
    except BlockingIOError:
        return False
    shutil.rmtree(moved, ignore_errors=True)
    return True


def _moved_aside(path: Path) -> Path:
    """Rename a directory so that the cleanup recognises it as one to remove; return its new path."""
    return path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}"))


def _lock_of(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / _LOCK


def is_in_use(path: Path) -> bool:
    """Return whether a process has the environment open. Environments open in this process are known without opening the lock
    file: closing it here would drop the lock that LMDB holds on it.
    """
    from kstreams_repl.engine.stores.engine.lmdb import is_open_here

    if is_open_here(path):
        return True
    try:
        file = os.open(path / "lock.mdb", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _written_at(path: Path) -> float:
    try:
        return max(part.stat().st_mtime for part in (path, path / "data.mdb") if part.exists())
    except (OSError, ValueError):
        return 0.0
