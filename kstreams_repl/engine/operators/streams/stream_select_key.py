"""Set a new key for each record. Kafka Streams' `selectKey`, a `KStreamMap`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.system.types import Headers, KeyValueMapper


@dataclass(slots=True)
class StreamSelectKey(Operator):
    """Forward the same value with the key `selector(key, value)`, which may be None.

    Attributes:
        selector: (key, value) -> key.
    """

    one_to_one: ClassVar[bool] = True

    selector: KeyValueMapper

    def build(self, node: NodeContext, forward: Process) -> Process:
        selector = self.selector

        def select_key(key: object, value: object, timestamp: int, headers: Headers) -> None:
            forward(selector(key, value), value, timestamp, headers)

        return kernel(node, select_key, calls={"selector"})
