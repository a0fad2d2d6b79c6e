"""One loop per slot and generation on a host, also between epochs, when a worker's loop goes on without an epoch (`bridge`).

Actors: the loop that holds the lock, attended by an epoch or not; a worker whose epoch was given the slot, which *wants* the lock. A loop
that no epoch attends ends when it sees that. A flock is held on a file of the control directory, so that the end of a process, whatever
it dies of, lets go of it; the file names the holder by its owner token.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from kstreams_repl.instance.local_state import end_process, owner_token

PATIENCE_SECONDS = 2.0
"""How long a holder that does not answer (SIGSTOP) is waited for. Then it is a zombie like any other, and the take-over fences it."""
_TRY_SECONDS = 0.005


class SlotLock(Protocol):
    """How a runner makes sure that it is the only one of its slot and generation."""

    def take(self, *, end_holder: bool) -> bool:
        """Wait until no other loop of the slot runs; False when the holder does not leave in time.

        Args:
            end_holder: kill a holder that does not leave (at least once: the broker would take what it still sends).
        """

    def release(self) -> None:
        """Let go of it; harmless when it is not held."""

    def wanted(self, now: float) -> bool:
        """Whether somebody waits for it, as of some milliseconds ago."""


class LoopLock:
    """`SlotLock` by files of the control directory."""

    def __init__(self, directory: Path, generation: int, slot: int) -> None:
        self._path = directory / f"loop-{generation}-{slot}"
        self._wish = directory / f"loop-{generation}-{slot}.wanted"
        self._token = owner_token(generation, slot)
        self._file: int | None = None
        self._next_look = 0.0

    def take(self, *, end_holder: bool) -> bool:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with suppress(OSError):  # no room for a file, or the driver has taken the directory away: the take-over fences all the same
            while not self._try():
                self._wish.touch(mode=0o600)
                if time.monotonic() >= deadline:
                    if not end_holder or not end_process(self._path.read_text(encoding="ascii")):
                        return False
                    deadline, end_holder = deadline + PATIENCE_SECONDS, False
                time.sleep(_TRY_SECONDS)
            return True
        return False

    def _try(self) -> bool:
        file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, self._token.encode(), 0)
        except BlockingIOError:
            os.close(file)
            return False
        except OSError:
            os.close(file)
            raise
        self._file = file
        with suppress(OSError):
            self._wish.unlink()
        return True

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def wanted(self, now: float) -> bool:
        if now < self._next_look:
            return False
        self._next_look = now + _TRY_SECONDS
        return self._wish.exists()
