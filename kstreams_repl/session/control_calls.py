"""`Work`: a control call of an application on its way; `CaughtUp`: the condition that `Application.wait` waits for by default."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstreams_repl.session.application import Application


class Work:
    """A control call on its way on a thread of its own."""

    def __init__(
        self,
        control: threading.Lock,
        call: Callable[[], Any],
        *,
        name: str,
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.error: BaseException | None = None
        self._on_error = on_error
        self._done = threading.Event()  # an interrupted `join` takes a thread that runs for one that has ended (CPython 3.11)
        threading.Thread(target=self._work, args=(control, call), name=name, daemon=True).start()

    def _work(self, control: threading.Lock, call: Callable[[], Any]) -> None:
        try:
            with control:
                call()
        except BaseException as error:  # handed to whoever waits
            self.error = error
            if self._on_error is not None:
                self._on_error(error)
        finally:
            self._done.set()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> None:
        self._done.wait()


class CaughtUp:
    """Nothing is left on the topics, every instance has its stores, and has reported since: a report follows the commit of the local
    stores. One that still restores them is behind, whatever its inputs say: a query would show rows of before.
    """

    PATIENCE_SECONDS = 3.0

    def __init__(self) -> None:
        self._at: float | None = None

    def __call__(self, app: Application) -> bool:
        if app.status != "running" or app.remaining() > 0:
            self._at = None
            return False
        told, plan = app.reports.instances.values(), app._deployment.plan
        if len(told) < getattr(plan, "instances", 1) or any(report.state != "running" for report in told):
            self._at = None
            return False
        now = time.time()
        if self._at is None:
            self._at = now
        return all(report.at_ms > self._at * 1000 for report in told) or now - self._at > self.PATIENCE_SECONDS
