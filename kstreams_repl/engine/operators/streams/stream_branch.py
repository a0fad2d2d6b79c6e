"""Forward each record to the first child whose predicate is true. Kafka Streams' `KStreamBranch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.system.types import Headers, Predicate


@dataclass(slots=True)
class StreamBranch(Operator):
    """Forward only to `child_names[i]` for the first predicate i that is true.

    If none is true, the record goes to the default branch `child_names[len(predicates)]` if there is one, otherwise nowhere (not counted
    as dropped).

    Attributes:
        predicates: (key, value) -> truth value, tried in order.
        child_names: names of the branch nodes: one per predicate, and one more if there is a default branch.
    """

    word = "branch"

    hands_on: ClassVar[bool] = True

    predicates: list[Predicate]
    child_names: list[str]

    def build(self, node: NodeContext, forward: Process) -> Process:
        children = [node.child(name) for name in self.child_names]
        tests = tuple(zip(self.predicates, children, strict=False))
        default = children[len(self.predicates)] if len(children) > len(self.predicates) else None

        def branch(key: object, value: object, timestamp: int, headers: Headers) -> None:
            for predicate, child in tests:
                if predicate(key, value):
                    child(key, value, timestamp, headers)
                    return
            if default is not None:
                default(key, value, timestamp, headers)

        return branch
