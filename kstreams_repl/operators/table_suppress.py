"""Hold updates back until a time limit or until their window closes. Kafka Streams' `KTableSuppressProcessorSupplier`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.getters import ValueGetter


@dataclass(slots=True)
class TableSuppress(Operator):
    """Buffer the last change per key in time order; forward what is `wait_ms` older than the operator's own stream time.

    Entries are ordered by (buffer time, serialized key); an update keeps the *original* slot with the newest value and
    context. An entry is
    emitted with its own record context.

    Attributes:
        store: name of the suppress buffer (kind `SUPPRESS_BUFFER`).
        wait_ms: how long after its buffer time an entry is held. `until_window_closes`: the upstream grace period.
        window_end_time: buffer time is the window's end (key must be `Windowed`) instead of the record's timestamp.
        max_records, max_bytes: bounds of the buffer; None = unbounded.
        shut_down_when_full: over a bound: True raises, False emits the oldest early.
        drop_tombstones: tombstones of rows never shown are safe to drop (`until_window_closes`).
        parent: how to read the parent's row, for readers of this table while nothing is buffered.
        send_old_values: forward old values too.
    """

    store: str
    wait_ms: int
    window_end_time: bool
    max_records: int | None
    max_bytes: int | None
    shut_down_when_full: bool
    drop_tombstones: bool
    parent: ValueGetter
    send_old_values: bool = False
