"""Restart an application whose worker processes are killed from outside.

A record or function that kills its worker is found by its traces (`host.instance.failures.crash_watchdog`) and fails the application by a
report. The other deaths have no cause in user code: kill -9, the kernel's out-of-memory killer, an operator. Spark retries a task that
lost its worker, and after `TASK_FAILURES` deaths of one task within an epoch it ends the query; this module then starts the query again as
a new generation. That is repeated as long as there is progress between two restarts: records were committed, or an instance has nothing to
do. After `FRUITLESS` restarts in a row without progress the application fails, because no instance lives long enough to work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.spark.failures.failure_translation import python_error
from kstreams_repl.host.spark.instance_reports import ApplicationReport
from kstreams_repl.system.errors import ApplicationFailedError

_LOG = logging.getLogger("kstreams_repl.host.spark")
FRUITLESS = 3
_KEPT = 20
_DEATHS = (
    "Python worker exited unexpectedly", "ExecutorLostFailure", "Python worker failed to connect back", "Connection reset", "EOFException",
)  # fmt: skip


class WorkerRestarts:
    """The restarts of one deployment after deaths of its worker processes.

    Attributes:
        history: one line per restart, the last ones: time, cause and result.
    """

    def __init__(self) -> None:
        self.history: list[str] = []
        self._committed: Mapping[str, int] = {}
        self._fruitless = 0

    def record(self, plan: ApplicationPlan, cause: str, reports: ApplicationReport) -> ApplicationFailedError | None:
        """Record that a generation is to be restarted.

        Args:
            cause: Spark's reason for the end of its query.

        Returns:
            The error of an application that has been restarted too often without progress; None: restart it.
        """
        self._fruitless = 0 if self._advanced(reports) else self._fruitless + 1
        if self._fruitless >= FRUITLESS:
            return _worn_out(plan.application_id, cause)
        line = (
            f"{time.strftime('%H:%M:%S UTC', time.gmtime())} worker processes of {plan.application_id} were killed from outside and "
            f"Spark ended its query; "
            f"it was restarted from its last commit as generation {plan.generation + 1}"
        )
        self.history = [*self.history, line][-_KEPT:]
        _LOG.warning("%s", line)
        return None

    def _advanced(self, reports: ApplicationReport) -> bool:
        """Return whether there was progress since the last restart."""
        before, self._committed = self._committed, {**self._committed, **reports.committed}
        idle = any(report.state == "running" and report.tasks for report in reports.instances.values()) and reports.lag == 0
        return idle or any(offset > before.get(at, -1) for at, offset in reports.committed.items())


def is_death(cause: str | None) -> bool:
    """Return whether Spark's reason for the end of a query is a dead worker process, rather than an exception raised in it."""
    return cause is not None and python_error(cause) is None and any(words in cause for words in _DEATHS)


def _worn_out(application_id: str, cause: str) -> ApplicationFailedError:
    return ApplicationFailedError(
        f"worker processes of {application_id} died repeatedly, without a commit between {FRUITLESS} restarts: "
        f"{cause.splitlines()[0][:300]}",
        hint="they end before they can work: out of memory, a limit of the machine, or a crash in native code; see the workers' output in "
        "session.logs(); no committed data are lost, and resume continues from the last commit",
    )
