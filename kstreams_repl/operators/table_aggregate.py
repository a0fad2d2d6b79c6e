"""Aggregates of a grouped table. Kafka Streams' `KTableAggregate`, `KTableReduce`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class TableAggregate(Operator):
    """Take the old row out of its group's aggregate, then put the new row in; forwards `(new, old, True)`.

    None keys are dropped and counted. A missing aggregate starts from `initializer()` (for `remove` too). Result timestamp:
    max(aggregate's, record's).

    Attributes:
        store: name of the (timestamped or versioned) key-value store.
        initializer: () -> first aggregate.
        add: (key, value, aggregate) -> aggregate.
        remove: (key, value, aggregate) -> aggregate.
        send_old_values: forward the old aggregate too.
        versioned: the store is a versioned one.
    """

    store: str
    initializer: Callable[[], Any]
    add: Callable[[Any, Any, Any], Any]
    remove: Callable[[Any, Any, Any], Any]
    send_old_values: bool = False
    versioned: bool = False


@dataclass(slots=True)
class TableReduce(Operator):
    """As `TableAggregate`, but a group's first value is its first aggregate and nothing is taken out of a missing one.

    Attributes:
        store: name of the (timestamped or versioned) key-value store.
        add: (aggregate, value) -> aggregate.
        remove: (aggregate, value) -> aggregate.
        send_old_values: forward the old aggregate too.
        versioned: the store is a versioned one.
    """

    store: str
    add: Callable[[Any, Any], Any]
    remove: Callable[[Any, Any], Any]
    send_old_values: bool = False
    versioned: bool = False
