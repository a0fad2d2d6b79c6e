"""Map each record to a new value. Kafka Streams' `KStreamMapValues`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.user_functions import with_key_of
from kstreams_repl.system.types import Headers, ValueMapper


@dataclass(slots=True)
class StreamMapValues(Operator):
    """Forward the same key with a new value.

    Attributes:
        mapper: (value) -> value, or (key, value) -> value when `with_key`.
        with_key: the mapper also takes the key (read-only).
    """

    one_to_one: ClassVar[bool] = True

    mapper: ValueMapper
    with_key: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        mapper = with_key_of(self.mapper, self.with_key)

        def map_values(key: object, value: object, timestamp: int, headers: Headers) -> None:
            forward(key, mapper(key, value), timestamp, headers)

        return kernel(node, map_values, calls={"mapper"})
