"""How many records entered and left each node of one task, and how many it dropped: exact, at every recording level.

Little is counted per record. A source's records are counted by its queues, a batch at a time; the output of a node that forwards one
record for each input (`Operator.one_to_one`) is derived from its parents; a generated loop (`loop_codegen`) adds its local counters
when it ends; rows flushed from a cache in columns add their number. Only other nodes, for example filters and joins, count what they
forward, with one addition each. Invariant: a node's input is what its parents forward to it, so each record is counted in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.engine.topology.nodes import Node, SinkNode, SourceNode
from kstreams_repl.system.types import Headers, Outlet

Counter = list[int]
_NONE = (0,)


@dataclass(frozen=True, slots=True)
class NodeCount:
    """The records that passed one node.

    Attributes:
        taken: records that entered it; of a source: that were read from its topics.
        given: records that it forwarded; of a sink: that it sent. 0 if it has no children.
        dropped: records that it dropped, by reason. Records that a filter rejects are not dropped.
        needed_grace_ms: the grace with which none would have been late, as far as this is known: it is not committed.
    """

    taken: int = 0
    given: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    needed_grace_ms: int = field(default=0, repr=False)

    def __add__(self, other: NodeCount) -> NodeCount:
        reasons = {*self.dropped, *other.dropped}
        dropped = {reason: self.dropped.get(reason, 0) + other.dropped.get(reason, 0) for reason in sorted(reasons)}
        grace = max(self.needed_grace_ms, other.needed_grace_ms)
        return NodeCount(self.taken + other.taken, self.given + other.given, dropped, grace)


NodeCounts = Mapping[str, NodeCount]
"""By node name."""


def added(many: Iterable[NodeCounts]) -> dict[str, NodeCount]:
    """Return the sum of the counts of several tasks, node by node."""
    total: dict[str, NodeCount] = {}
    for counts in many:
        for node, count in counts.items():
            total[node] = total[node] + count if node in total else count
    return total


class TaskCounts:
    """The counts of one task: the initial ones (`begin`) plus what was counted since.

    Attributes:
        entered: by source, a function that returns how many records the source has forwarded to its children.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = {node.name: node for node in nodes}
        above = {parent for node in nodes if not isinstance(node, SourceNode) for parent in node.parents}
        self._bottom = frozenset(self._nodes) - above
        self._forwarded: dict[str, Counter] = {}
        self._to_child: dict[tuple[str, str], Counter] = {}
        self._dropped: dict[str, dict[str, int]] = {}
        self._grace: dict[str, int] = {}
        self._base: NodeCounts = {}
        self.entered: dict[str, Callable[[], int]] = {}

    # ---- while nodes are built

    def counter(self, node: str) -> Counter | None:
        """Return the counter of the node's forwarded records; None if they are derived from what it takes."""
        described = self._nodes[node]
        if isinstance(described, SourceNode) or node in self._bottom or getattr(getattr(described, "operator", None), "one_to_one", False):
            return None
        return self._forwarded.setdefault(node, [0])

    def forwarding(self, node: str, forward: Process) -> Process:
        """Return the node's forward function, wrapped to count where necessary."""
        counter = self.counter(node)
        return forward if counter is None else _counting(counter, forward)

    def to_child(self, node: str, child: str, entry: Process) -> Process:
        """Return the node's forward function to a single child, wrapped to count."""
        return _counting(self._to_child.setdefault((node, child), [0]), entry)

    def rows(self, node: str, outlet: Outlet) -> Outlet:
        """Return the outlet of the node's rows in columns, wrapped to count."""
        counter = self.counter(node)
        assert counter is not None, f"{node} forwards rows of a store"

        def counted(
            keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int], headers: Sequence[Headers] | None
        ) -> None:
            counter[0] += len(keys)
            outlet(keys, values, timestamps, headers)

        return counted

    # ---- at run time

    def drop(self, node: str, reason: str, needed_grace_ms: int = 0) -> None:
        reasons = self._dropped.setdefault(node, {})
        reasons[reason] = reasons.get(reason, 0) + 1
        if needed_grace_ms > self._grace.get(node, 0):
            self._grace[node] = needed_grace_ms

    def begin(self, base: NodeCounts) -> None:
        """Continue from these counts; nodes that are not part of this task are ignored."""
        self._base = {node: count for node, count in base.items() if node in self._nodes}

    # ---- results

    def read(self) -> dict[str, NodeCount]:
        """Return the current counts; exact between two records."""
        counts: dict[str, NodeCount] = {}
        through: dict[str, int] = {}  # what each node forwards to all of its children
        for name, node in self._nodes.items():  # parents come before their children
            dropped = dict(self._dropped.get(name, ()))
            lost = sum(dropped.values())
            if isinstance(node, SourceNode):
                through[name] = self.entered.get(name, int)()
                count = NodeCount(through[name] + lost, through[name], dropped)
            else:
                to_child = self._to_child
                taken = sum(through[parent] + to_child.get((parent, name), _NONE)[0] for parent in node.parents)
                counter = self.counter(name)
                through[name] = taken - lost if counter is None else counter[0]
                given = through[name] + sum(to[0] for (parent, _), to in tuple(to_child.items()) if parent == name)
                count = NodeCount(taken, 0 if name in self._bottom and not isinstance(node, SinkNode) else given, dropped)
            if name in self._grace:
                count = replace(count, needed_grace_ms=self._grace[name])
            counts[name] = self._base[name] + count if name in self._base else count
        return counts


def _counting(counter: Counter, forward: Process) -> Process:
    def counted(key: object, value: object, timestamp: int, headers: Headers) -> None:
        counter[0] += 1
        forward(key, value, timestamp, headers)

    return counted
