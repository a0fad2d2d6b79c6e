"""Where records become table rows. Kafka Streams' `KTableSource`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class TableSource(Operator):
    """Turn (key, value) records into changes `(new, old, is_latest)`, keeping rows in `store` when there is one.

    A None key is dropped and counted; a None value deletes. An out-of-order record is applied in offset order unless the store is
    versioned, where it is put as a version and forwarded with `is_latest` False when newer versions exist.

    Attributes:
        store: name of the store; None when nothing reads this table (not materialized): then `old` is always None.
        send_old_values: read and forward the old row (only with a store).
        versioned: the store is a versioned one.
    """

    store: str | None
    send_old_values: bool = False
    versioned: bool = False
