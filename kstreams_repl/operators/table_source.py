"""Turn records into table rows. Kafka Streams' `KTableSource`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.operators.tuple_forwarder import deleter, forwards_on_flush, keeper, old_value
from kstreams_repl.types import Headers


@dataclass(slots=True)
class TableSource(Operator):
    """Turn (key, value) records into changes `(new, old, is_latest)`, and store the rows in `store` if there is one.

    A None key is dropped and counted; a None value deletes. An out-of-order record is applied in offset order unless the store is
    versioned: then it is put as a version and forwarded with `is_latest` False if newer versions exist.

    Attributes:
        store: name of the store; None if nothing reads this table (not materialized): then `old` is always None.
        send_old_values: read and forward the old row (only with a store).
        versioned: the store is a versioned one.
    """

    store: str | None
    send_old_values: bool = False
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        drop, send_old = node.drop, self.send_old_values
        if self.store is None:

            def source(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                if key is None:
                    drop("null key")
                    return
                forward(key, (value, None, True), timestamp, headers)

            return source
        if self.versioned:
            keep = keeper(node, self.store, forward, send_old_values=send_old, versioned=True)
            old = old_value(node.store(self.store))

            def source_versioned(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                if key is None:
                    drop("null key")
                    return
                keep(key, value, old(key) if send_old else None, timestamp, headers)

            return source_versioned
        return self._build_timestamped(node, forward, self.store)

    def _build_timestamped(self, node: NodeContext, forward: Process, name: str) -> Process:
        store, drop, send_old = node.store(name), node.drop, self.send_old_values
        to_bytes, get, put = store.serialize_key, store.get_raw, store.put_cell
        delete = deleter(node, put)
        if forwards_on_flush(node, store, forward, send_old):

            def source_cached(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                if key is None:
                    drop("null key")
                    return
                if value is not None:
                    put(to_bytes(key), (value, timestamp))
                else:
                    delete(to_bytes(key), timestamp, headers)

            return source_cached

        def source_stored(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            data, old = to_bytes(key), None
            if send_old:
                row = get(data)
                if row is not None:
                    old = row[0]
            if value is not None:
                put(data, (value, timestamp))
            else:
                delete(data, timestamp, headers)
            forward(key, (value, old, True), timestamp, headers)

        return source_stored
