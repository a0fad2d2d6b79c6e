"""Aggregates in tumbling, hopping and unlimited windows. Kafka Streams' `KStreamWindowAggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.operators.loop_template import Inline, slot_lines, with_inline
from kstreams_repl.operators.tuple_forwarder import as_stored, forwards_on_flush, window_slots_of
from kstreams_repl.operators.window_close import WindowCloser
from kstreams_repl.types import Headers, Windowed

_END_OF_TIME = 2**63 - 1

_Update = Callable[[Any, bytes, Any, int, Headers, int, int], None]
"""(key, serialized key, value, timestamp, headers, window start, window end): update one window."""


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

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    size_ms: int
    advance_ms: int
    grace_ms: int
    unlimited_start_ms: int | None = None
    emit_on_close: bool = False
    send_old_values: bool = False
    count: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        store = node.store(self.store)
        if self.emit_on_close:
            closer = WindowCloser(node, self.store, store, forward, reach_ms=self.size_ms, step_ms=self.advance_ms)
            return self._on_close(node, store, closer)
        cached = forwards_on_flush(node, store, forward, self.send_old_values)
        to_children = None if cached else forward
        if self.unlimited_start_ms is not None:
            return self._unlimited(node, store, to_children, self.unlimited_start_ms)
        if self.advance_ms != self.size_ms:
            return self._hopping(node, store, to_children)
        if self.count:
            return self._tumbling_count(node, store, to_children) if to_children else self._tumbling_count_cached(node, store)
        return self._tumbling(node, store, to_children)

    def _tumbling_count_cached(self, node: NodeContext, store: Any) -> Process:
        """Return the entry for the most common case, in which the cache forwards: counts in the cache are updated in place."""
        to_bytes, fetch, put, drop, record = store.serialize_key, store.fetch_raw, store.put_raw, node.drop, node.record
        size, grace = self.size_ms, self.grace_ms
        find, rewrite, _ = window_slots_of(store)
        closed = [-1 - grace]
        """The time up to which windows are closed; shared by the loop lines and the entry."""
        node.remember(self.store, lambda: closed[0] + grace, lambda time: closed.__setitem__(0, time - grace))

        def tumbling_count_cached(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            if timestamp - grace > closed[0]:
                closed[0] = timestamp - grace
            start = timestamp - timestamp % size
            if start + size <= closed[0]:
                drop("expired window")
                return
            data = to_bytes(key)
            record.timestamp, record.headers = timestamp, headers
            slot = find(data, start)
            if slot is not None and type(slot.value) is int:
                latest = slot.at
                rewrite(slot, slot.value + 1, timestamp if timestamp > latest else latest)
                return
            cell = fetch(data, start)
            if cell is None:
                put(data, (1, timestamp), start)
            else:
                old, latest = cell
                put(data, (old + 1, timestamp if timestamp > latest else latest), start)

        if store.cached is None:
            return tumbling_count_cached
        writing = slot_lines(store.cached)
        lines = (
            "if data is None:",
            "    {drop}('null key')",
            "    continue",
            "if timestamp - {grace} > close: close = timestamp - {grace}",
            "start = timestamp - timestamp % {size}",
            "if start + {size} <= close:",
            "    {drop}('expired window')",
            "    continue",
            "if start != last:",
            "    last = start",
            "    head, tail = {ends_of}(start)",
            "slot = {find}(head + data + tail)",
            "if slot is None or type(slot.value) is not int:",
            "    {locate}",
            "    {entry}({from_bytes}(data), value, timestamp, headers)",
            "    continue",
            "slot.value += 1",
            "if timestamp > slot.at: slot.at = timestamp",
            *writing.lines,
        )
        names = {"drop": drop, "grace": grace, "size": size, "closed": closed, "ends_of": store.ends_of, "find": store.cached.find}
        names |= {"entry": tumbling_count_cached, "from_bytes": store.key_serde.deserialize, **writing.names}
        before = ("last, head, tail = -1, b'', b''", "close = {closed}[0]", *writing.before)
        after = ("{closed}[0] = close", *writing.after)
        inline = Inline(node.name, lines, names, True, key_serde=store.key_serde, before=before, after=after)
        return with_inline(tumbling_count_cached, inline)

    def _tumbling_count(self, node: NodeContext, store: Any, forward: Process) -> Process:
        """Return the entry for one window per record, with inline 0 and + 1."""
        to_bytes, fetch, put, drop = store.serialize_key, store.fetch_raw, store.put_raw, node.drop
        size, grace, send_old, windowed = self.size_ms, self.grace_ms, self.send_old_values, Windowed
        close = -1 - grace

        def resume(time: int) -> None:
            nonlocal close
            close = time - grace

        node.remember(self.store, lambda: close + grace, resume)

        def tumbling_count(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal close
            if key is None:
                drop("null key")
                return
            if timestamp - grace > close:
                close = timestamp - grace
            start = timestamp - timestamp % size
            if start + size <= close:
                drop("expired window")
                return
            data = to_bytes(key)
            cell = fetch(data, start)
            if cell is None:
                old, latest = 0, timestamp
            else:
                old, latest = cell
                if latest < timestamp:
                    latest = timestamp
            put(data, (old + 1, latest), start)
            forward(windowed(key, start, start + size), (old + 1, old if send_old else None, True), latest, headers)

        return tumbling_count

    def _tumbling(self, node: NodeContext, store: Any, forward: Process | None) -> Process:
        to_bytes, fetch, put, drop, record = store.serialize_key, store.fetch_raw, store.put_raw, node.drop, node.record
        size, grace, send_old, windowed = self.size_ms, self.grace_ms, self.send_old_values, Windowed
        initializer, aggregator = self.initializer, self.aggregator
        stored = as_stored(fetch, initializer) if send_old and forward is not None else None
        close = -1 - grace

        def resume(time: int) -> None:
            nonlocal close
            close = time - grace

        node.remember(self.store, lambda: close + grace, resume)

        def tumbling(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal close
            if key is None:
                drop("null key")
                return
            if timestamp - grace > close:
                close = timestamp - grace
            start = timestamp - timestamp % size
            if start + size <= close:
                drop("expired window")
                return
            data = to_bytes(key)
            cell = fetch(data, start)
            if cell is None:
                old, latest = initializer(), timestamp
            else:
                old, latest = cell
                if latest < timestamp:
                    latest = timestamp
            new = aggregator(key, value, old)
            if stored is not None:
                old = stored(old, data, start)
            record.timestamp, record.headers = timestamp, headers
            put(data, None if new is None else (new, latest), start)
            if forward is not None:
                forward(windowed(key, start, start + size), (new, old if send_old else None, True), latest, headers)

        return tumbling

    def _update(self, node: NodeContext, store: Any, forward: Process | None) -> _Update:
        fetch, put, record = store.fetch_raw, store.put_raw, node.record
        initializer, aggregator, send_old = self.initializer, self.aggregator, self.send_old_values
        stored = as_stored(fetch, initializer) if send_old and forward is not None else None

        def update(key: Any, data: bytes, value: Any, timestamp: int, headers: Headers, start: int, end: int) -> None:
            cell = fetch(data, start)
            if cell is None:
                old, latest = initializer(), timestamp
            else:
                old, latest = cell
                if latest < timestamp:
                    latest = timestamp
            new = aggregator(key, value, old)
            if stored is not None:
                old = stored(old, data, start)
            record.timestamp, record.headers = timestamp, headers
            put(data, None if new is None else (new, latest), start)
            if forward is not None:
                forward(Windowed(key, start, end), (new, old if send_old else None, True), latest, headers)

        return update

    def _hopping(self, node: NodeContext, store: Any, forward: Process | None) -> Process:
        to_bytes, drop, update = store.serialize_key, node.drop, self._update(node, store, forward)
        size, advance, grace = self.size_ms, self.advance_ms, self.grace_ms
        close = -1 - grace

        def resume(time: int) -> None:
            nonlocal close
            close = time - grace

        node.remember(self.store, lambda: close + grace, resume)

        def hopping(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal close
            if key is None:
                drop("null key")
                return
            if timestamp - grace > close:
                close = timestamp - grace
            data = to_bytes(key)
            first = timestamp - size + advance
            for start in range(first - first % advance if first > 0 else 0, timestamp + 1, advance):
                if start + size > close:
                    update(key, data, value, timestamp, headers, start, start + size)
                else:
                    drop("expired window")

        return hopping

    def _on_close(self, node: NodeContext, store: Any, closer: WindowCloser) -> Process:
        to_bytes, drop, emit_closed, update = store.serialize_key, node.drop, closer.emit, self._update(node, store, None)
        size, advance, grace = self.size_ms, self.advance_ms, self.grace_ms
        close = -1 - grace

        def resume(time: int) -> None:
            nonlocal close
            close = time - grace

        node.remember(self.store, lambda: close + grace, resume)

        def windows_on_close(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal close
            if key is None:
                drop("null key")
                return
            if timestamp - grace > close:
                close = timestamp - grace
                if close >= closer.next_close:
                    emit_closed(close, headers)
            data = to_bytes(key)
            first = timestamp - size + advance
            for start in range(first - first % advance if first > 0 else 0, timestamp + 1, advance):
                if start + size > close:
                    update(key, data, value, timestamp, headers, start, start + size)
                else:
                    drop("expired window")

        return windows_on_close

    def _unlimited(self, node: NodeContext, store: Any, forward: Process | None, start: int) -> Process:
        to_bytes, drop, update = store.serialize_key, node.drop, self._update(node, store, forward)

        def unlimited(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
            elif timestamp >= start:
                update(key, to_bytes(key), value, timestamp, headers, start, _END_OF_TIME)

        return unlimited
