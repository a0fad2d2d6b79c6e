"""Processes that outlive their parent: how to start and to identify them.

A process id alone is not unique over time. A `ProcessMark` contains the id *and* the start, so that a reader of a stored mark never
mistakes another process for the one that wrote it, and never ends it.
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

from kstreams_repl.system.process_info import running_since

_POLL_SECONDS = 0.05
_BYTES_PER_LINE = 400


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process of this machine.

    Attributes:
        born: its start (`process_info.running_since`). A mark whose start has another form, as older versions wrote it, fits no process.
    """

    pid: int
    born: str

    @classmethod
    def own(cls) -> ProcessMark:
        """Return the mark of this process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """Return the mark of a running process; if there is none, a mark that fits no process."""
        return cls(pid, running_since(pid))

    @property
    def is_alive(self) -> bool:
        """Return whether the process is still running; a zombie is not."""
        return running_since(self.pid) == self.born != ""

    def ask_to_end(self) -> None:
        """Send SIGTERM if the process is still the same."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Return whether the process has ended within ``seconds``."""
        deadline = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True


class ProcessRecord:
    """A stored record of a process, which has the fields of its mark."""

    __slots__ = ()
    pid: int
    born: str

    @property
    def process(self) -> ProcessMark:
        return ProcessMark(self.pid, self.born)

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs: the same process, not a later one with the same id."""
        return self.process.is_alive


def open_log(path: Path) -> int:
    """Create an empty log file that only its user can read; return a file descriptor that children do not inherit by default."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)


def start_apart(module: str, arguments: Sequence[str], log: int, *, stdin: bytes | None = None) -> subprocess.Popen[bytes]:
    """Run a module of this package in its own process session: neither Ctrl-C in a terminal nor the end of this process reaches it.

    Args:
        log: file descriptor for its output; the process inherits no other open file.
        stdin: its standard input, followed by end-of-file. Secrets are passed this way: neither ``ps`` nor a file shows them.
    """
    safe = ["-P"] if sys.flags.safe_path else []
    process = subprocess.Popen(
        [sys.executable, *safe, "-m", module, *arguments],
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
        close_fds=True,
    )
    if stdin is not None:
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # a process that has ended reports it by its exit status
            process.stdin.write(stdin)
    return process


def let_go(process: subprocess.Popen[bytes]) -> None:
    """Let the process run after the end of this one; until then wait for it in the background, so that it does not become a zombie."""
    threading.Thread(target=process.wait, name=f"await-{process.pid}", daemon=True).start()


def last_lines(path: Path, n: int) -> list[str]:
    """Return the last lines of a file, from its last few kilobytes; none when there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - n * _BYTES_PER_LINE)
            file.seek(start)
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    written = [line for line in (lines[1:] if start else lines) if line.strip()]
    return written[-n:] if n else []
