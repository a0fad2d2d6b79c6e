"""Aggregates in tumbling, hopping and unlimited windows. Kafka Streams' `KStreamWindowAggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamWindowAggregate(Operator):
    """`store[key, window] = aggregator(key, value, old or initializer())` for each window of the record; keys become `Windowed`.

    None keys are dropped and counted; None values are aggregated. Windows start at multiples of `advance_ms` and are
    `[start, start + size_ms)`; with `unlimited_start_ms` there is one window `[unlimited_start_ms, 2**63 - 1)` and earlier
    records hit none.
    Stream time is the operator's own (largest timestamp it was given, the record's included). A window with
    `end <= stream time - grace_ms` is late: counted as dropped, one per missed window.

    Attributes:
        store: name of the timestamped window store (time-ordered kind when `emit_on_close`).
        initializer: () -> first aggregate.
        aggregator: (key, value, aggregate) -> aggregate.
        size_ms, advance_ms, grace_ms: the windows.
        unlimited_start_ms: set for unlimited windows alone (size, advance and grace are then ignored).
        emit_on_close: emit each window once, when it closes (KIP-825), instead of on each update.
        send_old_values: forward the old aggregate too.
        count: this is `count()`: initializer and aggregator may be replaced by an inline 0 and + 1.
    """

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    size_ms: int
    advance_ms: int
    grace_ms: int
    unlimited_start_ms: int | None = None
    emit_on_close: bool = False
    send_old_values: bool = False
    count: bool = False
