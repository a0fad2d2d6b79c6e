"""Aggregates in session windows. Kafka Streams' `KStreamSessionWindowAggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamSessionWindowAggregate(Operator):
    """Merge a record with all sessions of its key within `gap_ms` on both sides; one row per merged session `[start, end]`.

    None keys are dropped and counted; None values are aggregated. Order of calls: initializer, mergers, aggregator last.
    Merged sessions
    get a tombstone each, in store order, before the new one is forwarded. Results have timestamp = session end and no headers.

    Attributes:
        store: name of the session store.
        initializer: () -> first aggregate.
        aggregator: (key, value, aggregate) -> aggregate.
        merger: (key, aggregate, aggregate) -> aggregate.
        gap_ms, grace_ms: the windows.
        emit_on_close: emit each session once, when it closes.
        send_old_values: forward the old aggregate too.
        count: this is `count()`.
    """

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any]
    gap_ms: int
    grace_ms: int
    emit_on_close: bool = False
    send_old_values: bool = False
    count: bool = False
