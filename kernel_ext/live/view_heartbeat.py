"""Tracks which views are open: front ends send a heartbeat every few seconds, and a message when they close."""

from __future__ import annotations

import time
from collections.abc import Callable

SILENT_SECONDS = 12.0


class OpenViews:
    """The open views of one widget. While a cell runs, heartbeats may be waiting in the kernel's queue, so silence does not count
    then."""

    def __init__(self, kernel_busy: Callable[[], bool] = lambda: False) -> None:
        self._kernel_busy = kernel_busy
        self._last_heartbeat: dict[str, float] = {}

    def heartbeat(self, view: str) -> None:
        """Note that a view is open."""
        self._last_heartbeat[view] = time.monotonic()

    def close(self, view: str | None = None) -> None:
        """Remove a view; None: all views."""
        if view is None:
            self._last_heartbeat.clear()
        self._last_heartbeat.pop(view or "", None)

    @property
    def any(self) -> bool:
        """Return whether a view has sent a heartbeat within the last `SILENT_SECONDS`."""
        now = time.monotonic()
        if self._kernel_busy():
            for view in tuple(self._last_heartbeat):
                self._last_heartbeat[view] = now
        return any(now - heartbeat < SILENT_SECONDS for heartbeat in tuple(self._last_heartbeat.values()))
