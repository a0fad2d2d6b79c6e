"""Overlay of an application's picture: state, records in and out, drops, lag, rows, restore progress, failures, stale nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.topology.nodes import Node, SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.graph.picture import Mark
from kstreams_repl.pictures.markup import one_line
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.topics.source_serdes import filled_in_serdes
from kstreams_repl.repl.session.views.counts.record_counts import (
    LATE,
    Counts,
    NodeRate,
    dropped_text,
    late_text,
    source_lag,
    waiting_text,
)
from kstreams_repl.repl.session.views.picture.silent_nodes import silent_nodes
from kstreams_repl.repl.session.views.stores.store_reader import count_rows
from kstreams_repl.repl.session.views.tables.sql_catalog import all_stores
from kstreams_repl.repl.session.views.values.calls_view import call_lines, slow_lines

if TYPE_CHECKING:
    from kstreams_repl.host.spark.instance_reports import ApplicationReport

STATES = ("running", "paused", "stopped")
SILENT = "silent"


def overlay_of(app: ApplicationCore) -> dict[str, Mark]:
    """Return the overlay by shape id. A failure takes precedence; a node whose cell has changed is marked as stale."""
    status, stale, error = app.status, app.stale, app.error
    reports = app.reports if status in ("running", "paused") else None
    restoring = _restoring(reports) if status == "running" else None
    failed = error.node if error is not None else None
    general = "restoring" if restoring is not None else status if status in STATES else None
    counts = app.counts if status in (*STATES, "failed") else None
    nothing_passes = silent(app, counts)
    calls = {} if reports is None else call_lines(reports)
    slow = {} if reports is None or status != "running" else slow_lines(reports, app.topology)
    marks: dict[str, Mark] = {}
    for node in app.topology.nodes.values():
        lines: tuple[str, ...] = ()
        speed = lag = None
        known = None if counts is None else counts.nodes.get(node.name)
        if known is not None:
            lines = (_passed(node, known, below=bool(app.topology.children(node.name))),)
            speed = known.per_second
            if status == "running":
                lines = (*lines, f"{speed:,.0f} records/s")
        if node.name in nothing_passes and known is not None and known.given:
            lines = (*lines, f"since version {app.versions[-1].number}: {nothing_passes[node.name].records:,} in, 0 out")
        if isinstance(node, SourceNode) and (read := filled_in_serdes(app.config, node.topics)) is not None:
            lines = (*lines, read)
        if isinstance(node, SourceNode) and counts is not None:
            behind = source_lag(app.topology, app.name, node, counts.lags)
            if behind is not None:
                lines, lag = (*lines, f"lag {behind:,}" if behind >= 0 else "lag unknown"), behind if behind >= 0 else None
        lines = (*lines, *calls.get(node.name, ()), *([slow[node.name]] if node.name in slow else ()))
        if known is not None:
            lines = (*lines, *(f"{number:,} dropped: {reason}" for reason, number in known.dropped.items() if reason not in LATE))
            lines = (*lines, *filter(None, late_text(known).split(": ")))
        state = "stale" if node.name in stale else SILENT if node.name in nothing_passes and restoring is None else general
        marks[f"node:{node.name}"] = Mark(state, lines, speed, lag)
    for builder in all_stores(app.topology):
        rows = count_rows(app.config, app.topology, builder) if builder.on_disk(app.config["default.dsl.store"]) else None
        known_rows = [] if rows is None else [counted(rows, "row")]
        marks[f"store:{builder.name}"] = Mark("restoring" if restoring else None, (*known_rows, *([restoring] if restoring else [])))
    if error is not None and failed:
        marks[f"node:{failed}"] = Mark("failed", (one_line(error.message.splitlines()[0], limit=36),))
    return marks


def summary_of(app: ApplicationCore) -> str:
    """Return one line: name, status, instances, input records, lag, a silent node, the error."""
    status, error = app.status, app.error
    numbers = "" if status in ("created", "starting") else numbers_of(app, app.counts)
    reporting = len(app.reports.instances) if status in ("running", "paused") else 0
    instances = f", {reporting} {plural('instance', reporting)}" if reporting else ""
    reason = "" if error is None else f", {one_line(error.message.splitlines()[0], limit=120)}"
    return f"Application({app.name!r}, {app.standing}{instances}{numbers}{reason})"


def numbers_of(app: ApplicationCore, counts: Counts) -> str:
    """Return the counts as text for the end of a list: input records, lag, records that wait or were dropped, a silent node.

    Of a failed application they are the committed ones: under at least once, outputs of the commit that failed may be on its topics.
    """
    lag = f"{counts.lag:,}" if counts.lag >= 0 else "unknown"
    numbers = f", {counts.records:,} {plural('record', counts.records)}{_of_version(app, counts)}"
    numbers += f"{' committed' if app.status == 'failed' else ''}, lag {lag}{waiting_text(counts.waiting)}{dropped_text(counts)}"
    if nothing_passes := [*silent(app, counts)]:
        more = f" and {len(nothing_passes) - 1:,} more" if len(nothing_passes) > 1 else ""
        numbers += f", ∅ nothing passes {one_line(nothing_passes[0], limit=60)}{more}"
    return numbers


def plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def silent(app: ApplicationCore, counts: Counts | None) -> dict[str, NodeRate]:
    """Return the silent nodes of an application, which have taken many records and forwarded none in the present version."""
    nodes = {} if counts is None else (counts.this_version or counts).nodes
    held = dict.fromkeys(async_nodes(app.topology), 0 if counts is None else counts.waiting)
    passed = {name: (known.records - held.get(name, 0), known.given) for name, known in nodes.items()}
    return {name: nodes[name] for name in silent_nodes(app.topology, passed, caches=app.status != "running")}


def async_nodes(topology: Topology) -> list[str]:
    """Return the nodes that may hold records after they are committed."""
    return [name for name, node in topology.nodes.items() if isinstance(getattr(node, "operator", None), StreamAsync)]


def silent_lines(app: ApplicationCore) -> list[str]:
    """Return one line for each silent node, for the text form."""
    if app.status not in (*STATES, "failed"):
        return []
    return [f"∅ nothing passes {name}: {known.records:,} in, 0 out" for name, known in silent(app, app.counts).items()]


def _of_version(app: ApplicationCore, counts: Counts) -> str:
    """Return how many of the records this version has processed, if it is not the first."""
    mine = counts.this_version
    return "" if mine is None or mine.records == counts.records else f" ({mine.records:,} since version {app.versions[-1].number})"


def _passed(node: Node, known: NodeRate, *, below: bool) -> str:
    """Return a node's counts as text: one number if it forwards as many records as it takes."""
    if not below or isinstance(node, SourceNode) or known.given == known.records:
        return f"{known.records:,} {plural('record', known.records)}"
    return f"{_short(known.records)} in, {_short(known.given)} out"


def _short(count: int) -> str:
    """Return a count short enough that two fit into one line of a box: rounded from a million on."""
    return f"{count:,}" if count < 1_000_000 else f"{count / 1e6:.2f}M" if count < 1_000_000_000 else f"{count / 1e9:.2f}G"


def _restoring(report: ApplicationReport | None) -> str | None:
    """Return the progress of restores, "" if nothing is left to count; None if none is running."""
    instances = [] if report is None else [i for i in report.instances.values() if i.restore_remaining or i.state == "restoring"]
    if not instances:
        return None
    done, left = sum(i.restored for i in instances), sum(i.restore_remaining for i in instances)
    return f"{100 * done // (done + left)} % restored" if done + left else ""
