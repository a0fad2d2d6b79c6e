"""`JournaledRun`: an application that another kernel drives on a cluster, as its journal shows it to a kernel that has attached it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.repl.session.application.life.state import ApplicationState
from kstreams_repl.repl.session.cluster_client import ClusterClient

if TYPE_CHECKING:
    from kstreams_repl.host.instance.control.journal_follower import Follower
    from kstreams_repl.host.spark.instance_reports import ApplicationReport

_SILENT_SECONDS = 30.0
"""Instances report every five seconds. Clocks of hosts may differ by the rest."""


class JournaledRun:
    """What a tap reads of such an application ; it follows edits of the other kernel.

    Args:
        follower: of the application's journal, with the reports of instances.
    """

    def __init__(self, name: str, config: StreamsConfig, client: ClusterClient, follower: Follower) -> None:
        self.name, self.config, self.client = name, config, client
        self._follower = follower

    @property
    def generation(self) -> int:
        desired = self._follower.state.desired
        return 0 if desired is None else desired.generation

    @property
    def reports(self) -> ApplicationReport:
        """The last reports of the generation's instances."""
        from kstreams_repl.host.instance.control.journal_channel import reports_of
        from kstreams_repl.host.spark.instance_reports import application_report

        generation = self.generation
        return application_report(generation, reports_of(self._follower.state, generation))

    @property
    def status(self) -> ApplicationState:
        """Running: it is to run, and an instance on another host has reported within the last half minute."""
        desired, reports = self._follower.state.desired, self.reports
        since = (time.time() - _SILENT_SECONDS) * 1000
        if desired is None or desired.state != "running" or not reports.remote:
            return ApplicationState("stopped")
        return ApplicationState("running" if any(report.at_ms > since for report in reports.instances.values()) else "stopped")
