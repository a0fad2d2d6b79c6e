"""Map a table's values with a stateful transformer. Kafka Streams' `KTableTransformValues`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.transformer_context import start_transformer
from kstreams_repl.engine.operators.tables.tuple_forwarder import derived_table
from kstreams_repl.engine.operators.tables.value_getters import ValueGetter
from kstreams_repl.system.types import ProcessorSupplier


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

    role = "processor"

    supplier: ProcessorSupplier
    parent: ValueGetter | None = None
    stores: tuple[str, ...] = ()
    store: str | None = None
    send_old_values: bool = False
    store_versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        transform = start_transformer(node, self.supplier).transform
        return derived_table(
            node, forward, transform, store=self.store, send_old_values=self.send_old_values, store_versioned=self.store_versioned
        )
