"""Map a table's values with a stateful transformer. Kafka Streams' `KTableTransformValues`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.operators.transformer_context import start_transformer
from kstreams_repl.operators.tuple_forwarder import keeper, old_value
from kstreams_repl.operators.value_getters import ValueGetter
from kstreams_repl.types import Headers


@dataclass(slots=True)
class TableTransformValues(Operator):
    """Map each row to `transformer.transform(key, value)`; tombstones too.

    The old value is read from `store` if materialized; otherwise, with `send_old_values`, the same transformer transforms the parent's old
    value (after the new one); otherwise it is None.

    Attributes:
        supplier: () -> transformer with `init(context)`, `transform(key, value)`, `close()`; the context cannot forward.
        parent: getter of the parent's row; not used here (`TransformValuesGetter` reads it).
        stores: names of the stores that the transformer can get from its context.
        store: name of the materialized result, or None.
        send_old_values: forward old values too.
        store_versioned: `store` is a versioned one.
    """

    supplier: Callable[[], Any]
    parent: ValueGetter | None = None
    stores: tuple[str, ...] = ()
    store: str | None = None
    send_old_values: bool = False
    store_versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        send_old, transform = self.send_old_values, start_transformer(node, self.supplier).transform
        if self.store is None:

            def transform_values(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                new = transform(key, value[0])
                old = transform(key, value[1]) if send_old else None
                forward(key, (new, old, value[2]), timestamp, headers)

            return transform_values
        keep = keeper(node, self.store, forward, send_old_values=send_old, versioned=self.store_versioned)
        shown = old_value(node.store(self.store))

        def transform_values_stored(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new = transform(key, value[0])
            keep(key, new, shown(key) if send_old else None, timestamp, headers)

        return transform_values_stored
