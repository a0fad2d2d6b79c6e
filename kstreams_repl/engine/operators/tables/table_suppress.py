"""Delay updates by a time limit or until their window closes. Kafka Streams' `KTableSuppressProcessorSupplier`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.operators.aggregates.window_close import StreamTime
from kstreams_repl.engine.operators.operator import Change, NodeContext, Operator, Process
from kstreams_repl.engine.processor.record_context import ContextSnapshot
from kstreams_repl.system.errors import StateStoreError
from kstreams_repl.system.types import Headers

if TYPE_CHECKING:
    from kstreams_repl.engine.stores.kinds.suppress_buffer import SuppressBuffer

_UNBOUNDED = 2**63 - 1


@dataclass(slots=True)
class TableSuppress(Operator):
    """Buffer the last change per key in time order; forward changes that are `wait_ms` older than the operator's own stream time.

    Entries are ordered by (buffer time, serialized key); an update keeps the *original* position with the newest value and context. An
    entry is emitted with its own record context and the old value of its last update. Nothing is emitted while no records arrive or on
    close, because stream time has to advance; at the end of a bounded run that closes windows everything is.

    Attributes:
        store: name of the suppress buffer (kind `SUPPRESS_BUFFER`).
        wait_ms: how long after its buffer time an entry is held. `until_window_closes`: the upstream grace period.
        window_end_time: buffer time is the window's end (the key must be `Windowed`) instead of the record's timestamp.
        max_records, max_bytes: bounds of the buffer; None = unbounded.
        shut_down_when_full: when a bound is exceeded: True raises, False emits the oldest entry early.
        drop_tombstones: drop tombstones of rows that were never emitted (safe with `until_window_closes`).
    """

    word = "suppress"

    store: str
    wait_ms: int
    window_end_time: bool
    max_records: int | None
    max_bytes: int | None
    shut_down_when_full: bool
    drop_tombstones: bool

    def build(self, node: NodeContext, forward: Process) -> Process:
        buffer, record = node.store(self.store), node.record
        wait, by_window_end, drop_tombstones = self.wait_ms, self.window_end_time, self.drop_tombstones
        put, evict_first = buffer.put, buffer.evict_first
        bounded = self.max_records is not None or self.max_bytes is not None
        time = StreamTime(node, self.store)

        def emit(key: object, new: object, old: object, context: ContextSnapshot) -> None:
            if new is not None or not drop_tombstones:
                with record.replace(context):
                    forward(key, (new, old, True), context.timestamp, context.headers)

        def suppress(key: Any, value: Change, timestamp: int, headers: Headers) -> None:
            if timestamp > time.now:
                time.now = timestamp
            context = ContextSnapshot(record.topic, record.partition, record.offset, timestamp, headers)
            put(key[2] if by_window_end else timestamp, key, value[0], value[1], context)
            due = time.now - wait
            while buffer.min_time <= due:
                evict_first(emit)
            if bounded:
                self._enforce_bounds(node.name, buffer, emit)

        def emit_all() -> None:
            while buffer.record_count():
                time.advance(buffer.min_time + wait)
                buffer.evict_first(emit)

        node.on_window_close(emit_all)
        return suppress

    def _enforce_bounds(self, name: str, buffer: SuppressBuffer, emit: Any) -> None:
        most = _UNBOUNDED if self.max_records is None else self.max_records
        most_bytes = _UNBOUNDED if self.max_bytes is None else self.max_bytes
        while buffer.record_count() > most or buffer.byte_size() > most_bytes:
            if self.shut_down_when_full:
                raise StateStoreError(
                    f"the buffer of {name} exceeds its bounds: {buffer.record_count()} records, {buffer.byte_size()} bytes",
                    hint="give suppress a larger buffer, or let it emit early when it is full",
                    node=name,
                    store=self.store,
                )
            buffer.evict_first(emit)
