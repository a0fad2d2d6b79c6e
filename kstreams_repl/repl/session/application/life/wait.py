"""`wait_until`, and `CaughtUp`, its default condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.progress_messages import PolledStep
from kstreams_repl.repl.session.views.counts.record_counts import late_lines
from kstreams_repl.repl.session.views.picture.failed_record import with_record
from kstreams_repl.system.errors import DeployError, WaitInterrupted

_REPORTED_SECONDS = 1.0
"""A shorter wait is a look, whose answer False is expected."""


class Restored:
    """Whether every instance has its stores, and has reported since.

    A report follows the commit of the local stores. An instance that still restores them is behind, whatever its input lag: a
    query would return outdated rows.
    """

    PATIENCE_SECONDS = 3.0

    def __init__(self, instances: Callable[[], int]) -> None:
        self._instances = instances
        self._at: float | None = None

    def __call__(self, app: ApplicationCore) -> bool:
        reports = app.reports.instances.values() if app.status == "running" else ()
        if not reports or len(reports) < self._instances() or any(report.state != "running" for report in reports):
            self._at = None
            return False
        now = time.time()
        if self._at is None:
            self._at = now
        return all(report.at_ms > self._at * 1000 for report in reports) or now - self._at > self.PATIENCE_SECONDS


class CaughtUp(Restored):
    """Whether all topics are processed, too."""

    def __init__(
        self, instances: Callable[[], int], remaining: Callable[[], int], taken_over: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(instances)
        self._remaining, self._taken_over = remaining, taken_over

    def __call__(self, app: ApplicationCore) -> bool:
        if app.status != "running" or self._remaining() > 0:
            self._at = None
            return False
        return super().__call__(app) and not self._taken_over()  # then it was not processed here, and the application has failed


def await_stores(app: ApplicationCore, seconds: float) -> None:
    """Wait until every instance has its stores: what is on the disk before are rows of before. Returns after `seconds`, or when the
    application neither starts nor runs.
    """
    restored, deadline = Restored(app.instances), time.monotonic() + seconds
    while app.status in ("starting", "running") and not restored(app) and time.monotonic() < deadline:
        time.sleep(0.02)


def wait_until(app: ApplicationCore, seconds: float | None, condition: Callable[[Any], bool]) -> bool:
    """Wait until a condition holds, as `Application.wait`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    progress = PolledStep(app.client.report, f"{app.name} starts, and Spark if it does not run yet", f"{app.name} runs")
    try:
        while True:
            progress.update(app.status == "starting")
            if app.status == "failed":
                error = app.error
                if error is None and app.status != "failed":  # it has been resumed meanwhile
                    continue
                if error is None:
                    raise DeployError(f"{app.name} failed", hint="session.logs() has its last words")
                raise with_record(app.client, app.name, error, app.topology)
            if condition(app):
                for line in late_lines(app.counts) if isinstance(condition, CaughtUp) else ():
                    app.client.report(line)
                return True
            if app.status in ("paused", "stopped"):  # a failure since then is raised in the next round
                return False
            if seconds is not None and deadline is not None and time.monotonic() >= deadline and app.status != "failed":
                if seconds >= _REPORTED_SECONDS and isinstance(condition, CaughtUp):
                    lag = app.counts.lag
                    remain = "not all records are processed" if lag < 0 else f"{lag:,} records remain"
                    app.client.report(f"{app.name} is {app.status}: {remain} after {seconds:g} s; call wait again")
                return False
            time.sleep(0.05)
    except KeyboardInterrupt:
        raise WaitInterrupted(f"stopped waiting; {app.name} continues: it is {app.status}") from None
