"""Map a table's values with a stateful transformer. Kafka Streams' `KTableTransformValues`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.getters import ValueGetter


@dataclass(slots=True)
class TableTransformValues(Operator):
    """New value by `transformer.transform(key, value)`; called for tombstones too.

    The old value: from `store` when materialized; else, when `send_old_values`, by transforming the parent's old value with
    the same transformer
    (its output for the old value first); else None.

    Attributes:
        supplier: () -> transformer with `init(context)`, `transform(key, value)`, `close()`; the context cannot forward.
        parent: how to read the parent's row.
        stores: names of the stores that the transformer may ask its context for.
        store: name of the materialized result, or None.
        send_old_values: forward old values too.
        store_versioned: `store` is a versioned one.
    """

    supplier: Callable[[], Any]
    parent: ValueGetter
    stores: tuple[str, ...] = ()
    store: str | None = None
    send_old_values: bool = False
    store_versioned: bool = False
