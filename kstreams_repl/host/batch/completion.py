"""When a bounded run is over: a function of the committed offsets and the ends of the intermediate topics.

The rule (proof in docs/design/017-bounded-runs.md): read the committed offsets first and the ends afterwards. The run is over if every
bounded partition is committed at its stop offset, every intermediate partition at its end, no commit covers a record that waits
in an asynchronous node, and no commit has rows that its table does not have. Nothing can follow then: whatever a task writes, it
writes because of such a record or of an input record beyond its committed offsets, and there is none.

Ends are those of the log, with records of open transactions: one that is about to write to an intermediate topic keeps the run open.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.reports.run_progress import RunProgress, input_partitions, progress_since
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import make_consumer
from kstreams_repl.host.kafka.group_admin import committed_by
from kstreams_repl.system.errors import KStreamsError

_LOG = logging.getLogger("kstreams_repl.host.batch")
_SECONDS = 10.0
_WAITS = (0.02, 0.05, 0.1, 0.2)
"""Seconds between checks; the last one repeats."""


class CompletionWatch:
    """Checks a bounded run in a thread until it is over or the watch is closed.

    Args:
        found: called in the thread when the run is over.

    Attributes:
        progress: of the last check; None before the first.
    """

    def __init__(self, admin: Admin, plan: ApplicationPlan, found: Callable[[], object]) -> None:
        self._admin = admin
        self._plan = plan
        self._found = found
        self._over = threading.Event()
        self.progress: RunProgress | None = None

    def start(self) -> CompletionWatch:
        threading.Thread(target=self._run, name=f"completion-{self._plan.application_id}", daemon=True).start()
        return self

    def close(self) -> None:
        """End the watch without waiting for its thread."""
        self._over.set()

    def _run(self) -> None:
        consumer = make_consumer(self._plan.settings, group_id=self._plan.application_id, isolation="read_uncommitted")
        try:
            checks = 0
            while not self._over.wait(_WAITS[min(checks, len(_WAITS) - 1)]):
                checks += 1
                try:
                    found = committed_by(consumer, input_partitions(self._plan), seconds=_SECONDS)
                    self.progress = progress_since(self._admin, self._plan, found)
                except KStreamsError as error:
                    _LOG.info("cannot check the progress of %s now: %s", self._plan.application_id, error)
                    time.sleep(_WAITS[-1])
                    continue
                if self.progress.is_complete and not self._over.is_set():
                    failpoint("B4")
                    self._found()
                    return
        finally:
            consumer.close()
