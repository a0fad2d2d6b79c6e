"""Map each record to any number of values. Kafka Streams' `KStreamFlatMapValues`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.user_functions import with_key_of
from kstreams_repl.system.types import Headers, ValueMapper


@dataclass(slots=True)
class StreamFlatMapValues(Operator):
    """Forward the same key with each value of the mapper's iterable, in order.

    Attributes:
        mapper: (value) -> iterable of values, or (key, value) -> iterable when `with_key`.
        with_key: the mapper also takes the key.
    """

    word = "flat_map"

    mapper: ValueMapper
    with_key: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        mapper = with_key_of(self.mapper, self.with_key)

        def flat_map_values(key: object, value: object, timestamp: int, headers: Headers) -> None:
            for new_value in mapper(key, value):
                forward(key, new_value, timestamp, headers)

        return kernel(node, flat_map_values, calls={"mapper"})
