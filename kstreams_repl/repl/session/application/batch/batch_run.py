"""Run an application up to its stop offsets and wait for its end, as `Session.run_batch`.

Numbered: 1. refuse a topology whose end cannot be known · 2. deploy it with ``autostop.at``; without new input nothing is started ·
3. wait for the end, reporting the progress · 4. report what the run did. After a failure in 3 the same call goes on with the same
stop offsets (`host.batch.stop_offsets`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.bounds.stop_at import StopAt
from kstreams_repl.engine.topology.partitions import resolve_partitions
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.batch.stop_offsets import AUTOSTOP, ON_END, bounded_partitions, stop_offsets
from kstreams_repl.host.instance.reports.run_progress import (
    RunProgress,
    closed_tasks,
    progress_of,
    unwritten_commits,
    waiting_records,
)
from kstreams_repl.host.kafka.clients import Isolation
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.repl.session.application.batch.batch_report import BatchReport, last_run, report_of
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.life.registry import ApplicationRegistry
from kstreams_repl.repl.session.application.life.wait import wait_until
from kstreams_repl.repl.session.application.starting.deploy import deploy
from kstreams_repl.repl.session.application.starting.journal_lookup import journal_of
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.left_applications import driving_process
from kstreams_repl.repl.session.progress_messages import ProgressView, progress_view
from kstreams_repl.system.errors import ApplicationFailedError, DeployError


def run_batch(
    client: ClusterClient,
    applications: ApplicationRegistry,
    topology: object,
    name: str,
    settings: Mapping[str, object],
    start: object,
    *,
    create_topics: bool | Mapping[str, int] = False,
) -> ApplicationCore:
    """Run, as `Session.run_batch`."""
    began = time.monotonic()
    pid = driving_process(client.state_root, name)
    if pid is not None and pid != os.getpid():
        raise DeployError(f"{name} is running, driven by process {pid}", hint="wait for its end, or stop it there: app.stop()", pid=pid)

    def is_needed(built: Topology, config: StreamsConfig) -> bool:
        # 1. Refuse what cannot be bounded.
        return has_work(client, name, built, config)

    # 2. Deploy.
    app = deploy(client, applications, topology, name, settings, start, create_topics=create_topics, is_needed=is_needed)
    if app.generation == 0 and not app.status.is_running_or_rebalancing():
        last = last_run(client, name)
        app.batch_report = BatchReport(name, 0 if last is None else last.run, "nothing new", seconds=round(time.monotonic() - began, 3))
        return app
    # 3. Wait.
    wait_until(app, None, _Progress(progress_view(client.report), name))
    if app.status != "stopped":
        raise ApplicationFailedError(f"the bounded run of {name} was ended: the application is {app.status}", hint="run it again")
    # 4. Report.
    record = last_run(client, name)
    if record is None or record.state != "finished":
        raise ApplicationFailedError(
            f"the bounded run of {name} was stopped before its stop offsets",
            hint="run it again: it goes on to the same stop offsets",
            application=name,
        )
    app.batch_report = report_of(client, app.topology, name, record, time.monotonic() - began)
    return app


def has_work(client: ClusterClient, name: str, topology: Topology, config: StreamsConfig) -> bool:
    """Return whether a bounded run has to be started: there is input, records wait in asynchronous nodes, rows may wait for their tables
    (also after a stream: only a bounded run notes that they have arrived), the last run left windows open that this one is to close, or
    an earlier one did not end in order.

    Raises:
        TopologyError: the topology cannot be bounded (`bounded_partitions`).
    """
    admin = client.admin
    counts = admin.topics()
    resolved = resolve_partitions(topology, name, counts, grouper=config["partition.grouper"])
    inputs = sorted({partition for partitions in resolved.tasks.values() for partition in partitions})
    bounded = bounded_partitions(topology, config, inputs)
    if journal_topic_name(name) not in counts or any(partition.topic not in counts for partition in inputs):
        return True
    state = journal_of(client, name)
    if state.desired is None or state.desired.state == "running" or (state.stop_offsets is not None and state.stop_offsets.state == "open"):
        return True
    committed = admin.committed_offsets(name, inputs, stable=False)
    isolation: Isolation = "read_committed" if config.exactly_once else "read_uncommitted"
    stops = stop_offsets(admin, StopAt.parse(config[AUTOSTOP]), bounded, committed, isolation)
    intermediate = [partition for partition in inputs if partition not in stops]
    offsets = {partition: found.offset for partition, found in committed.items()}
    waiting = waiting_records(resolved.tasks, committed)
    if not progress_of(offsets, stops, admin.end_offsets(intermediate, isolation="read_uncommitted"), waiting).is_complete:
        return True
    if unwritten_commits(resolved.tasks, committed):
        return True
    last = 0 if state.stop_offsets is None else state.stop_offsets.run
    return config[ON_END] == "close_windows" and closed_tasks(resolved.tasks, committed, last) != resolved.tasks.keys()


_MEASURED_SECONDS = 2.0
"""How long offsets are counted before the time that is left is estimated."""


class _Progress:
    """The condition of the wait: the application is at rest. Shows how far it is meanwhile."""

    def __init__(self, view: ProgressView, name: str) -> None:
        self._view = view
        self._name = name
        self._began = self._next = time.monotonic()
        self._total: int | None = None
        self._first: tuple[float, int] | None = None
        """When offsets were first done, and how many: what was before is the start of the instances."""
        self._partitions = 0

    def __call__(self, app: ApplicationCore) -> bool:
        progress = app.batch_progress
        now = time.monotonic()
        at_rest = app.status in ("stopped", "paused")
        if progress is not None:
            if self._total is None:
                self._total, self._began, self._next = progress.input_left, now, now + self._view.seconds
            elif now >= self._next and not progress.is_complete and not at_rest:
                self._next = now + self._view.seconds
                self._show(progress, now)
            self._partitions = progress.partitions
        if self._total is not None and app.status == "stopped":
            self._show(RunProgress({}, self._partitions), now)
        return at_rest

    def _show(self, progress: RunProgress, now: float) -> None:
        total = self._total = max(self._total or 0, progress.input_left)
        done = total - progress.input_left
        rate = done / max(now - self._began, 0.001)
        if self._first is None and done:
            self._first = now, done
        began, before = self._first or (now, done)
        lately = (done - before) / (now - began) if now - began >= _MEASURED_SECONDS else 0.0
        left = f", {progress.input_left / lately:.0f} s left" if lately and progress.input_left else ""
        if between := progress.offsets_left - progress.input_left:
            left += f", {between:,} to go on the application's own topics"
        if progress.waiting:
            left += f", {sum(progress.waiting.values()):,} records wait for calls"
        if progress.unwritten and progress.is_processed:
            left += ", committing tables"
        text = f"{done:,} of {total:,} offsets, {rate:,.0f}/s, {progress.done} of {progress.partitions} partitions done{left}"
        self._view.show(done, total, f"{self._name}: {text}")
