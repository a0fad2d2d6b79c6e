"""Map a table's values. Kafka Streams' `KTableMapValues`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.kernel import inlined
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.tuple_forwarder import derived_table
from kstreams_repl.engine.operators.user_functions import with_key_of
from kstreams_repl.system.types import ValueMapper


@dataclass(slots=True)
class TableMapValues(Operator):
    """Map each row to a new value; tombstones pass without a call.

    The old value is read from `store` if there is one; otherwise, with `send_old_values`, the parent's old value is mapped; otherwise it is
    None.

    Attributes:
        mapper: (value) -> value, or (key, value) -> value when `with_key`; never called with a None value.
        with_key: the mapper also takes the key.
        store: name of the materialized result, or None.
        send_old_values: forward old values too.
        store_versioned: `store` is a versioned one.
    """

    mapper: ValueMapper
    with_key: bool = False
    store: str | None = None
    send_old_values: bool = False
    store_versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        mapper = with_key_of(self.mapper, self.with_key)

        @inlined
        def mapped(key: object, value: object) -> object:
            return None if value is None else mapper(key, value)

        return derived_table(
            node, forward, mapped, store=self.store, send_old_values=self.send_old_values, store_versioned=self.store_versioned
        )
