"""Set a new key for each record. Kafka Streams' `selectKey`, a `KStreamMap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.system.types import Headers


@dataclass(slots=True)
class StreamSelectKey(Operator):
    """Forward the same value with the key `selector(key, value)`, which may be None.

    Attributes:
        selector: (key, value) -> key.
    """

    one_to_one: ClassVar[bool] = True

    selector: Callable[[Any, Any], Any]

    def build(self, node: NodeContext, forward: Process) -> Process:
        selector = self.selector

        def select_key(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(selector(key, value), value, timestamp, headers)

        return kernel(node, select_key, calls={"selector"})
