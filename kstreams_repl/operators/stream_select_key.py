"""A new key for each record. Kafka Streams' `selectKey`, a `KStreamMap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.types import Headers


@dataclass(slots=True)
class StreamSelectKey(Operator):
    """Forward the same value under `selector(key, value)`; the new key may be None.

    Attributes:
        selector: (key, value) -> key.
    """

    selector: Callable[[Any, Any], Any]

    def build(self, node: NodeContext, forward: Process) -> Process:
        selector = self.selector

        def select_key(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(selector(key, value), value, timestamp, headers)

        return select_key
