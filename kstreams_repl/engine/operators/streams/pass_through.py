"""Forward records unchanged. Kafka Streams' `PassThrough` (merge, branches) and `KTablePassThrough` (cogroup)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process


@dataclass(slots=True)
class PassThrough(Operator):
    """Forward each record unchanged: the node of `merge` and of each branch."""

    one_to_one: ClassVar[bool] = True

    hands_on: ClassVar[bool] = True

    def build(self, node: NodeContext, forward: Process) -> Process:
        return forward


@dataclass(slots=True)
class TablePassThrough(Operator):
    """Forward each change unchanged: merges the aggregate nodes of a cogroup, all of which write to `store`.

    Attributes:
        store: the store that all parents share; readers of this table use a getter on it.
    """

    one_to_one: ClassVar[bool] = True

    hands_on: ClassVar[bool] = True

    store: str

    def build(self, node: NodeContext, forward: Process) -> Process:
        return forward
