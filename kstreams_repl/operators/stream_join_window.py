"""Keep a stream's records for a windowed join. Kafka Streams' `KStreamJoinWindow`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamJoinWindow(Operator):
    """Put (key, value, timestamp) into the window store (unless the key or value is None), then forward the record.

    Attributes:
        store: name of the window store, which keeps duplicates.
    """

    store: str
