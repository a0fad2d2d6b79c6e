"""One loop per slot and generation on a host, also between epochs, when a worker's loop continues without an epoch
(`epoch_handover`).

Actors: the loop that holds the lock, attended by an epoch or not; a worker whose epoch was given the slot, which *wants* the
lock. A loop without an attending epoch ends when it sees that. The lock is a flock on a file of the control directory, so that
the end of a process, by any cause, releases it; the file names the holder by its owner token.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from kstreams_repl.host.instance.state.owner_token import end_process, owner_token
from kstreams_repl.system.files import take_lock

PATIENCE_SECONDS = 2.0
"""How long to wait for a holder that does not respond (SIGSTOP). After that it is treated as a zombie, and the take-over fences
it.
"""
_TRY_SECONDS = 0.005


class SlotLock(Protocol):
    """Makes a runner the only one of its slot and generation."""

    def take(self, *, end_holder: bool) -> bool:
        """Wait until no other loop of the slot runs; return False when the holder does not leave in time.

        Args:
            end_holder: kill a holder that does not leave (at least once: the broker would accept its late records).
        """

    def release(self) -> None:
        """Release the lock; does nothing when it is not held."""

    def wanted(self, now: float) -> bool:
        """Return whether another worker waits for the lock, as of some milliseconds ago."""


class LoopLock:
    """`SlotLock` by files of the control directory."""

    def __init__(self, directory: Path, generation: int, slot: int) -> None:
        self._path = directory / f"loop-{generation}-{slot}"
        self._wish = directory / f"loop-{generation}-{slot}.wanted"
        self._token = owner_token(generation, slot)
        self._file: int | None = None
        self._next_check = 0.0

    def take(self, *, end_holder: bool) -> bool:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with suppress(OSError):  # no room for a file, or the driver has removed the directory: the take-over still fences
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
        file = take_lock(self._path)
        if file is None:
            return False
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, self._token.encode(), 0)
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
        if now < self._next_check:
            return False
        self._next_check = now + _TRY_SECONDS
        return self._wish.exists()
