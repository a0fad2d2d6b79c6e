"""Keep the records for which a predicate is true (or false). Kafka Streams' `KStreamFilter`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.system.types import Headers, Predicate


@dataclass(slots=True)
class StreamFilter(Operator):
    """Forward a record unchanged if `bool(predicate(key, value)) != negate`.

    Also serves as the null-key filter before repartition topics.

    Attributes:
        predicate: (key, value) -> truth value; also called with None keys and values.
        negate: True for `filter_not`.
    """

    word = "filter"

    predicate: Predicate
    negate: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        predicate, negate = self.predicate, self.negate

        def filter_(key: object, value: object, timestamp: int, headers: Headers) -> None:
            if not predicate(key, value) if negate else predicate(key, value):
                forward(key, value, timestamp, headers)

        return kernel(node, filter_, calls={"predicate"})
