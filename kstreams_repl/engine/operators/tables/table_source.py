"""Turn records into table rows. Kafka Streams' `KTableSource`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.tuple_forwarder import keeper, old_value
from kstreams_repl.system.types import Headers


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
        send_old = self.send_old_values
        if self.store is None:

            def source(key: object, value: object, timestamp: int, headers: Headers) -> None:
                forward(key, (value, None, True), timestamp, headers)

            return kernel(node, source, null="key")
        keep = keeper(node, self.store, forward, send_old_values=send_old, versioned=self.versioned)
        old = old_value(node.store(self.store))

        def source_stored(key: object, value: object, timestamp: int, headers: Headers) -> None:
            keep(key, value, old(key) if send_old else None, timestamp, headers)

        return kernel(node, source_stored, null="key")
