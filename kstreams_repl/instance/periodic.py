"""Threads beside the loop: one that writes metrics down, one that cleans up; each serves all instances of a process.

A `PeriodicThread` makes each call once an interval, until it is forgotten, and ends when there is none left. What it calls touches nothing
that the loop owns.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable

_LOG = logging.getLogger("kstreams_repl.instance")


class PeriodicThread:
    """A daemon thread that lives as long as somebody is watched.

    Args:
        name: of the thread; also in warnings.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._watched: dict[Hashable, tuple[float, Callable[[], object]]] = {}
        self._due: dict[Hashable, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, owner: Hashable, seconds: float, call: Callable[[], object]) -> None:
        """Make the call every so many seconds, the first time after one interval. Watching an owner again replaces its call only."""
        with self._changed:
            self._watched[owner] = (seconds, call)
            self._due.setdefault(owner, time.monotonic() + seconds)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def forget(self, owner: Hashable, *, keep_turn: bool = False) -> None:
        """Make no more calls for the owner; one that is under way is over when this returns.

        Args:
            keep_turn: an owner that comes back is not made to wait a whole interval again.
        """
        with self._changed:
            self._watched.pop(owner, None)
            if not keep_turn:
                self._due.pop(owner, None)
            self._changed.notify_all()

    @property
    def alive(self) -> bool:
        return self._thread is not None

    def _run(self) -> None:
        with self._changed:
            while self._watched:
                self._make_due(time.monotonic())
                self._changed.wait(max(0.0, min(self._due[owner] for owner in self._watched) - time.monotonic()))
            self._thread = None

    def _make_due(self, now: float) -> None:
        """A method of its own: while the thread waits it keeps no owner, and so no client of a closed instance, alive."""
        for owner, (seconds, call) in list(self._watched.items()):
            if self._due[owner] <= now:
                self._due[owner] = now + seconds
                self._make(call)

    def _make(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # what runs beside an application never ends it
            _LOG.warning("%s: %s: %s", self.name, type(error).__name__, error)


METRICS_THREAD = PeriodicThread("metrics")
CLEANUP_THREAD = PeriodicThread("cleanup")
