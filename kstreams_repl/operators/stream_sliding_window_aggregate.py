"""Aggregates in sliding windows. Kafka Streams' `KStreamSlidingWindowAggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamSlidingWindowAggregate(Operator):
    """Aggregate each record into every window `[start, start + time_difference_ms]` (both ends included) that ends or starts
    at a record.

    None keys and None values are dropped and counted. A window with `end < stream time - grace_ms` is late.

    Attributes:
        store: name of the timestamped window store (time-ordered kind when `emit_on_close`).
        initializer: () -> first aggregate.
        aggregator: (key, value, aggregate) -> aggregate.
        time_difference_ms, grace_ms: the windows.
        emit_on_close: emit each window once, when it closes.
        send_old_values: forward the old aggregate too.
        count: this is `count()`.
    """

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    time_difference_ms: int
    grace_ms: int
    emit_on_close: bool = False
    send_old_values: bool = False
    count: bool = False
