"""A new key and value for each record. Kafka Streams' `KStreamMap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.types import Headers


@dataclass(slots=True)
class StreamMap(Operator):
    """Forward `mapper(key, value)`, a pair (new key, new value); timestamp and headers are kept.

    Attributes:
        mapper: (key, value) -> (key, value); anything that is not a pair is an error.
    """

    mapper: Callable[[Any, Any], tuple[Any, Any]]

    def build(self, node: NodeContext, forward: Process) -> Process:
        mapper = self.mapper

        def map_(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new_key, new_value = mapper(key, value)
            forward(new_key, new_value, timestamp, headers)

        return map_
