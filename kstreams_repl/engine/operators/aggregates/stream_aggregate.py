"""Aggregates of a grouped stream, one row per key. Kafka Streams' `KStreamAggregate`, `KStreamReduce`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.operators.aggregates.aggregators import count_one, nothing, reducing, zero
from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.tuple_forwarder import as_stored, deleter, entries_of, forwards_on_flush, keeper
from kstreams_repl.system.types import Aggregator, Headers, Initializer, Reducer


@dataclass(slots=True)
class StreamAggregate(Operator):
    """`store[key] = aggregator(key, value, old aggregate or initializer())`; forwards `(new, old, True)`.

    A record with a None key or value is dropped and counted. The result's timestamp is max(aggregate's, record's). The store is a
    timestamped key-value store, or a versioned one (`versioned`); with a cached store the operator itself forwards nothing.

    Attributes:
        store: name of the (timestamped or versioned) key-value store.
        initializer: () -> initial aggregate.
        aggregator: (key, value, aggregate) -> aggregate; None deletes the row and forwards a tombstone.
        send_old_values: forward the old aggregate too (set by the DSL if a downstream node needs it).
        versioned: the store is a versioned one; out-of-order puts are not the latest (`is_latest` False).
    """

    role = "aggregate"

    store: str
    initializer: Initializer
    aggregator: Aggregator
    send_old_values: bool = False
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        make = _versioned if self.versioned else _timestamped
        return make(node, forward, self.store, self.initializer, self.aggregator, self.send_old_values)


@dataclass(slots=True)
class StreamReduce(Operator):
    """`StreamAggregate`, except that a key's first value is its first aggregate.

    Attributes:
        store: name of the (timestamped or versioned) key-value store.
        reducer: (aggregate, value) -> aggregate.
        send_old_values: forward the old aggregate too.
        versioned: the store is a versioned one.
    """

    role = "aggregate"

    store: str
    reducer: Reducer
    send_old_values: bool = False
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        make = _versioned if self.versioned else _timestamped
        return make(node, forward, self.store, nothing, reducing(self.reducer), self.send_old_values)


@dataclass(slots=True)
class StreamCount(Operator):
    """`StreamAggregate` with initializer 0 and aggregator `+ 1`.

    Attributes:
        store: name of the (timestamped or versioned) key-value store of 64-bit counts.
        send_old_values: forward the old count too.
        versioned: the store is a versioned one.
    """

    role = "aggregate"

    store: str
    send_old_values: bool = False
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        make = _versioned if self.versioned else _timestamped
        return make(node, forward, self.store, zero, count_one, self.send_old_values)


def _timestamped(
    node: NodeContext, forward: Process, name: str, initializer: Initializer, aggregator: Aggregator, send_old: bool
) -> Process:
    store = node.store(name)
    to_bytes, get, put, delete = store.serialize_key, store.get_raw, store.put_item, deleter(node, store.put_item)
    on_flush = forwards_on_flush(node, store, forward, send_old)
    in_slots = on_flush and store.cached is not None
    find, load, rewrite, frozen = entries_of(store.cached if in_slots else None)
    thaw: Any = store.cached.thaw if in_slots else None
    counting = aggregator is count_one
    keeps_old, stored = send_old and not on_flush and not counting, as_stored(get, initializer)

    def aggregate(key: object, value: object, timestamp: int, headers: Headers) -> None:
        data = to_bytes(key)
        if in_slots:
            slot = find(data)
            if slot is None:
                slot = load(data)
            old = slot.value
        if in_slots and type(old) is not frozen:
            at = slot.at
        elif in_slots and old.data is None:
            old, at = initializer(), timestamp
        elif in_slots:
            old, at = thaw(old.data), slot.at
        elif (row := get(data)) is None:
            old, at = initializer(), timestamp
        else:
            old, at = row
        new = aggregator(key, value, old)
        if at < timestamp:
            at = timestamp
        if keeps_old:
            old = stored(old, data)
        if not counting and new is None:
            delete(data, timestamp, headers)
        elif in_slots:
            rewrite(slot, new, at)
        else:
            put(data, (new, at))
        if not on_flush:
            forward(key, (new, old if send_old else None, True), at, headers)

    users = {"initializer", "aggregator"}
    quick = {"find", "load", "thaw", "get"}
    return kernel(node, aggregate, null="key or value", calls=users, quick=quick, store=store if in_slots else None, checked=not counting)


def _versioned(
    node: NodeContext, forward: Process, name: str, initializer: Initializer, aggregator: Aggregator, send_old: bool
) -> Process:
    get = node.store(name).get
    keep = keeper(node, name, forward, send_old_values=send_old, versioned=True, first=initializer)

    def aggregate_version(key: object, value: object, timestamp: int, headers: Headers) -> None:
        row = get(key)
        if row is None:
            old, at = initializer(), timestamp
        else:
            old, at = row[0], row[1]
        new = aggregator(key, value, old)
        keep(key, new, old if send_old else None, at if at > timestamp else timestamp, headers)

    return kernel(node, aggregate_version, null="key or value")
