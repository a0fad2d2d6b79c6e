"""Map each record to a new key and value. Kafka Streams' `KStreamMap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.system.types import Headers


@dataclass(slots=True)
class StreamMap(Operator):
    """Forward `mapper(key, value)`, a pair (new key, new value); timestamp and headers are kept.

    Attributes:
        mapper: (key, value) -> (key, value); a result that is not a pair raises.
    """

    one_to_one: ClassVar[bool] = True

    mapper: Callable[[Any, Any], tuple[Any, Any]]

    def build(self, node: NodeContext, forward: Process) -> Process:
        mapper = self.mapper

        def map_(key: object, value: object, timestamp: int, headers: Headers) -> None:
            new_key, new_value = mapper(key, value)
            forward(new_key, new_value, timestamp, headers)

        return kernel(node, map_, calls={"mapper"})
