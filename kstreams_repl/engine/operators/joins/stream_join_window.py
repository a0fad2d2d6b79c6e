"""Store a stream's records for a windowed join. Kafka Streams' `KStreamJoinWindow`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.system.types import Headers


@dataclass(slots=True)
class StreamJoinWindow(Operator):
    """Forward the record, then put (key, value, timestamp) into the window store (None keys and None values are not stored).

    The put comes last, so that a self join over one store does not find the record itself.

    Attributes:
        store: name of the window store, which retains duplicates.
    """

    role = "join"

    hands_on: ClassVar[bool] = True

    store: str

    def build(self, node: NodeContext, forward: Process) -> Process:
        put, record = node.store(self.store).put, node.record

        def join_window(key: object, value: object, timestamp: int, headers: Headers) -> None:
            forward(key, value, timestamp, headers)
            if key is not None:
                record.timestamp, record.headers = timestamp, headers
                put(key, value, timestamp)

        return join_window
