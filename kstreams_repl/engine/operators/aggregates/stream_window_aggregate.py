"""Aggregates in tumbling, hopping and unlimited windows. Kafka Streams' `KStreamWindowAggregate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.operators.aggregates.aggregators import count_one
from kstreams_repl.engine.operators.aggregates.window_close import StreamTime, WindowCloser
from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.lateness import Lateness
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.tuple_forwarder import as_stored, entries_of, forwards_on_flush
from kstreams_repl.system.types import Aggregator, Headers, Initializer, Windowed

_END_OF_TIME = 2**63 - 1


@dataclass(slots=True)
class StreamWindowAggregate(Operator):
    """`store[key, window] = aggregator(key, value, old or initializer())` for each window of the record; keys become `Windowed`.

    None keys are dropped and counted; None values are aggregated. Windows start at multiples of `advance_ms` and are
    `[start, start + size_ms)`; with `unlimited_start_ms` there is one window `[unlimited_start_ms, 2**63 - 1)`, which does not contain
    earlier records. Stream time is the operator's own: the largest timestamp it has received, including the current record's. A window
    with `end <= stream time - grace_ms` is late: counted as dropped, once per missed window. The old value of a window's first aggregate
    is the initializer's, as in Kafka Streams (a cached store sends None instead).

    Attributes:
        store: name of the timestamped window store (time-ordered kind when `emit_on_close`).
        initializer: () -> initial aggregate.
        aggregator: (key, value, aggregate) -> aggregate.
        size_ms, advance_ms, grace_ms: of the windows.
        unlimited_start_ms: set only for unlimited windows (size, advance and grace are then ignored).
        emit_on_close: emit each window once, when it closes (KIP-825), instead of on each update.
        send_old_values: forward the old aggregate too.
        count: this is `count()`: initializer and aggregator may be replaced by an inline 0 and + 1.
    """

    role = "aggregate"

    store: str
    initializer: Initializer
    aggregator: Aggregator
    size_ms: int
    advance_ms: int
    grace_ms: int
    unlimited_start_ms: int | None = None
    emit_on_close: bool = False
    send_old_values: bool = False
    count: bool = False

    @property
    def lateness(self) -> Lateness | None:
        """When a record is late; None: unlimited windows never end."""
        return None if self.unlimited_start_ms is not None else Lateness(self.size_ms, self.advance_ms, grace_ms=self.grace_ms)

    def build(self, node: NodeContext, forward: Process) -> Process:
        store, drop, record = node.store(self.store), node.drop, node.record
        to_bytes, fetch, put = store.serialize_key, store.fetch_raw, store.put_raw
        size, advance, grace, send_old = self.size_ms, self.advance_ms, self.grace_ms, self.send_old_values
        initializer, aggregator, counting = self.initializer, self.aggregator, self.aggregator is count_one
        unlimited, hopping, earliest = self.unlimited_start_ms is not None, advance != size, self.unlimited_start_ms or 0
        closer: WindowCloser | None = None
        forwards = False
        if self.emit_on_close:
            closer = WindowCloser(node, self.store, store, forward, reach_ms=size, step_ms=advance)
        else:
            forwards = not forwards_on_flush(node, store, forward, send_old)
        # A stream that shares the windows, as in a cogroup, may hide some from reads that this one has not expired yet.
        in_slots = closer is None and store.cached is not None and (counting or node.owns(self.store))
        find, _, rewrite, frozen = entries_of(store.cached if in_slots else None)
        thaw: Any = store.cached.thaw if in_slots else None
        known: Any = store.known_ends.get if in_slots else None
        ends_of: Any = store.ends_of if in_slots else None
        keeps_old, stored = send_old and forwards and not counting, as_stored(fetch, initializer)
        time = None if unlimited else StreamTime(node, self.store)

        def windows(key: object, value: object, timestamp: int, headers: Headers) -> None:
            if time is None:
                if timestamp < earliest:
                    return
            elif timestamp > time.now:
                time.now = timestamp
                if closer is not None and timestamp - grace >= closer.next_close:
                    closer.emit(timestamp - grace, headers)
            data = to_bytes(key)
            closed = 0 if time is None else time.now - grace - size
            for start in (
                (earliest,) if unlimited else _starts(timestamp, size, advance) if hopping else (timestamp - timestamp % size,)
            ):
                if time is not None and start <= closed:
                    drop("expired window", closed + grace - start + 1)
                    continue
                slot = None
                if in_slots:
                    ends = known(start)
                    if ends is None:
                        ends = ends_of(start)
                    head, tail, load = ends
                    physical = head + data + tail
                    slot = find(physical)
                    if slot is None and load is not None:
                        slot = load(physical)
                if in_slots and slot is not None and type(slot.value) is not frozen:
                    old, at = slot.value, slot.at
                elif in_slots and slot is not None and slot.value.data is None:
                    old, at = initializer(), timestamp
                elif in_slots and not counting and slot is not None:
                    old, at = thaw(slot.value.data), slot.at
                else:
                    slot = None
                    item = fetch(data, start)
                    if item is None:
                        old, at = initializer(), timestamp
                    else:
                        old, at = item
                if at < timestamp:
                    at = timestamp
                new = aggregator(key, value, old)
                if keeps_old:
                    old = stored(old, data, start)
                record.timestamp, record.headers = timestamp, headers
                if in_slots and slot is not None and (counting or new is not None):
                    rewrite(slot, new, at)
                else:
                    put(data, None if not counting and new is None else (new, at), start)
                if forwards:
                    end = _END_OF_TIME if unlimited else start + size
                    forward(Windowed(key, start, end), (new, old if send_old else None, True), at, headers)

        def close_all() -> None:
            assert time is not None
            starts = [window[1] for window, _ in store.fetch_all(max(0, time.now - grace - size + 1), _END_OF_TIME)]
            if starts and time.advance(max(starts) + size + grace) and closer is not None:
                closer.emit(time.now - grace, [])

        if time is not None:
            node.on_window_close(close_all)
        users, quick = {"initializer", "aggregator"}, {"find", "known", "ends_of", "fetch", "thaw", "_starts"}
        return kernel(node, windows, null="key", calls=users, quick=quick, store=store if in_slots else None, checked=not counting)


def _starts(timestamp: int, size: int, advance: int) -> range:
    """Return the starts of the hopping windows that contain a timestamp."""
    first = timestamp - size + advance
    return range(first - first % advance if first > 0 else 0, timestamp + 1, advance)
