"""`ServedApplication`: the application of a query server, as the counts and the picture read it: its page shows what a notebook shows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.metrics.metrics_snapshot import Metric, Snapshot, merged
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.file_channel import metrics_in, reports_in
from kstreams_repl.host.instance.control.journal_channel import metrics_of, reports_of
from kstreams_repl.host.instance.control.journal_follower import Follower
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.record_counter import RecordCounter
from kstreams_repl.host.spark.client_metrics import client_metrics
from kstreams_repl.host.spark.instance_reports import ApplicationReport, application_report
from kstreams_repl.pictures.graph.picture import Picture, picture_of
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.application.life.state import ApplicationState
from kstreams_repl.repl.session.views.counts.counts_reader import CountsReader
from kstreams_repl.repl.session.views.counts.record_counts import Counts
from kstreams_repl.repl.session.views.picture.picture_overlay import numbers_of, overlay_of


class ServedApplication:
    """What `views.picture_overlay` reads of an application.

    Args:
        in_files: the instances' reports are files of this host; else they are in the journal.
    """

    detached = False
    stale: frozenset[str] = frozenset()
    error = None

    def __init__(
        self, plan: ApplicationPlan, config: StreamsConfig, admin: Admin, follower: Follower, *, in_files: bool
    ) -> None:
        self.name = plan.application_id
        self.topology = plan.topology if isinstance(plan.topology, Topology) else Topology()  # a catalogue has no nodes to draw
        self.config = config
        self.client = SimpleNamespace(admin=admin, settings=plan.settings, counter=RecordCounter(), closed=False)
        self._follower = follower
        self._files = Path(plan.control_directory) if in_files else None
        self.counts_reader = CountsReader(self, lambda: 1 if follower.state.desired is None else follower.state.desired.instances)

    @property
    def status(self) -> ApplicationState:
        desired = self._follower.state.desired
        if desired is None:
            return ApplicationState.CREATED
        failed = any(report.failure is not None for report in list(self._follower.state.reports.values()))
        return ApplicationState.FAILED if failed else ApplicationState(desired.state)

    @property
    def reports(self) -> ApplicationReport:
        state = self._follower.state
        found = reports_of(state, state.generation) if self._files is None else reports_in(self._files, state.generation)
        return application_report(state.generation, found)

    @property
    def metrics(self) -> list[Metric]:
        """What `Application.metrics` has."""
        state = self._follower.state
        found = metrics_of(state, state.generation) if self._files is None else metrics_in(self._files, state.generation)
        own = client_metrics(self.name, self.topology, self.config, status=self.status, reports=self.reports)
        return merged([own, *(Snapshot.read(found[slot]) for slot in sorted(found))])

    @property
    def versions(self) -> list[SimpleNamespace]:
        """The present version's number; its text stays with its owner."""
        desired = self._follower.state.desired
        return [] if desired is None else [SimpleNamespace(number=desired.version)]

    @property
    def counts(self) -> Counts:
        return self.counts_reader.read()

    def waits_for(self) -> list[str]:
        """Return what is lacking before every task of the present generation runs with its state restored and its lag known."""
        desired, reports = self._follower.state.desired, self.reports
        wanted = 0 if desired is None else desired.instances
        running = sum(instance.state == "running" for instance in reports.instances.values())
        lacking = [] if 0 < wanted <= running else [f"{wanted - running} of {wanted} instances, which start or restore"]
        unknown = sum(task.lag < 0 for task in reports.tasks.values())
        return lacking + ([f"the lag of {unknown} of {len(reports.tasks)} tasks"] if unknown else [])

    def picture(self) -> tuple[Picture, str]:
        """Return the picture, and one line: name, status, instances, numbers."""
        app: Any = self
        status, counts = self.status, self.counts
        whole = picture_of(self.topology, title=self.name, marks=overlay_of(app), state=status)
        instances = counted(len(self.reports.instances), "instance")
        return whole, f"{self.name}, {status}, {instances}{numbers_of(app, counts)}, {counts.per_second:,.0f} records/s"
