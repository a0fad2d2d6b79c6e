"""Record counts of an application's nodes, since it was made and in its present version, and its lag; while it runs, and at rest.

Actors: the instances, which report while they run; the application's committed offsets, with which the counts are stored
(`commit.committed_counts`), so that they outlive epochs, edits, pauses and kernels; the journal, where each version has the
counts of the commit at which it took effect. `Counting` uses the reports if every instance has sent one, and else the commit.
Invariant: a call waits for the broker no longer than `PATIENCE_SECONDS`; without an answer it returns what was known before.
"""

from __future__ import annotations

import base64
import binascii
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kstreams_repl.commit.committed_counts import committed_counts
from kstreams_repl.commit.offset_metadata import decode
from kstreams_repl.display.frames import Frames
from kstreams_repl.display.table import Table
from kstreams_repl.kafka.journal import JournalReader
from kstreams_repl.runtime.node_counts import NodeCount, NodeCounts, added
from kstreams_repl.session.views.consumer_lag import Remaining, remaining, topics_of_source
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.topology import Topology

if TYPE_CHECKING:
    from kstreams_repl.session.application.application import Application
    from kstreams_repl.spark.instance_reports import ApplicationReport

PATIENCE_SECONDS = 1.5
FRESH_SECONDS = 2.0

_JOURNAL_SECONDS = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeRate:
    """Counts of one node.

    Attributes:
        records: that entered it; of a source: that were read from its topics.
        given: that it forwarded; of a sink: that it sent.
        dropped: that it dropped, by reason; records that a filter rejects are not dropped.
        per_second: records that entered it per second, over the last few seconds; 0 at rest.
    """

    records: int
    given: int
    per_second: float = 0.0
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counts(Frames):
    """An application's counts at one time.

    Attributes:
        nodes: by name, without nodes of which no counts are known.
        lags: records behind the end, by topic and partition on the broker (``topic-0``); -1 while unknown.
        records, per_second: of the application's input: what its sources read from topics that are not its own.
        this_version: the same, counted from the commit at which the version in force took effect; of a first version all of it.
            None until the broker has answered.
    """

    nodes: Mapping[str, NodeRate] = field(default_factory=dict)
    lags: Mapping[str, int] = field(default_factory=dict)
    records: int = 0
    per_second: float = 0.0
    this_version: Counts | None = None

    @property
    def lag(self) -> int:
        """Records behind, over all topics; -1 while unknown."""
        return total_lag(self.lags.values())

    def table(self) -> Table:
        """Return one row for each node: records taken and forwarded, records per second, records dropped.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.Counts({"words": ks.NodeRate(3, 2)}).table().rows
            (('words', 3, 2, 0.0, 0),)
        """
        rows = [
            (name, rate.records, rate.given, round(rate.per_second, 1), sum(rate.dropped.values())) for name, rate in self.nodes.items()
        ]
        note = f"{self.records:,} records of the input, {'lag unknown' if self.lag < 0 else f'{self.lag:,} behind'}"
        return Table.of(("node", "records", "given", "records/s", "dropped"), rows, note=note)


def total_lag(lags: Iterable[int]) -> int:
    """Return the sum; -1 if there are none, or one is unknown."""
    known = list(lags)
    return -1 if not known or min(known) < 0 else sum(known)


class Counting:
    """The counts of one application; may be called from any thread."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._last = Counts()
        self._turn = 0
        self._rest: _Answer[Remaining] = _Answer(f"rest-{app.name}")
        self._before: _Answer[bytes] = _Answer(f"version-{app.name}", keep=math.inf)

    def look(self) -> Counts:
        """Return the present counts."""
        self._last = self._look()
        before = self._before_version()
        return self._last if before is None else replace(self._last, this_version=since(self._app.topology, self._last, before))

    def forget(self) -> None:
        """Note a control call on the application: the next `look` queries the broker."""
        self._turn += 1

    def _look(self) -> Counts:
        app = self._app
        status = app.status
        if status == "running":
            told = app.reports
            if _complete(told, getattr(app._deployment.plan, "instances", None)):
                return reported(app.topology, told)
        rest = self._rest.look(
            (status, self._turn), lambda: remaining(app.session.admin, app.name, app.topology), closed=app.session.closed
        )
        return self._last if rest is None else committed(app.topology, rest, self._last)

    def _before_version(self) -> NodeCounts | None:
        """Return the counts of the nodes at the commit at which the version in force took effect, from the journal."""
        app = self._app
        versions = app._history.versions
        number = versions[-1].number if versions else 1
        if number == 1:
            return {}
        data = self._before.look((number, self._turn), lambda: _counted_before(app, number), closed=app.session.closed)
        return None if data is None else committed_counts(data, app.topology.nodes)


def reported(topology: Topology, told: ApplicationReport) -> Counts:
    """Return the counts that the instances reported."""
    rates: dict[str, float] = {}
    for instance in told.instances.values():
        for node, figures in (instance.nodes or {}).items():
            rates[node] = rates.get(node, 0.0) + figures[2]
    counts = added({node: _count(figures) for node, figures in (one.nodes or {}).items()} for one in told.instances.values())
    for instance in told.instances.values():  # every instance reads the whole global table: do not add
        counts |= {node: _count(figures) for node, figures in instance.global_nodes.items()}
    lags = {at: lag for task in told.tasks.values() for at, lag in (task.lags or {at: -1 for at in task.committed}).items()}
    return _look(topology, counts, rates, lags)


def committed(topology: Topology, rest: Remaining, before: Counts) -> Counts:
    """Return the counts stored with the committed offsets; of global tables, which no commit covers, the counts known before."""
    names = list(topology.nodes)
    counts = added(committed_counts(decode(offset.metadata).counts, names) for offset in rest.committed.values())
    shared = topology.global_stores()
    for node in () if shared is None else shared.nodes:
        if node.name in before.nodes:
            known = before.nodes[node.name]
            counts[node.name] = NodeCount(known.records, known.given, known.dropped)
    return _look(topology, counts, {}, {str(at): records for at, records in rest.records.items()})


def since(topology: Topology, now: Counts, before: NodeCounts) -> Counts:
    """Return the counts after a commit. A node whose count is lower than at that commit has restarted: keep its count whole."""
    nodes = dict(now.nodes)
    for name, known in now.nodes.items():
        earlier = before.get(name)
        if earlier is None or earlier.taken > known.records or earlier.given > known.given:
            continue
        dropped = {reason: number - earlier.dropped.get(reason, 0) for reason, number in known.dropped.items()}
        nodes[name] = replace(
            known,
            records=known.records - earlier.taken,
            given=known.given - earlier.given,
            dropped={reason: number for reason, number in dropped.items() if number > 0},
        )
    return replace(now, nodes=nodes, records=_input(topology, nodes), this_version=None)


def source_lag(app: Application, source: SourceNode, lags: Mapping[str, int]) -> int | None:
    """Return the lag of a source; -1 while unknown, None for a global table, which has none."""
    shared = app.topology.global_stores()
    if shared is not None and source in shared.nodes:
        return None
    topics = {at.rpartition("-")[0]: 0 for at in lags}
    mine = topics_of_source(source, app.topology, app.name, topics)
    return total_lag(lag for at, lag in lags.items() if at.rpartition("-")[0] in mine)


def _look(topology: Topology, counts: Mapping[str, NodeCount], rates: Mapping[str, float], lags: Mapping[str, int]) -> Counts:
    nodes = {
        node: NodeRate(counts[node].taken, counts[node].given, rates.get(node, 0.0), counts[node].dropped)
        for node in topology.nodes
        if node in counts
    }
    speed = sum(nodes[name].per_second for name in input_sources(topology) if name in nodes)
    return Counts(nodes, dict(lags), _input(topology, nodes), speed)


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
    taken, given, _, dropped = figures
    return NodeCount(taken, given, dropped)


def _complete(told: ApplicationReport, instances: int | None) -> bool:
    """Return whether every instance has reported the counts of its nodes."""
    reports = told.instances.values()
    return len(reports) >= (instances or 1) and all(report.nodes is not None for report in reports)


def _counted_before(app: Application, version: int) -> bytes | None:
    """Return a version's counts from the journal; None while it has no such version."""
    reader = JournalReader(app.session.settings, app.name, reports=False)
    try:
        said = reader.catch_up(app.session.admin, seconds=_JOURNAL_SECONDS).versions.get(version)
    finally:
        reader.close()
    try:
        return None if said is None else base64.b64decode(said.counts)
    except binascii.Error:  # not written by this project
        return b""


class _Answer(Generic[T]):
    """The broker's answer to a query, which runs in a thread of its own. The answer is kept for a while.

    Args:
        name: of the thread.
        keep: seconds after which the query is sent again.
    """

    def __init__(self, name: str, *, keep: float = FRESH_SECONDS) -> None:
        self._name = name
        self._keep = keep
        self._lock = threading.Lock()
        self._known: T | None = None
        self._of: Any = None
        self._failed: Any = None
        self._at = 0.0
        self._asking: threading.Event | None = None

    def look(self, wanted: Any, ask: Callable[[], T | None], *, closed: bool) -> T | None:
        """Return the last answer to a query; None while there is none.

        Args:
            wanted: identifies the query; the answer to another one does not count.
            ask: returns the answer; None, or an error: no answer yet.
            closed: no more queries are possible: return the last answer to any query.
        """
        with self._lock:
            age = time.monotonic() - self._at
            fresh = self._of == wanted and age < self._keep or self._failed == wanted and age < FRESH_SECONDS
            if fresh or closed:
                return self._known if self._of == wanted or closed else None
            asked = self._asking
            if asked is None:
                asked = self._asking = threading.Event()
                threading.Thread(target=self._ask, args=(wanted, ask, asked), name=self._name, daemon=True).start()
            wait = self._of != wanted
        if wait:
            asked.wait(PATIENCE_SECONDS)
        return self._known if self._of == wanted else None

    def _ask(self, wanted: Any, ask: Callable[[], T | None], asked: threading.Event) -> None:
        try:
            found = ask()
        except Exception:  # the broker is unreachable, or the session is closed: keep the last answer
            found = None
        with self._lock:
            self._asking = None
            self._at = time.monotonic()
            self._failed = wanted if found is None else None
            if found is not None:
                self._known, self._of = found, wanted
        asked.set()
