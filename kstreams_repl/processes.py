"""Processes that outlive the one which starts them: how they are started, and how they are known again.

A process id alone names nobody: numbers come round. A `ProcessMark` holds the id *and* the start time, so whoever reads one from a file
never takes another process for the one that wrote it, and never ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_CLOCK_SECONDS = 2.0
"""How far two readings of one process's start time may differ: the boot time it is counted from is adjusted."""
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """One process of this machine, by its id and when it was started (seconds since 1970)."""

    pid: int
    born: float

    @classmethod
    def own(cls) -> ProcessMark:
        """This process."""
        return cls(os.getpid(), psutil.Process().create_time())

    @property
    def is_alive(self) -> bool:
        """Whether that very process still runs; one that has ended and was not waited for does not."""
        try:
            process = psutil.Process(self.pid)
            return bool(abs(process.create_time() - self.born) < _CLOCK_SECONDS and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    def ask_to_end(self) -> None:
        """SIGTERM, if it still is that process."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time."""
        deadline = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True


def open_log(path: Path) -> int:
    """A new, empty log file that its user alone can read; a file descriptor that no child inherits by itself."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)


def start_apart(module: str, arguments: Sequence[str], log: int, *, told: bytes | None = None) -> subprocess.Popen[bytes]:
    """Run a module of ours in a process session of its own: no terminal's Ctrl-C and no end of ours reaches it.

    Args:
        log: where its output goes; nothing else that is open here is open there.
        told: what it reads from its standard input, which ends there. Secrets go this way: neither ``ps`` nor a file shows them.
    """
    safe = ["-P"] if sys.flags.safe_path else []
    process = subprocess.Popen(
        [sys.executable, *safe, "-m", module, *arguments],
        stdin=subprocess.DEVNULL if told is None else subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
        close_fds=True,
    )
    if told is not None:
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # one that has ended already says so by its status
            process.stdin.write(told)
    return process


def let_go(process: subprocess.Popen[bytes]) -> None:
    """It stays when this process ends; until then its end is waited for, so that no zombie is left."""
    threading.Thread(target=process.wait, name=f"await-{process.pid}", daemon=True).start()
