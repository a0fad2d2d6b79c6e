"""Listeners of an application: state changes, restore and standby progress, and the response to a failure.

They run in the process that has the `Application` object, on one thread, from the reports of the instances. Nothing is sent to
workers, so a listener may be any callable and may use the notebook's variables. The thread polls every 0.1 s: it can miss a
shorter state, but never a failure. An exception in a listener is logged; the other listeners are still called. Source: Kafka
Streams' `StateListener`, `StateRestoreListener`, `StandbyUpdateListener` and `StreamsUncaughtExceptionHandler` (KIP-671).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.life.state import ApplicationState

_LOG = logging.getLogger("kstreams_repl.repl.session")
_POLL_SECONDS = 0.1


class UncaughtResponse(StrEnum):
    """The decision of an uncaught-exception handler (Kafka Streams' `StreamThreadExceptionResponse`)."""

    REPLACE_THREAD = "replace_thread"
    """Start all instances again from the last commit."""
    SHUTDOWN_CLIENT = "shutdown_client"
    """Leave the application failed."""
    SHUTDOWN_APPLICATION = "shutdown_application"
    """Leave the application failed, as `SHUTDOWN_CLIENT`: the instances of an application stop together."""


class Listeners:
    """Watch one application until `close`, until its session is closed, or until the session has another object for it.

    Args:
        former: the application's listeners so far; they are closed first.
        state: (new, old) status, after each change.
        restore: (instance, restored, remaining) in records, while stores are restored; the last call has remaining 0.
        standby: (instance, task, lag) in records, when the lag of a standby copy has changed.
        uncaught: (error) -> `UncaughtResponse`, once for each failure; at once when the application has failed already.
    """

    def __init__(
        self,
        application: ApplicationCore,
        former: Listeners | None = None,
        *,
        state: Callable[[ApplicationState, ApplicationState], object] | None = None,
        restore: Callable[[int, int, int], object] | None = None,
        standby: Callable[[int, str, int], object] | None = None,
        uncaught: Callable[[Any], object] | None = None,
    ) -> None:
        if former is not None:
            former.close()
        self._application = application
        self._state, self._restore, self._standby, self._uncaught = state, restore, standby, uncaught
        self._status = application.status
        self._answered = False
        self._restored: dict[int, tuple[int, int]] = {}
        self._lags: dict[tuple[int, str], int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"listeners-{application.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop calling listeners. Returns when a call in progress has returned. May be called from a listener.

        Example:
            >>> listening = app.listen(state=lambda new, old: print(old, new))
            >>> listening.close()
        """
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_POLL_SECONDS) and self._is_current():
            try:
                self._poll()
            except Exception as error:  # the broker is unreachable, or the session is closing: try again
                _LOG.info("%s could not be looked at: %s", self._application.name, error)

    def _is_current(self) -> bool:
        return not self._application.client.closed and self._application.current is self._application

    def _poll(self) -> None:
        self._changed()
        if self._restore is not None or self._standby is not None:
            self._progress()
        if self._status != "failed":
            self._answered = False
        elif not self._answered and self._uncaught is not None:
            self._answered = True
            self._answer(self._call(self._uncaught, self._application.error))

    def _changed(self) -> None:
        status, before = self._application.status, self._status
        self._status = status
        if status != before:
            self._call(self._state, status, before)

    def _answer(self, response: object) -> None:
        if response not in (None, *UncaughtResponse):
            _LOG.warning(
                "the handler of %s returned %r: expected %s", self._application.name, response, ", ".join(UncaughtResponse)
            )
        if response != UncaughtResponse.REPLACE_THREAD or self._over.is_set() or not self._is_current():
            return
        try:
            self._application.start()
        except Exception as error:
            _LOG.warning("%s stays failed, it could not be started again: %s", self._application.name, error)
            return
        self._answered = False  # a failure of this start counts as a new one
        self._changed()

    def _progress(self) -> None:
        for slot, report in self._application.reports.instances.items():
            now = report.restored, report.restore_remaining
            if now != self._restored.get(slot, (0, 0)):
                self._restored[slot] = now
                self._call(self._restore, slot, *now)
            for task, lag in report.standbys.items():
                if self._lags.get((slot, task)) != lag:
                    self._lags[slot, task] = lag
                    self._call(self._standby, slot, task, lag)

    def _call(self, listener: Callable[..., object] | None, *about: object) -> object:
        if listener is None or self._over.is_set():
            return None
        try:
            return listener(*about)
        except Exception:  # of the user's function, which must not end the thread that calls it
            _LOG.warning("a listener of %s raised", self._application.name, exc_info=True)
            return None
