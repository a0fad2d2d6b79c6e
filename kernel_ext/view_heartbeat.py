"""Whether a view is open: front ends send a heartbeat every few seconds, and a message when they close."""

from __future__ import annotations

import time
from collections.abc import Callable

SILENT_SECONDS = 12.0


class Watched:
    """The views of one widget. While a cell runs, heartbeats may be waiting in the kernel's queue, so silence does not count
    then."""

    def __init__(self, kernel_busy: Callable[[], bool] = lambda: False) -> None:
        self._kernel_busy = kernel_busy
        self._heard: dict[str, float] = {}

    def hear(self, view: str) -> None:
        self._heard[view] = time.monotonic()

    def leave(self, view: str | None = None) -> None:
        """Remove a view; None: all views."""
        if view is None:
            self._heard.clear()
        self._heard.pop(view or "", None)

    @property
    def now(self) -> bool:
        """Return whether a view has sent a heartbeat within the last `SILENT_SECONDS`."""
        moment = time.monotonic()
        if self._kernel_busy():
            for view in tuple(self._heard):
                self._heard[view] = moment
        return any(moment - at < SILENT_SECONDS for at in tuple(self._heard.values()))
