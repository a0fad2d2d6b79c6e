"""Which sub-topologies advance together in event time, and how far one may be ahead. Pure functions of the topology."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.operators.lateness import Lateness, lateness_in
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.topology.nodes import Node, SinkNode, SourceNode
from kstreams_repl.engine.topology.subtopologies import Subtopology

NOTHING = (1 << 63) - 1
"""The low of a task, or of an instance, without records that others must wait for."""


@dataclass(frozen=True, slots=True)
class AlignmentRule:
    """Which sub-topologies advance together, and how far one may be ahead.

    Attributes:
        drift_ms: set by the application; None: it follows from the operators.
        upstream: the numbers of the rules whose sub-topologies write what these read. One that reads what these write is not among
            them (foreign-key joins are such cycles): each would wait for the other.
    """

    parts: frozenset[int]
    lateness: tuple[Lateness, ...]
    drift_ms: int | None = None
    upstream: tuple[int, ...] = ()

    def limit(self, low: int, *, peers: bool = False) -> int:
        """Return the event time that must not be processed while a record of time `low` may come.

        Args:
            peers: between instances half of each grace is used: they learn of each other only at commits.
        """
        if low >= NOTHING:
            return NOTHING
        if self.drift_ms is not None:
            return low + self.drift_ms + 1
        return min(each.of(low) + (each.grace_ms // 2 if peers else 0) for each in self.lateness)


def alignment_rules(parts: Iterable[Subtopology], config: StreamsConfig) -> tuple[AlignmentRule, ...]:
    """Return the groups of a topology.

    Sub-topologies are in one group if an operator downstream of all of them, behind a topic, is sensitive to time, and if they are
    equally far from the topology's input: the records of one that is behind another one's repartition are later by nature. What only
    shares a sub-topology with such a topic's source is not behind it: windows beside a foreign-key join align nothing.
    """
    drift: int | None = config["repl.alignment.drift.ms"]
    if drift is not None and drift < 0:
        return ()
    by_id = {part.id: part for part in parts if not part.global_}
    reached = _reached(by_id)
    sensitive = {part: {other: lateness_in(nodes) for other, nodes in behind.items()} for part, behind in reached.items()}
    depth = {part: sum(part in behind for behind in reached.values()) for part in by_id}
    groups: list[tuple[int, set[int], set[int]]] = []
    for part in by_id:
        goals = {other for other in reached[part] if sensitive[part][other] or drift is not None}
        if not goals:
            continue
        met = [group for group in groups if group[0] == depth[part] and group[2] & goals]
        groups = [group for group in groups if group not in met]
        groups.append(
            (depth[part], {part}.union(*(group[1] for group in met)), goals.union(*(group[2] for group in met)))
        )
    rules = []
    for _, members, goals in groups:
        lateness = tuple(dict.fromkeys(
            each for goal in sorted(goals) for part in sorted(members) for each in sensitive[part].get(goal, ())
        ))
        read = {topic for part in members for topic in by_id[part].source_topics}
        upstream = [
            number
            for number, (_, others, _) in enumerate(groups)
            if any(_written(by_id[part].nodes) & read for part in others) and not any(others & reached[part].keys() for part in members)
        ]
        rules.append(AlignmentRule(frozenset(members), lateness, drift, tuple(upstream)))
    return tuple(rules)


def late_reasons(parts: Iterable[Subtopology], config: StreamsConfig, partitions: Mapping[str, int]) -> dict[str, str]:
    """Return the nodes without grace behind a repartition of several partitions that may drop records of history, with the reason.

    Args:
        partitions: of the topics on the broker.
    """
    by_id = {part.id: part for part in parts if not part.global_}
    reached = _reached(by_id)
    drift = config["repl.alignment.drift.ms"]
    found = {}
    for goal, part in by_id.items():
        above = [other for other in by_id if goal in reached[other]]
        topics = [topic for other in above for topic in by_id[other].source_topics]
        if max((partitions.get(topic, 1) for topic in topics), default=1) < 2:
            continue
        direct = {other for other in above if _written(by_id[other].nodes) & set(part.source_topics)}
        if drift is not None and drift < 0:
            why = "alignment is off (repl.alignment.drift.ms=-1)"
        elif len({sum(other in reached[each] for each in by_id) for other in direct}) > 1:
            why = "its records have passed different numbers of repartitions"
        elif any(isinstance(getattr(node, "operator", None), StreamAsync) for other in above for node in by_id[other].nodes):
            why = "an asynchronous function upstream forwards when its calls end"
        else:
            continue
        for node in {node.name: node for other in above for node in reached[other][goal]}.values():
            lateness = getattr(getattr(node, "operator", None), "lateness", None)
            if lateness is not None and not lateness.grace_ms:
                found[node.name] = why
    return found


def _written(nodes: Iterable[Node]) -> set[str]:
    return {node.topic for node in nodes if isinstance(node, SinkNode) and node.topic is not None}


def _reached(parts: Mapping[int, Subtopology]) -> dict[int, dict[int, list[Node]]]:
    """Return for each sub-topology those behind its topics, with the nodes that its records can reach there."""
    reached: dict[int, dict[int, list[Node]]] = {}
    for part in parts:
        topics: set[str] = set()
        more = _written(parts[part].nodes)
        while more - topics:
            topics |= more
            behind = {other: _downstream(parts[other], topics) for other in parts}
            more = _written(node for nodes in behind.values() for node in nodes)
        reached[part] = {other: nodes for other, nodes in behind.items() if nodes} if topics else {}
    return reached


def _downstream(part: Subtopology, topics: Set[str]) -> list[Node]:
    """Return the nodes of a sub-topology that records of these topics can reach."""
    found: dict[str, Node] = {}
    for node in part.nodes:  # parents come before children
        if not topics.isdisjoint(node.topics) if isinstance(node, SourceNode) else any(name in found for name in node.parents):
            found[node.name] = node
    return list(found.values())
