"""`Sample`: the values at the nodes of a topology that ran over a sample of its topics."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.repl.session.views.picture.join_keys import JoinKeys
from kstreams_repl.system.errors import KStreamsError


@dataclass(slots=True)
class NodeSample:
    """Values that one node forwarded: their total number, the last of them, and the smallest and largest timestamp of all."""

    last: deque[ReadRecord]
    count: int = 0
    earliest: int = sys.maxsize
    latest: int = -1


@dataclass(slots=True)
class Sample:
    """A run over a sample.

    Attributes:
        keys: of the joins.
        nodes: by node name, in the topology's order.
        counts: what entered and left each node.
        fed: records fed in, including the one at which a function failed.
        whole: the sample has all records.
        parts: of topics that the sample has in part, how many of their records it has, and how many offsets there are.
        ended: the nodes at which records ended, and why (`where_values_end`).
        error: what a user function raised; the sample ends there.
    """

    keys: JoinKeys = field(repr=False)
    nodes: dict[str, NodeSample] = field(default_factory=dict)
    counts: Mapping[str, NodeCount] = field(default_factory=dict)
    fed: int = 0
    whole: bool = False
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    error: KStreamsError | None = None
