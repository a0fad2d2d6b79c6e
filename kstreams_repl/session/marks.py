"""What is said on the picture of an application: state, records per second, lag, rows, restore progress, what failed, what is stale."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from kstreams_repl.display.markup import one_line
from kstreams_repl.display.picture import Mark
from kstreams_repl.session.state_rows import count_rows
from kstreams_repl.session.tables import all_stores
from kstreams_repl.topology.nodes import SourceNode

if TYPE_CHECKING:
    from kstreams_repl.session.application import Application
    from kstreams_repl.spark.progress import ApplicationReport, TaskReport

STATES = ("running", "paused", "stopped")


WINDOW_SECONDS = 4.0


class Rates:
    """Records per second of each node over the last few seconds: records come in commits, so a shorter look would jump."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def of(self, node: str, now: float, records: int) -> float | None:
        """The rate up to now; None until there is a second to look back on. Fewer records than before begin anew."""
        seen = self._seen.setdefault(node, deque())
        if seen and records < seen[-1][1]:
            seen.clear()
        seen.append((now, records))
        while now - seen[0][0] > WINDOW_SECONDS:
            seen.popleft()
        since = now - seen[0][0]
        return (records - seen[0][1]) / since if since >= 1.0 else None


def marks_of(app: Application, rates: Rates) -> dict[str, Mark]:
    """The marks by shape id. A failure outweighs everything; a node whose cell has changed says so."""
    status, stale, error = app.status, app.stale, app.error
    told = app.reports if status in ("running", "paused") else None
    restoring = _restoring(told) if status == "running" else None
    failed = error.fields.get("node") if error is not None else None
    general = "restoring" if restoring is not None else status if status in STATES else None
    taken = app.node_rates() if told is not None else {}
    now = time.monotonic()
    marks: dict[str, Mark] = {}
    for part in app.topology.subtopologies():
        mine = [] if told is None else [task for name, task in told.tasks.items() if name.startswith(f"{part.id}_")]
        for node in part.nodes:
            lines: tuple[str, ...] = ()
            if node.name in taken:
                known = taken[node.name]
                lately = rates.of(node.name, now, known.records)
                speed = 0.0 if status != "running" else known.per_second if lately is None else lately
                lines = (f"{known.records:,} records", f"{speed:,.0f} records/s")
            if isinstance(node, SourceNode) and mine:
                lines = (*lines, *_of_source(mine))
            marks[f"node:{node.name}"] = Mark("stale" if node.name in stale else general, lines)
    for builder in all_stores(app):
        rows = count_rows(app.config, app.topology, builder) if builder.on_disk(app.config["default.dsl.store"]) else None
        said = [] if rows is None else [f"{rows:,} rows"]
        marks[f"store:{builder.name}"] = Mark("restoring" if restoring else None, (*said, *([restoring] if restoring else [])))
    if error is not None and failed:
        marks[f"node:{failed}"] = Mark("failed", (one_line(error.message.splitlines()[0], limit=36),))
    return marks


def _of_source(tasks: list[TaskReport]) -> tuple[str, ...]:
    lag = -1 if any(task.lag < 0 for task in tasks) else sum(task.lag for task in tasks)
    dropped = sum(sum(task.dropped.values()) for task in tasks)
    return (f"lag {lag:,}" if lag >= 0 else "lag unknown", *([f"{dropped:,} dropped"] if dropped else []))


def _restoring(told: ApplicationReport | None) -> str | None:
    """How far restores are, "" where nothing is left to count; None when none is on its way."""
    instances = [] if told is None else [i for i in told.instances.values() if i.restore_remaining or i.state == "restoring"]
    if not instances:
        return None
    done, left = sum(i.restored for i in instances), sum(i.restore_remaining for i in instances)
    return f"{100 * done // (done + left)} % restored" if done + left else ""
