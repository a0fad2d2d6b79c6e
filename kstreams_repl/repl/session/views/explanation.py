"""Why an application's result is empty or too small: the questions of ``docs/tasks/empty-results.md``, answered with its numbers.

Everything is counted elsewhere: records by node (`CountsReader`), records that are left on the topics, and for joins a sample of the
topics, whose keys are compared (`sample_run`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstreams_repl.engine.operators.tables.table_suppress import TableSuppress
from kstreams_repl.engine.topology.nodes import SinkNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.table import MAX_TEXT_CELL, Table
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.views.counts.record_counts import LATE, Counts, NodeRate, input_sources, late_text, waiting_text
from kstreams_repl.repl.session.views.picture.join_keys import JoinKeys
from kstreams_repl.repl.session.views.values.sample_run import sample
from kstreams_repl.system.errors import KStreamsError

_REJECTS = ("filter", "branch", "flat_map")
_NULLS = ("null ", "negative timestamp")
_YES = "yes"

QUESTIONS = {
    "Does it run?": "app.wait() raises why; session.logs(name)",
    "Were records read?": "session.read(topic); session.reset(name) reads again",
    "Are all processed and committed?": "app.wait(60)",
    "Does a filter reject them?": "app.tap(node above it) shows its values",
    "Were they dropped as late?": "a grace: docs/concepts/late-records.md",
    "Have they a key, a value and a time?": "select_key(...); produce(..., key=, timestamp=)",
    "Could they be read and processed?": "app.failed_record; docs/tasks/error-handling.md",
    "Do the keys of a join match?": "select_key(...), or join(..., foreign_key=)",
    "Is a window still open?": "later records close it: docs/recipes/final-results.md",
    "Was something written?": "session.read(topic)",
}
"""What is asked, in the order of a record's way, and what to do then."""


def explain(app: ApplicationCore, *, seconds: float) -> Table:
    """Return the answer of each question.

    Args:
        seconds: begin no larger sample after that.
    """
    topology, counts = app.topology, app.counts
    answers = [
        [_YES] if app.status == "running" else _state(app),
        _read(topology, counts),
        [f"{counts.lag:,} behind{waiting_text(counts.waiting)}"] if counts.lag or counts.waiting else [],
        _nodes(topology, counts, _rejected),
        [f"{name}: {text}" for name, rate in counts.nodes.items() if (text := late_text(rate))],
        _dropped(counts, lambda reason: reason.startswith(_NULLS)),
        _dropped(counts, lambda reason: reason not in LATE and not reason.startswith(_NULLS)),
        _joins(app, seconds),
        _nodes(topology, counts, _holds),
        _written(topology, counts),
    ]
    rows = [
        (question, answer, do if answer not in ("–", _YES) else "")
        for (question, do), found in zip(QUESTIONS.items(), answers, strict=True)
        for answer in found or ["–"]
    ]
    whole = [answer for _, answer, _ in rows if len(answer) > MAX_TEXT_CELL]
    return Table.of(("question", "here", "then"), rows, title=app.name, note="\n".join([*whole, "docs/tasks/empty-results.md"]))


def _state(app: ApplicationCore) -> list[str]:
    return [app.status if app.error is None else f"{app.status}: {app.error.message}"]


def _read(topology: Topology, counts: Counts) -> list[str]:
    sources = [topology.nodes[name] for name in input_sources(topology)]
    return [f"{_topics_of(node)}: {counted(_rate(counts, node.name).records, 'record')}" for node in sources]


def _written(topology: Topology, counts: Counts) -> list[str]:
    sinks = [node for node in topology.nodes.values() if isinstance(node, SinkNode) and node.topic not in topology.internal_topics]
    return [f"{node.topic or node.name}: {counted(_rate(counts, node.name).given, 'record')}" for node in sinks]


def _rejected(operator: object) -> bool:
    return getattr(operator, "word", "") in _REJECTS


def _holds(operator: object) -> bool:
    return isinstance(operator, TableSuppress) or getattr(operator, "emit_on_close", False)


def _nodes(topology: Topology, counts: Counts, wanted: Callable[[object], bool]) -> list[str]:
    """Return what entered and left the nodes of these operators that forwarded less than they took."""
    rates = {name: rate for name, rate in counts.nodes.items() if wanted(getattr(topology.nodes[name], "operator", None))}
    return [f"{name}: {rate.records:,} in, {rate.given:,} out" for name, rate in rates.items() if rate.given < rate.records]


def _dropped(counts: Counts, wanted: Callable[[str], bool]) -> list[str]:
    return [
        f"{name}: {number:,} dropped: {reason}"
        for name, rate in counts.nodes.items()
        for reason, number in rate.dropped.items()
        if number and wanted(reason)
    ]


def _joins(app: ApplicationCore, seconds: float) -> list[str]:
    """Return the joins of a sample of the topics that found no partner for some keys, and why."""
    if not JoinKeys(app.topology).arrived:
        return []
    try:
        taken = sample(app.client.admin, app.topology, node=None, n=1, seconds=seconds, config=app.config)
    except KStreamsError as error:
        return [f"the topics cannot be sampled: {error.message}"]
    if taken.error is not None:
        return [f"the sample ended with {taken.error.message}"]
    return [line.removeprefix("join ") for line in taken.ended if line.startswith("join ")]


def _rate(counts: Counts, name: str) -> NodeRate:
    return counts.nodes.get(name, NodeRate(0, 0))


def _topics_of(source: Any) -> str:
    return ", ".join(source.topics) or source.pattern.pattern
