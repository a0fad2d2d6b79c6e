"""Background threads: one that writes metrics, one that sends them, one that cleans up; each serves all instances of a process.

A `PeriodicThread` makes each registered call once per interval, until it is removed, and ends when no call remains. The calls
access nothing that the loop owns.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable

_LOG = logging.getLogger("kstreams_repl.host.instance")


class PeriodicThread:
    """A daemon thread that runs while at least one call is registered.

    Args:
        name: of the thread; also used in warnings.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._watched: dict[Hashable, tuple[float, Callable[[], object]]] = {}
        self._due: dict[Hashable, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, owner: Hashable, seconds: float, call: Callable[[], object]) -> None:
        """Make the call every `seconds`, first after one interval. Registering an owner again only replaces its call."""
        with self._changed:
            self._watched[owner] = (seconds, call)
            self._due.setdefault(owner, time.monotonic() + seconds)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def forget(self, owner: Hashable, *, keep_turn: bool = False) -> None:
        """Remove the owner's call; a call in progress has ended when this returns.

        Args:
            keep_turn: if the owner is registered again, it keeps its next time instead of waiting a whole interval.
        """
        with self._changed:
            self._watched.pop(owner, None)
            if not keep_turn:
                self._due.pop(owner, None)
            self._changed.notify_all()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None

    def _run(self) -> None:
        with self._changed:
            while self._watched:
                self._make_due(time.monotonic())
                self._changed.wait(max(0.0, min(self._due[owner] for owner in self._watched) - time.monotonic()))
            self._thread = None

    def _make_due(self, now: float) -> None:
        """Make the calls that are due. A separate method: a waiting thread then has no reference to an owner, nor to its closed
        clients.
        """
        for owner, (seconds, call) in list(self._watched.items()):
            if self._due[owner] <= now:
                self._due[owner] = now + seconds
                self._make(call)

    def _make(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # an error in the background never ends an application
            _LOG.warning("the %s thread failed in one call and continues: %s: %s", self.name, type(error).__name__, error)


METRICS_THREAD = PeriodicThread("metrics")
SENDING_THREAD = PeriodicThread("otlp")
CLEANUP_THREAD = PeriodicThread("cleanup")
