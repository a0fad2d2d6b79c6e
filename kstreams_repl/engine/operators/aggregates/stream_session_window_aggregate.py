"""Aggregates in session windows. Kafka Streams' `KStreamSessionWindowAggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.operators.aggregates.window_close import SessionCloser, StreamTime
from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.lateness import Lateness
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.tuple_forwarder import as_stored
from kstreams_repl.system.types import Aggregator, Headers, Initializer, Merger, Windowed

_END_OF_TIME = 2**63 - 1


@dataclass(slots=True)
class StreamSessionWindowAggregate(Operator):
    """Merge a record with all sessions of its key within `gap_ms` on both sides; one row per merged session `[start, end]`.

    None keys are dropped and counted; None values are aggregated. Order of calls: initializer, mergers, aggregator last. Each merged
    session gets a tombstone, in store order, before the new session is forwarded, except when the only merged session starts and ends
    at the record's timestamp. Results have timestamp = session end and no headers; those emitted on close have the headers of the
    closing record.

    Attributes:
        store: name of the session store.
        initializer: () -> initial aggregate.
        aggregator: (key, value, aggregate) -> aggregate.
        merger: (key, aggregate, aggregate) -> aggregate.
        gap_ms, grace_ms: of the windows.
        emit_on_close: emit each session once, when it closes.
        send_old_values: forward the old aggregate too.
        count: this is `count()`.
    """

    role = "aggregate"

    store: str
    initializer: Initializer
    aggregator: Aggregator
    merger: Merger
    gap_ms: int
    grace_ms: int
    emit_on_close: bool = False
    send_old_values: bool = False
    count: bool = False

    @property
    def lateness(self) -> Lateness:
        """When a record is late; a session that is emitted when it closes must have all its records by then."""
        return Lateness(slack_ms=0 if self.emit_on_close else self.gap_ms, grace_ms=self.grace_ms)

    def build(self, node: NodeContext, forward: Process) -> Process:
        store, drop, record = node.store(self.store), node.drop, node.record
        store.index_by_key()
        to_bytes, find, put = store.serialize_key, store.find_raw, store.put_raw
        initializer, aggregator, merger = self.initializer, self.aggregator, self.merger
        gap, lateness, send_old = self.gap_ms, self.gap_ms + self.grace_ms, self.send_old_values
        emit_closed: Callable[[int, Headers], None] | None = None
        to_children: Process | None = None
        if self.emit_on_close:
            emit_closed = SessionCloser(node, self.store, store, forward).emit
        else:

            alone = _without_headers(node, forward)

            def flushed(key: Any, new: object, old: object, timestamp: int, headers: Headers) -> None:
                if forgets:
                    alone(key, (new, old, True), key[2], [])
                else:
                    forward(key, (new, old, True), key[2], headers)

            forgets = store.forgets_headers
            if not store.set_flush_listener(flushed, send_old):
                to_children = alone
            elif not send_old and (loop := node.row_loop()) is not None:
                store.set_row_loop(loop)
        stored = as_stored(lambda *window: (store.fetch_session(*window),), initializer)
        time = StreamTime(node, self.store)

        def sessions(key: object, value: object, timestamp: int, headers: Headers) -> None:
            if timestamp > time.now:
                time.now = timestamp
                if emit_closed is not None:
                    emit_closed(timestamp - lateness, headers)
            data = to_bytes(key)
            aggregate = initializer()
            start = end = timestamp
            merged = find(data, timestamp - gap, timestamp + gap)
            for first, last, part in merged:
                aggregate = merger(key, aggregate, part)
                if first < start:
                    start = first
                if last > end:
                    end = last
            if end < time.now - lateness:
                drop("expired window", time.now - gap - end)
                return
            record.timestamp, record.headers = timestamp, headers
            if start != timestamp or end != timestamp:
                for first, last, part in merged:
                    if to_children is not None and send_old:
                        part = stored(part, key, first, last)
                    put(data, first, last, None)
                    if to_children is not None:
                        to_children(Windowed(key, first, last), (None, part if send_old else None, True), last, [])
            aggregate = aggregator(key, value, aggregate)
            put(data, start, end, aggregate)
            if to_children is not None:
                to_children(Windowed(key, start, end), (aggregate, None, True), end, [])

        def close_all() -> None:
            ends = [window[2] for window, _ in store.find_closed(max(0, time.now - lateness), _END_OF_TIME)]
            if ends and time.advance(max(ends) + 1 + lateness) and emit_closed is not None:
                emit_closed(time.now - lateness, [])

        node.on_window_close(close_all)
        return kernel(node, sessions, null="key")


def _without_headers(node: NodeContext, forward: Process) -> Process:
    """Return `forward` without headers: results are new records, so entries cached downstream must not keep the current headers."""
    record = node.record

    def forward_without_headers(key: object, value: object, timestamp: int, headers: Headers) -> None:
        outer_timestamp, outer_headers = record.timestamp, record.headers
        record.timestamp, record.headers = timestamp, headers
        forward(key, value, timestamp, headers)
        record.timestamp, record.headers = outer_timestamp, outer_headers

    return forward_without_headers
