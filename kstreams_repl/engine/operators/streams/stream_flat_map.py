"""Map each record to any number of records. Kafka Streams' `KStreamFlatMap`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.system.types import Headers


@dataclass(slots=True)
class StreamFlatMap(Operator):
    """Forward each pair of `mapper(key, value)` in order, each before the next one is taken from the iterable.

    Attributes:
        mapper: (key, value) -> iterable of (key, value).
    """

    word = "flat_map"

    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]

    def build(self, node: NodeContext, forward: Process) -> Process:
        mapper = self.mapper

        def flat_map(key: object, value: object, timestamp: int, headers: Headers) -> None:
            for new_key, new_value in mapper(key, value):
                forward(new_key, new_value, timestamp, headers)

        return flat_map
