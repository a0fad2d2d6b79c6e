"""The topology of a fork: it writes topics of its own, and does nothing else that can be seen from outside.

A sink writes ``<application>.<fork>-<topic>`` in place of its topic, and a source of a topic that the topology writes, too, reads that one.
Functions of `peek`, `foreach` and `print`, tables of files, and sinks that choose their topic per record are left out unless they are
allowed. What functions of other operators and processors do besides returning is not known here: it is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.operators.streams.stream_peek import StreamPeek, StreamPrint
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import TopologyError, did_you_mean

DEAD_LETTERS = "errors.dead.letter.queue.topic.name"


@dataclass(frozen=True, slots=True)
class ForkTopology:
    """What a fork runs.

    Attributes:
        outputs: topics of its own, by the topic of the user's in whose place it writes.
        loops: those of them that it reads, too.
        left_out: nodes whose effect is left out, with what that is.
    """

    topology: Topology
    outputs: Mapping[str, str]
    loops: AbstractSet[str]
    left_out: Mapping[str, str]


def fork_topology(topology: Topology, config: StreamsConfig, fork_id: str, allow: Iterable[str]) -> ForkTopology:
    """Return what a fork runs in place of a topology.

    Args:
        allow: nodes whose effects are not left out.

    Raises:
        TopologyError: `allow` names a node that has no such effect, or an asynchronous node without durable results is not allowed.
    """
    allowed = {allow} if isinstance(allow, str) else set(allow)
    internal, dead_letters = set(topology.internal_topics), config[DEAD_LETTERS]
    written = [topic for topic in topology.sink_topics() if topic not in internal]
    outputs = {topic: f"{fork_id}-{topic}" for topic in (*written, *([dead_letters] if dead_letters else ()))}
    global_ = topology.global_stores()
    whole = {node.name for node in global_.nodes} if global_ is not None else set()
    loops = {
        topic
        for node in topology.nodes.values() if isinstance(node, SourceNode) and node.name not in whole
        for topic in node.topics if topic in outputs
    }  # fmt: skip
    effects = {name: effect for name, node in topology.nodes.items() if (effect := _effect_of(node))}
    for name in allowed - effects.keys():
        raise TopologyError(
            f"allow names {name!r}, which has no effect that a fork leaves out",
            hint=did_you_mean(name, effects) or f"those are {', '.join(effects) or 'none'}",
            node=name,
        )
    calls = [name for name in effects.keys() - allowed if isinstance(getattr(topology.node(name), "operator", None), StreamAsync)]
    if calls:
        raise TopologyError(
            f"asynchronous node {min(calls)!r} would call out for every record that the application calls out for, too",
            hint=f"allow it: allow=[{min(calls)!r}]; or keep its results (durable=True): then a fork has the application's answers",
            node=min(calls),
        )
    left_out = {name: effect for name, effect in effects.items() if name not in allowed}
    change = partial(_changed, outputs=outputs, loops=loops, internal=internal, left_out=left_out)
    return ForkTopology(topology.with_nodes(change, {topic: outputs[topic] for topic in loops}), outputs, loops, left_out)


def _effect_of(node: Node) -> str:
    """Return what a node does that is seen outside of Kafka, or in topics that are not known; "": nothing."""
    if isinstance(node, SinkNode):
        return (
            f"writes the table {node.table.path}"
            if node.table is not None
            else ""
            if node.topic
            else "writes topics that it chooses"
        )
    match getattr(node, "operator", None):
        case StreamPeek(forward_down=True):
            return "calls its function"
        case StreamPeek():
            return "calls its function for each record"
        case StreamPrint():
            return "prints"
        case StreamAsync() as operator:
            return "" if operator.options.durable else "calls out"
    return ""


def _changed(
    node: Node, *, outputs: Mapping[str, str], loops: AbstractSet[str], internal: AbstractSet[str], left_out: Collection[str]
) -> Node:
    if node.name in left_out:
        operator = getattr(node, "operator", None)
        forwards = isinstance(operator, StreamPeek) and operator.forward_down
        parents = () if isinstance(node, SourceNode) else node.parents
        return ProcessorNode(node.name, parents, StreamPeek(_nothing, forwards), (), node.origin)
    if isinstance(node, SinkNode) and node.topic is not None and node.topic not in internal:
        return replace(node, topic=outputs[node.topic])
    if isinstance(node, SourceNode) and not loops.isdisjoint(node.topics):
        return replace(node, topics=tuple(outputs[topic] if topic in loops else topic for topic in node.topics))
    return node


def _nothing(key: object, value: object) -> None:
    """In place of a function that is left out."""
