"""Map a table's values. Kafka Streams' `KTableMapValues`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class TableMapValues(Operator):
    """New value by the mapper; tombstones pass without a call.

    The old value comes from `store` when there is one, else by mapping the parent's old value when `send_old_values`, else None.

    Attributes:
        mapper: (value) -> value, or (key, value) -> value when `with_key`; never called with a None value.
        with_key: the mapper also takes the key.
        store: name of the materialized result, or None.
        send_old_values: forward old values too.
        store_versioned: `store` is a versioned one.
    """

    mapper: Callable[..., Any]
    with_key: bool = False
    store: str | None = None
    send_old_values: bool = False
    store_versioned: bool = False
