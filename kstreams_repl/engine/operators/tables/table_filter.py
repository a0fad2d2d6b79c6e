"""Filter a table's rows. Kafka Streams' `KTableFilter`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.kernel import inlined
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.tuple_forwarder import derived_table
from kstreams_repl.system.types import Predicate


@dataclass(slots=True)
class TableFilter(Operator):
    """Turn rows for which the predicate is false into tombstones.

    The old value is read from `store` if there is one; otherwise, with `send_old_values`, the parent's old value is filtered; otherwise it
    is None. With `send_old_values`, unless `versioned`, nothing is forwarded if both new and old are None.

    Attributes:
        predicate: (key, value) -> truth value; never called with a None value.
        negate: True for `filter_not`.
        store: name of the materialized result, or None.
        send_old_values: forward old values too.
        versioned: the parent table is versioned, so redundant tombstones are kept.
        store_versioned: `store` is a versioned one.
    """

    word = "filter"

    predicate: Predicate
    negate: bool = False
    store: str | None = None
    send_old_values: bool = False
    versioned: bool = False
    store_versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        predicate, negate = self.predicate, self.negate

        @inlined
        def kept(key: object, value: object) -> object:
            return None if value is None or bool(predicate(key, value)) is negate else value

        return derived_table(
            node,
            forward,
            kept,
            store=self.store,
            send_old_values=self.send_old_values,
            store_versioned=self.store_versioned,
            hides_unseen=not self.versioned,
        )
