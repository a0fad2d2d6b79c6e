"""Logs of a session: the broker's and Spark's log files, and the instances' warnings and failures.

Spark's log has the output of user functions on workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kstreams_repl.host.instance.state.state_directory import state_root
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.detached.mailbox import Mailbox
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.topics.read import latest, refuse_no_number
from kstreams_repl.system.processes import last_lines


def session_logs(client: ClusterClient, applications: Mapping[str, ApplicationCore], name: str | None, n: int) -> Table:
    """Return the table of `Session.logs`."""
    refuse_no_number(n)
    apps = [app for app in applications.values() if name in (None, app.name)]
    files: list[tuple[str, Path]] = []
    broker = client.broker
    if name is None and broker is not None and broker.log is not None:
        files.append(("broker", broker.log))
    if name is None and client.spark.used:
        files.append(("Spark", _spark_log()))
    for app in apps:
        if app.log is not None:
            files.append((app.name, app.log))
        driver = Mailbox(state_root(app.config), app.name).record if app.detached else None
        if driver is not None:
            files.append((f"{app.name}, Spark", _spark_log(driver.pid)))
    return logs_table(apps, files, n)


def _spark_log(pid: int | None = None) -> Path:
    from kstreams_repl.host.spark.startup.spark_session import spark_log

    return spark_log(pid)


def logs_table(applications: Iterable[ApplicationCore], files: Iterable[tuple[str, Path]], n: int) -> Table:
    """Return warnings, restarts and failures of the applications, then the last `n` lines of each file."""
    rows: list[tuple[str, str]] = []
    for app in applications:
        for slot, report in sorted(app.reports.instances.items()):
            if report.trouble:
                rows.append((f"{app.name}, instance {slot}", report.trouble))
            shared = "cannot be copied while they wait: change none of them in place"
            rows += [(f"{app.name}, node {node}", f"values of type {kind} {shared}") for node, kind in report.uncopied]
            deleted = "were deleted before they were read, by the topic's retention or by hand"
            skipped = [f"{count:,} offsets of {at} {deleted}" for at, count in sorted(report.skipped.items())]
            rows += [(f"{app.name}, instance {slot}", line) for line in skipped]
        rows += [(app.name, line) for line in app.restarts]
        error = app.error
        if error is not None:
            trace = error.worker_trace or ""
            rows += [(app.name, line) for line in [str(error), *latest(trace.splitlines(), n)] if line.strip()]
    shown = []
    for name, path in files:
        rows += [(name, line) for line in last_lines(path, n)]
        shown.append(f"{name}: {path}")
    return Table.of(("from", "line"), rows, note=("; ".join(shown) or "no log files") if rows else "nothing was logged")
