"""Aggregates of a grouped stream, one row per key. Kafka Streams' `KStreamAggregate`, `KStreamReduce`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamAggregate(Operator):
    """`store[key] = aggregator(key, value, old aggregate or initializer())`; forwards `(new, old, True)`.

    A record with a None key or value is dropped and counted. The result's timestamp is max(aggregate's, record's). The store is a
    timestamped key-value store, or a versioned one (`versioned`); with a cached store nothing is forwarded by the operator
    itself.

    Attributes:
        store: name of the (timestamped or versioned) key-value store.
        initializer: () -> first aggregate.
        aggregator: (key, value, aggregate) -> aggregate; None deletes the row and forwards a tombstone.
        send_old_values: forward the old aggregate too (set by the DSL when something downstream needs it).
        versioned: the store is a versioned one; out-of-order puts are not the latest (`is_latest` False).
    """

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old_values: bool = False
    versioned: bool = False


@dataclass(slots=True)
class StreamReduce(Operator):
    """As `StreamAggregate`, but a key's first value is its first aggregate.

    Attributes:
        store: name of the (timestamped or versioned) key-value store.
        reducer: (aggregate, value) -> aggregate.
        send_old_values: forward the old aggregate too.
        versioned: the store is a versioned one.
    """

    store: str
    reducer: Callable[[Any, Any], Any]
    send_old_values: bool = False
    versioned: bool = False


@dataclass(slots=True)
class StreamCount(Operator):
    """As `StreamAggregate` with 0 and `+ 1`: kept apart for speed.

    Attributes:
        store: name of the (timestamped or versioned) key-value store of 64-bit counts.
        send_old_values: forward the old count too.
        versioned: the store is a versioned one.
    """

    store: str
    send_old_values: bool = False
    versioned: bool = False
