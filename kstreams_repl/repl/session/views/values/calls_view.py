"""What the picture, `%topo` and `app.tap` say of nodes that wait: calls of asynchronous nodes, and synchronous nodes that hold up the
loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.operators.streams.stream_filter import StreamFilter
from kstreams_repl.engine.operators.streams.stream_flat_map import StreamFlatMap
from kstreams_repl.engine.operators.streams.stream_flat_map_values import StreamFlatMapValues
from kstreams_repl.engine.operators.streams.stream_map import StreamMap
from kstreams_repl.engine.operators.streams.stream_map_values import StreamMapValues
from kstreams_repl.engine.operators.streams.stream_peek import StreamPeek
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode
from kstreams_repl.engine.topology.topology import Topology

if TYPE_CHECKING:
    from kstreams_repl.host.spark.instance_reports import ApplicationReport

_INSTEAD: tuple[tuple[type[Operator], str], ...] = (
    (StreamMapValues, "map_values_async"),
    (StreamFilter, "filter_async"),
    (StreamFlatMapValues, "flat_map_values_async"),
    (StreamMap, "process_async"),
    (StreamFlatMap, "process_async"),
    (StreamPeek, "process_async"),
)
"""The operators whose functions can wait, and what to use then."""


def call_lines(report: ApplicationReport) -> dict[str, tuple[str, ...]]:
    """Return for each asynchronous node the lines about its calls, over all instances."""
    nodes = {name for instance in report.instances.values() for name in instance.calls}
    return {name: _lines(name, report) for name in nodes}


def _lines(node: str, report: ApplicationReport) -> tuple[str, ...]:
    found = [instance.calls[node] for instance in report.instances.values() if node in instance.calls]

    def total(figure: str) -> int:
        return sum(one.get(figure) or 0 for one in found)

    lines = [f"{total('in_flight'):,} in flight, {total('waiting'):,} waiting"]
    if times := [one["latency_ms"] for one in found if one.get("latency_ms") is not None]:
        lines.append(f"{sum(times) / len(times):,.0f} ms a call")
    if repeats := total("repeats"):
        lines.append(f"{repeats:,} {'retry' if repeats == 1 else 'retries'}")
    if waiting := total("to_retry"):
        lines.append(f"{waiting:,} to retry")
    states = {state for one in found if (state := one.get("breaker")) is not None}
    if states:
        lines.append(f"breaker {'open' if 'opened' in states else 'half-open' if 'half-opened' in states else 'closed'}")
    return tuple(lines)


def slow_lines(report: ApplicationReport, topology: Topology) -> dict[str, str]:
    """Return the line of each synchronous node that may be why its task takes longer than 100 ms per record."""
    slow: dict[int, float] = {}
    for task in report.tasks.values():
        if task.slow_ms is not None:
            part = int(task.task.partition("_")[0])
            slow[part] = max(slow.get(part, 0.0), task.slow_ms)
    return {
        node.name: f"{slow[part.id]:,.0f} ms a record: try {_instead(node)}"
        for part in topology.subtopologies()
        if part.id in slow
        for node in part.nodes
        if _instead(node)
    }


def _instead(node: Node) -> str:
    """Return the asynchronous form of a synchronous node that may wait; empty if it has none."""
    if not isinstance(node, ProcessorNode) or isinstance(node.operator, StreamAsync):
        return ""
    if not isinstance(node.operator, Operator):
        return "process_async"  # a processor
    return next((instead for kind, instead in _INSTEAD if isinstance(node.operator, kind)), "")
