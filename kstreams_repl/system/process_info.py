"""What the system says about processes: from ``/proc``, which takes microseconds, or from psutil where there is none (macOS)."""

from __future__ import annotations

import functools
from pathlib import Path

PROC = Path("/proc")

EXECUTOR_VARIABLE = "KSTREAMS_EXECUTOR"
"""The environment variable with the process id of the JVM to which a Python daemon and its workers belong."""


def start_time(pid: int) -> str:
    """Return when a process was started, as text that no later process of this boot has with this id; "" when there is none."""
    if not _is_proc(PROC):
        import psutil

        try:
            return repr(psutil.Process(pid).create_time())
        except psutil.Error:
            return ""
    fields = _stat(pid)
    return fields[19] if fields else ""


def running_since(pid: int) -> str:
    """Return when a process was started, as text that no later process with the same id has, in a later boot neither; "" when there is
    no such process, or it has ended and its parent does not know yet (a zombie).
    """
    if not _is_proc(PROC):
        import psutil

        try:
            process = psutil.Process(pid)
            return "" if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
        except psutil.Error:
            return ""
    fields = _stat(pid)
    return f"{fields[19]}@{boot_id().decode()}" if fields and fields[0] not in "ZX" else ""


def parent(pid: int) -> int | None:
    """Return the process that started a process; None when there is no such process."""
    if not _is_proc(PROC):
        import psutil

        try:
            return int(psutil.Process(pid).ppid())
        except psutil.Error:
            return None
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def boot_id() -> bytes:
    """Return an id of the current boot of the machine. Without ``/proc`` it is the time of the boot, so that a clock that is set looks
    like a boot: what depends on it is checked or restored once more than needed.
    """
    try:
        return (PROC / "sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        import psutil

        return b"%d" % round(psutil.boot_time())


@functools.cache
def _is_proc(path: Path) -> bool:
    return (path / "self").exists()


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/<pid>/stat`` after the name of the program, which may contain anything."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
