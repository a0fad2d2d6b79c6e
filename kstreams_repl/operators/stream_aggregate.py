"""Aggregates of a grouped stream, one row per key. Kafka Streams' `KStreamAggregate`, `KStreamReduce`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.operators.loop_template import Inline, slot_lines, with_inline
from kstreams_repl.operators.tuple_forwarder import as_stored, deleter, forwards_on_flush, keeper, slots_of
from kstreams_repl.types import Headers


def nothing() -> None:
    """Return None, the initial aggregate of a reduce."""


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

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old_values: bool = False
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        if self.versioned:
            return self._build_versioned(node, forward)
        store = node.store(self.store)
        to_bytes, get, put, drop, send_old = store.serialize_key, store.get_raw, store.put_cell, node.drop, self.send_old_values
        initializer, aggregator, delete = self.initializer, self.aggregator, deleter(node, put)
        if forwards_on_flush(node, store, forward, send_old):

            find, rewrite, frozen = slots_of(store)

            def aggregate_cached(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                if key is None or value is None:
                    drop("null key or value")
                    return
                data = to_bytes(key)
                slot = find(data)
                if slot is not None and type(old := slot.value) is not frozen:
                    before = slot.at
                    new = aggregator(key, value, old)
                    if new is not None:
                        rewrite(slot, new, timestamp if timestamp > before else before)
                        return
                elif (row := get(data)) is None:
                    new = aggregator(key, value, initializer())
                else:
                    old, before = row
                    new = aggregator(key, value, old)
                    if new is not None and before > timestamp:
                        timestamp = before
                if new is not None:
                    put(data, (new, timestamp))
                else:
                    delete(data, timestamp, headers)

            return aggregate_cached

        stored = as_stored(get, initializer)

        def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
                return
            data, came = to_bytes(key), timestamp
            row = get(data)
            if row is None:
                old = initializer()
                new = aggregator(key, value, old)
            else:
                old, before = row
                new = aggregator(key, value, old)
                if before > timestamp:
                    timestamp = before
            old = stored(old, data) if send_old else None
            if new is not None:
                put(data, (new, timestamp))
            else:
                delete(data, came, headers)
            forward(key, (new, old, True), timestamp, headers)

        return aggregate

    def _build_versioned(self, node: NodeContext, forward: Process) -> Process:
        get, drop, send_old = node.store(self.store).get, node.drop, self.send_old_values
        keep = keeper(node, self.store, forward, send_old_values=send_old, versioned=True, first=self.initializer)
        initializer, aggregator = self.initializer, self.aggregator

        def aggregate_versioned(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
                return
            row = get(key)
            if row is None:
                old = initializer()
                new = aggregator(key, value, old)
            else:
                old, before = row[0], row[1]
                new = aggregator(key, value, old)
                if before > timestamp:
                    timestamp = before
            keep(key, new, old if send_old else None, timestamp, headers)

        return aggregate_versioned


@dataclass(slots=True)
class StreamReduce(Operator):
    """`StreamAggregate`, except that a key's first value is its first aggregate.

    Attributes:
        store: name of the (timestamped or versioned) key-value store.
        reducer: (aggregate, value) -> aggregate.
        send_old_values: forward the old aggregate too.
        versioned: the store is a versioned one.
    """

    store: str
    reducer: Callable[[Any, Any], Any]
    send_old_values: bool = False
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        if self.versioned:
            return self._build_versioned(node, forward)
        store = node.store(self.store)
        to_bytes, get, put, drop, send_old = store.serialize_key, store.get_raw, store.put_cell, node.drop, self.send_old_values
        reducer, delete = self.reducer, deleter(node, put)
        if forwards_on_flush(node, store, forward, send_old):

            find, rewrite, frozen = slots_of(store)

            def reduce_cached(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                if key is None or value is None:
                    drop("null key or value")
                    return
                data = to_bytes(key)
                slot = find(data)
                if slot is not None and type(old := slot.value) is not frozen:
                    before = slot.at
                    new = reducer(old, value)
                    if new is not None:
                        rewrite(slot, new, timestamp if timestamp > before else before)
                        return
                elif (row := get(data)) is None:
                    new = value
                else:
                    old, before = row
                    new = reducer(old, value)
                    if new is not None and before > timestamp:
                        timestamp = before
                if new is not None:
                    put(data, (new, timestamp))
                else:
                    delete(data, timestamp, headers)

            inline = None if store.cached is None else _reduce_lines(node.name, store, reducer, reduce_cached, drop)
            return with_inline(reduce_cached, inline)

        stored = as_stored(get, nothing)

        def reduce(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
                return
            data, came = to_bytes(key), timestamp
            row = get(data)
            if row is None:
                old, new = None, value
            else:
                old, before = row
                new = reducer(old, value)
                if before > timestamp:
                    timestamp = before
            old = stored(old, data) if send_old else None
            if new is not None:
                put(data, (new, timestamp))
            else:
                delete(data, came, headers)
            forward(key, (new, old, True), timestamp, headers)

        return reduce

    def _build_versioned(self, node: NodeContext, forward: Process) -> Process:
        get, drop, send_old = node.store(self.store).get, node.drop, self.send_old_values
        keep = keeper(node, self.store, forward, send_old_values=send_old, versioned=True, first=nothing)
        reducer = self.reducer

        def reduce_versioned(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
                return
            row = get(key)
            if row is None:
                old, new = None, value
            else:
                old, before = row[0], row[1]
                new = reducer(old, value)
                if before > timestamp:
                    timestamp = before
            keep(key, new, old if send_old else None, timestamp, headers)

        return reduce_versioned


@dataclass(slots=True)
class StreamCount(Operator):
    """`StreamAggregate` with initializer 0 and aggregator `+ 1`; separate for speed.

    Attributes:
        store: name of the (timestamped or versioned) key-value store of 64-bit counts.
        send_old_values: forward the old count too.
        versioned: the store is a versioned one.
    """

    store: str
    send_old_values: bool = False
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        if self.versioned:
            return self._build_versioned(node, forward)
        store = node.store(self.store)
        to_bytes, get, put, drop, send_old = store.serialize_key, store.get_raw, store.put_cell, node.drop, self.send_old_values
        if forwards_on_flush(node, store, forward, send_old):

            find, rewrite, _ = slots_of(store)

            def count_cached(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                if key is None or value is None:
                    drop("null key or value")
                    return
                data = to_bytes(key)
                slot = find(data)
                if slot is not None and type(slot.value) is int:
                    before = slot.at
                    rewrite(slot, slot.value + 1, timestamp if timestamp > before else before)
                    return
                row = get(data)
                if row is None:
                    put(data, (1, timestamp))
                else:
                    old, before = row
                    put(data, (old + 1, timestamp if timestamp > before else before))

            inline = None if store.cached is None else _count_lines(node.name, store, count_cached, drop)
            return with_inline(count_cached, inline)

        def count(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
                return
            data = to_bytes(key)
            row = get(data)
            if row is None:
                old, new = 0, 1
            else:
                old, before = row
                new = old + 1
                if before > timestamp:
                    timestamp = before
            put(data, (new, timestamp))
            forward(key, (new, old if send_old else None, True), timestamp, headers)

        return count

    def _build_versioned(self, node: NodeContext, forward: Process) -> Process:
        get, drop, send_old = node.store(self.store).get, node.drop, self.send_old_values
        keep = keeper(node, self.store, forward, send_old_values=send_old, versioned=True)

        def count_versioned(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
                return
            row = get(key)
            if row is None:
                old, new = 0, 1
            else:
                old, before = row[0], row[1]
                new = old + 1
                if before > timestamp:
                    timestamp = before
            keep(key, new, old if send_old else None, timestamp, headers)

        return count_versioned


def _count_lines(node: str, store: Any, entry: Process, drop: Callable[[str], None]) -> Inline:
    """Return the loop lines of `count_cached` for counts in the cache; they call the entry for all other keys."""
    writing = slot_lines(store.cached)
    lines = (
        "if data is None or value is None:",
        "    {drop}('null key or value')",
        "    continue",
        "slot = {find}(data)",
        "if slot is None: slot = {load}(data)",
        "if type(slot.value) is int: slot.value += 1",
        "elif slot.value is {nothing}: slot.value = 1",
        "else:",
        "    {locate}",
        "    {entry}({from_bytes}(data), value, timestamp, headers)",
        "    continue",
        "if timestamp > slot.at: slot.at = timestamp",
        *writing.lines,
    )
    cache = store.cached
    names = {"drop": drop, "find": cache.find, "load": cache.load, "entry": entry, "from_bytes": store.key_serde.deserialize}
    names |= {"nothing": cache.nothing, **writing.names}
    return Inline(node, lines, names, True, key_serde=store.key_serde, before=writing.before, after=writing.after)


def _reduce_lines(
    node: str, store: Any, reducer: Callable[[Any, Any], Any], entry: Process, drop: Callable[[str], None]
) -> Inline:
    """Return the loop lines of `reduce_cached` for aggregates that are objects in the cache; they call the entry for all other keys."""
    writing = slot_lines(store.cached)
    lines = (
        "if data is None or value is None:",
        "    {drop}('null key or value')",
        "    continue",
        "slot = {find}(data)",
        "if slot is None: slot = {load}(data)",
        "if type(old := slot.value) is not {frozen}: old = {reducer}(old, value)",
        "elif old is {nothing}: old = value",
        "else:",
        "    {locate}",
        "    {entry}({from_bytes}(data), value, timestamp, headers)",
        "    continue",
        "at = slot.at if slot.at > timestamp else timestamp",
        "if type(old) not in {deferrable}:",
        "    {locate}",
        "    if old is None: {put}(data, None)",
        "    else: {rewrite}(slot, old, at)",
        "    continue",
        "slot.value = old",
        "slot.at = at",
        *writing.lines,
    )
    cache = store.cached
    names = {"drop": drop, "find": cache.find, "load": cache.load, "entry": entry, "from_bytes": store.key_serde.deserialize}
    names |= {"reducer": reducer, "nothing": cache.nothing}
    names |= {"frozen": cache.frozen, "deferrable": cache.deferrable, "put": store.put_cell, "rewrite": cache.rewrite}
    names |= writing.names
    uses = frozenset({"value"})
    return Inline(node, lines, names, True, uses, True, store.key_serde, writing.before, writing.after)
