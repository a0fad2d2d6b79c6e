"""Whether records may wait in a batch node (`engine.runtime.batches.batch_node`) without a change of order downstream.

What is behind the node (nodes, their stores, the topics they write) may also be reached by records that do not pass it: a join's other
side, a merged stream, a store that a processor shares. Then a record must not wait while such a one is processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum

from kstreams_repl.engine.topology.nodes import Node, SinkNode


class Mixing(Enum):
    """What else reaches the nodes and stores behind a batch node, and so how long records may wait."""

    NOTHING = "nothing: until the task has processed what it was given"
    QUEUES = "records of other partitions: until the task takes one of another partition"
    RECORDS = "the same source's records: not at all"


def mixing_of(name: str, nodes: Mapping[str, Node]) -> Mixing:
    """Return what else reaches the nodes, stores and topics behind a batch node."""
    children: dict[str, list[str]] = {each: [] for each in nodes}
    for each, node in nodes.items():
        for parent in getattr(node, "parents", ()):
            children[parent].append(each)
    behind = set(_reached(children[name], children.__getitem__))
    used = {used for each in behind for used in _used(nodes[each])}
    others = [
        each
        for each, node in nodes.items()
        if each != name and each not in behind and (behind.intersection(children[each]) or used.intersection(_used(node)))
    ]
    if not others:
        return Mixing.NOTHING

    def parents(each: str) -> Sequence[str]:
        return getattr(nodes[each], "parents", ())

    return Mixing.RECORDS if set(_reached([name], parents)) & set(_reached(others, parents)) else Mixing.QUEUES


def _used(node: Node) -> Iterator[str]:
    """Yield what a node writes."""
    yield from getattr(node, "stores", ())
    if isinstance(node, SinkNode) and node.topic is not None:
        yield f"topic {node.topic}"


def _reached(start: Sequence[str], onward: Callable[[str], Sequence[str]]) -> list[str]:
    reached, left = dict.fromkeys(start), list(start)
    while left:
        for name in onward(left.pop()):
            if name not in reached:
                reached[name] = None
                left.append(name)
    return list(reached)
