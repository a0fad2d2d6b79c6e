"""`Work`: a control call of an application in progress; `wait_until`; `CaughtUp`, its default condition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstreams_repl.errors import DeployError, WaitInterrupted
from kstreams_repl.interrupts import wait_interruptibly
from kstreams_repl.session.progress_messages import Patience

if TYPE_CHECKING:
    from kstreams_repl.session.application.application import Application


class Work:
    """A control call that runs on a thread of its own."""

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
        self._done = threading.Event()  # an interrupted `join` marks a running thread as ended (CPython 3.11)
        threading.Thread(target=self._work, args=(control, call), name=name, daemon=True).start()

    def _work(self, control: threading.Lock, call: Callable[[], Any]) -> None:
        try:
            with control:
                call()
        except BaseException as error:  # passed to the waiting thread
            self.error = error
            if self._on_error is not None:
                self._on_error(error)
        finally:
            self._done.set()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> None:
        wait_interruptibly(self._done)


class CaughtUp:
    """Whether all topics are processed, and every instance has its stores and has reported since.

    A report follows the commit of the local stores. An instance that still restores them is behind, whatever its input lag: a
    query would return outdated rows.
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


def wait_until(app: Application, seconds: float | None, condition: Callable[[Application], bool]) -> bool:
    """Wait until a condition holds, as `Application.wait`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    progress = Patience(app.session.report, f"{app.name} starts, and Spark if it does not run yet", f"{app.name} runs")
    try:
        while True:
            progress.look(app.status == "starting")
            if app.status == "failed":
                raise app._told or DeployError(f"{app.name} failed")
            if condition(app):
                return True
            at_rest = app.status in ("paused", "stopped")  # a failure since then is raised in the next round
            if at_rest or (deadline is not None and time.monotonic() >= deadline and app.status != "failed"):
                return False
            time.sleep(0.05)
    except KeyboardInterrupt:
        raise WaitInterrupted(f"stopped waiting; {app.name} goes on: it is {app.status}") from None
