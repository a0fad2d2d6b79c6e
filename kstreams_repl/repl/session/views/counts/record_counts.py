"""`Counts`: the record counts of an application's nodes at one time, and its lag, from reports or from committed offsets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.commit.committed_counts import committed_counts
from kstreams_repl.engine.commit.offset_metadata import decode
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount, NodeCounts, added
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.views.counts.consumer_lag import Remaining, topics_of_source

if TYPE_CHECKING:
    from kstreams_repl.host.spark.instance_reports import ApplicationReport

WINDOW_SECONDS = 4.0
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
LATE = frozenset({"expired window", "expired"})
"""The reasons of records that were dropped because their window, or its retention, was over."""


@dataclass(frozen=True, slots=True)
class NodeRate:
    """Counts of one node.

    Attributes:
        records: that entered it; of a source: that were read from its topics.
        given: that it forwarded; of a sink: that it sent.
        dropped: that it dropped, by reason; records that a filter rejects are not dropped.
        per_second: records that entered it per second, over the last few seconds; 0 at rest.
        needed_grace_ms: the grace with which none would have been late; 0 while unknown.
    """

    records: int
    given: int
    per_second: float = 0.0
    dropped: Mapping[str, int] = field(default_factory=dict)
    needed_grace_ms: int = field(default=0, repr=False)

    @property
    def late(self) -> int:
        """Records dropped because their window was closed; part of `dropped`."""
        return sum(number for reason, number in self.dropped.items() if reason in LATE)


@dataclass(frozen=True, slots=True)
class Counts(Frames):
    """An application's counts at one time.

    Attributes:
        nodes: by name, without nodes of which no counts are known.
        lags: records behind the end, by topic and partition on the broker (``topic-0``); -1 while unknown.
        waiting: records in asynchronous nodes, which wait for a call or for another try.
        records, per_second: of the application's input: what its sources read from topics that are not its own.
        this_version: the same, counted from the commit at which the version in force took effect; of a first version all of it.
            None until the broker has answered.
    """

    nodes: Mapping[str, NodeRate] = field(default_factory=dict)
    lags: Mapping[str, int] = field(default_factory=dict)
    records: int = 0
    per_second: float = 0.0
    waiting: int = 0
    this_version: Counts | None = None

    @property
    def lag(self) -> int:
        """Records behind, over all topics; -1 while unknown."""
        return total_lag(self.lags.values())

    @property
    def dropped(self) -> dict[str, int]:
        """Records that its nodes dropped, by reason: late ones, ones that could not be read or processed, null keys.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.Counts({"hourly": ks.reports.NodeRate(9, 2, dropped={"expired window": 7})}).dropped
            {'expired window': 7}
        """
        totals: dict[str, int] = {}
        for rate in self.nodes.values():
            for reason, number in rate.dropped.items():
                totals[reason] = totals.get(reason, 0) + number
        return totals

    def table(self) -> Table:
        """Return one row for each node: records taken and forwarded, records per second, records dropped.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.Counts({"words": ks.reports.NodeRate(3, 2)}).table().rows
            (('words', 3, 2, 0.0, 0),)
        """
        rows = [
            (name, rate.records, rate.given, round(rate.per_second, 1), sum(rate.dropped.values())) for name, rate in self.nodes.items()
        ]
        behind = "lag unknown" if self.lag < 0 else f"{self.lag:,} behind"
        first = f"{self.records:,} records of the input, {behind}{waiting_text(self.waiting)}{dropped_text(self)}"
        note = "\n".join([first, *late_lines(self)])
        return Table.of(("node", "records", "given", "records/s", "dropped"), rows, note=note)


def late_text(known: NodeRate) -> str:
    """Return how many records a node dropped as late, and which grace would have kept them; empty if it dropped none.

    Example:
        >>> late_text(NodeRate(1_000, 196, dropped={"expired window": 804}, needed_grace_ms=7_200_001))
        '804 records late: a grace of 121 min keeps them'
    """
    if not known.late:
        return ""
    most = known.needed_grace_ms
    if not most:
        return f"{counted(known.late, 'record')} late"
    unit, size = next((unit, size) for unit, size in _UNITS if most >= 10 * size or size == 1)
    return f"{counted(known.late, 'record')} late: a grace of {-(-most // size):,} {unit} keeps {'it' if known.late == 1 else 'them'}"


def late_lines(counts: Counts, nodes: Iterable[str] | None = None) -> list[str]:
    """Return one line for each node that dropped late records, of these nodes only or of all."""
    listed = counts.nodes if nodes is None else [name for name in nodes if name in counts.nodes]
    return [f"{name}: {text}, docs/concepts/late-records.md" for name in listed if (text := late_text(counts.nodes[name]))]


def waiting_text(waiting: int) -> str:
    """Return how many records wait in asynchronous nodes, for the end of a list; empty if none does."""
    return f", {waiting:,} waiting for calls" if waiting else ""


def dropped_text(counts: Counts) -> str:
    """Return how many records were dropped, by reason, for the end of a list; empty if none was."""
    late = sum(number for reason, number in counts.dropped.items() if reason in LATE)
    others = "".join(f", {number:,} dropped: {reason}" for reason, number in counts.dropped.items() if reason not in LATE)
    return others + (f", {late:,} late" if late else "")


class Rates:
    """Records per second of each node over the last few seconds: records arrive in commits, so shorter spans fluctuate."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def of(self, node: str, now: float, records: int) -> float | None:
        """Return the rate up to now; None until a second has passed. A lower count than before restarts the measurement."""
        seen = self._seen.setdefault(node, deque())
        if seen and records < seen[-1][1]:
            seen.clear()
        seen.append((now, records))
        while now - seen[0][0] > WINDOW_SECONDS:
            seen.popleft()
        since = now - seen[0][0]
        return (records - seen[0][1]) / since if since >= 1.0 else None

    def smoothed(self, topology: Topology, counts: Counts, now: float) -> Counts:
        """Return the counts with these rates, where there is one yet."""
        nodes = {
            name: count if (rate := self.of(name, now, count.records)) is None else replace(count, per_second=rate)
            for name, count in counts.nodes.items()
        }
        return replace(counts, nodes=nodes, per_second=_speed(topology, nodes))


def total_lag(lags: Iterable[int]) -> int:
    """Return the sum; -1 if there are none, or one is unknown."""
    numbers = list(lags)
    return -1 if not numbers or min(numbers) < 0 else sum(numbers)


def reported(topology: Topology, report: ApplicationReport) -> Counts:
    """Return the counts that the instances reported."""
    rates: dict[str, float] = {}
    for instance in report.instances.values():
        for node, figures in (instance.nodes or {}).items():
            rates[node] = rates.get(node, 0.0) + figures[2]
    counts = added({node: _count(figures) for node, figures in (one.nodes or {}).items()} for one in report.instances.values())
    for instance in report.instances.values():  # every instance reads the whole global table: do not add
        counts |= {node: _count(figures) for node, figures in instance.global_nodes.items()}
    lags = {at: lag for task in report.tasks.values() for at, lag in (task.lags or {at: -1 for at in task.committed}).items()}
    calls = [figures for instance in report.instances.values() for figures in instance.calls.values()]
    waiting = sum(one.get(figure) or 0 for one in calls for figure in ("in_flight", "waiting", "to_retry"))
    return _counts(topology, counts, rates, lags, waiting)


def committed(topology: Topology, rest: Remaining, before: Counts) -> Counts:
    """Return the counts stored with the committed offsets; of global tables, which no commit covers, the counts known before."""
    names = list(topology.nodes)
    counts = added(committed_counts(decode(offset.metadata).counts, names) for offset in rest.committed.values())
    shared = topology.global_stores()
    for node in () if shared is None else shared.nodes:
        if node.name in before.nodes:
            count = before.nodes[node.name]
            counts[node.name] = NodeCount(count.records, count.given, count.dropped)
    for name, count in before.nodes.items():  # not committed
        if name in counts:
            counts[name] = replace(counts[name], needed_grace_ms=count.needed_grace_ms)
    return _counts(topology, counts, {}, {str(partition): records for partition, records in rest.records.items()}, rest.waiting)


def since(topology: Topology, now: Counts, before: NodeCounts) -> Counts:
    """Return the counts after a commit. A node whose count is lower than at that commit has restarted: keep its count whole."""
    nodes = dict(now.nodes)
    for name, count in now.nodes.items():
        earlier = before.get(name)
        if earlier is None or earlier.taken > count.records or earlier.given > count.given:
            continue
        dropped = {reason: number - earlier.dropped.get(reason, 0) for reason, number in count.dropped.items()}
        nodes[name] = replace(
            count,
            records=count.records - earlier.taken,
            given=count.given - earlier.given,
            dropped={reason: number for reason, number in dropped.items() if number > 0},
        )
    return replace(now, nodes=nodes, records=_input(topology, nodes), this_version=None)


def source_lag(topology: Topology, application_id: str, source: SourceNode, lags: Mapping[str, int]) -> int | None:
    """Return the lag of a source; -1 while unknown, None for a global table, which has none."""
    shared = topology.global_stores()
    if shared is not None and source in shared.nodes:
        return None
    topics = {partition.rpartition("-")[0]: 0 for partition in lags}
    mine = topics_of_source(source, topology, application_id, topics)
    return total_lag(lag for partition, lag in lags.items() if partition.rpartition("-")[0] in mine)


def _counts(
    topology: Topology, counts: Mapping[str, NodeCount], rates: Mapping[str, float], lags: Mapping[str, int], waiting: int
) -> Counts:
    nodes = {
        node: NodeRate(counts[node].taken, counts[node].given, rates.get(node, 0.0), counts[node].dropped, counts[node].needed_grace_ms)
        for node in topology.nodes
        if node in counts
    }
    return Counts(nodes, dict(lags), _input(topology, nodes), _speed(topology, nodes), waiting)


def _speed(topology: Topology, nodes: Mapping[str, NodeRate]) -> float:
    return sum(nodes[name].per_second for name in input_sources(topology) if name in nodes)


def _input(topology: Topology, nodes: Mapping[str, NodeRate]) -> int:
    return sum(nodes[name].records for name in input_sources(topology) if name in nodes)


def input_sources(topology: Topology) -> list[str]:
    """Return the sources of topics that are not the application's own, without global tables, which process nothing."""
    return [
        node.name
        for part in topology.subtopologies()
        if not part.global_
        for node in part.nodes
        if isinstance(node, SourceNode) and not (node.topics and all(topic in topology.internal_topics for topic in node.topics))
    ]


def _count(figures: Any) -> NodeCount:
    taken, given, _, dropped, *grace = figures
    return NodeCount(taken, given, dropped, *grace)
