"""Filter a table's rows. Kafka Streams' `KTableFilter`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class TableFilter(Operator):
    """Rows for which the predicate fails become tombstones.

    The old value comes from `store` when there is one, else from filtering the parent's old value when `send_old_values`, else
    None. When
    `send_old_values`, not `versioned`, and both new and old come out None, nothing is forwarded.

    Attributes:
        predicate: (key, value) -> truth value; never called with a None value.
        negate: True for `filter_not`.
        store: name of the materialized result, or None.
        send_old_values: forward old values too.
        versioned: the parent table is versioned, so redundant tombstones are kept.
        store_versioned: `store` is a versioned one.
    """

    predicate: Callable[[Any, Any], Any]
    negate: bool = False
    store: str | None = None
    send_old_values: bool = False
    versioned: bool = False
    store_versioned: bool = False
