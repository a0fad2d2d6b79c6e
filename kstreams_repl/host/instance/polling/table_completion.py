"""Bring the last rows of a bounded run into their tables before the run is over.

When everything is processed (`RunProgress.is_processed`) no task has more rows: each instance then commits its tables at once instead
of after their interval, and commits on Kafka that they are complete. The driver ends the run after that. If this instance dies before,
its successor finds the rows staged, and comes to the same end.
"""

from __future__ import annotations

from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.reports.run_progress import input_partitions, progress_since
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.table_files.instance_tables import InstanceTables

_SECONDS = 0.1


class TableCompletion:
    """Commits the tables of one instance at the end of the run."""

    def __init__(self, plan: ApplicationPlan, admin: Admin, tables: InstanceTables) -> None:
        self._plan = plan
        self._admin = admin
        self._tables = tables
        self._next = 0.0

    def step(self, now: float) -> None:
        """Commit the tables if everything is processed. Call while the instance is idle.

        Args:
            now: monotonic seconds; the broker is asked every 0.1 s, while there are rows to commit.
        """
        if now < self._next or not self._tables.have_rows:
            return
        self._next = now + _SECONDS
        committed = self._admin.committed_offsets(self._plan.application_id, input_partitions(self._plan), stable=False)
        if progress_since(self._admin, self._plan, committed).is_processed:
            self._tables.poll(now, at_end=True)
