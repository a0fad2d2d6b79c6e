"""Joins of two co-partitioned tables. Kafka Streams' `KTableKTableInnerJoin` and its siblings, `KTableKTableJoinMerger`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kstreams_repl.engine.operators.kernel import inlined, kernel
from kstreams_repl.engine.operators.operator import Change, NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.tuple_forwarder import derived_table
from kstreams_repl.engine.operators.tables.value_getters import ValueGetter
from kstreams_repl.engine.operators.user_functions import joiner_of_side
from kstreams_repl.system.types import Headers, Joiner


class TableJoinKind(StrEnum):
    """Which rows the operator of one *side* emits, as seen from that side: in a left join the left side is LEFT, the right side RIGHT."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"


@dataclass(slots=True)
class TableTableJoin(Operator):
    """One side of a table-table join: joins a change of this side with the other side's current row.

    Kinds: INNER = KTableKTableInnerJoin (both sides); LEFT = KTableKTableLeftJoin (left side of a left join); RIGHT =
    KTableKTableRightJoin (right side of a left join); OUTER = KTableKTableOuterJoin (both sides). None keys, and changes of a versioned
    table that are not the latest, are dropped and counted. Timestamp: max of both sides.

    Attributes:
        kind: see above.
        other: getter of the other side's row.
        joiner: (left, right) -> value, or (key, left, right) -> value when `with_key`; always called in left, right order.
        this_is_right: this operator is the right side (so swap the arguments of `joiner`).
        with_key: the joiner also takes the key.
        send_old_values: forward the old joined value too.
    """

    word = "join"
    role = "join"

    kind: TableJoinKind
    other: ValueGetter
    joiner: Joiner
    this_is_right: bool = False
    with_key: bool = False
    send_old_values: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        read, drop, send_old = self.other.build(node), node.drop, self.send_old_values
        join = joiner_of_side(self.joiner, with_key=self.with_key, left_side=not self.this_is_right)
        needs_this = self.kind in (TableJoinKind.INNER, TableJoinKind.LEFT)
        needs_other = self.kind in (TableJoinKind.INNER, TableJoinKind.RIGHT)

        @inlined
        def joined(key: object, this: object, other: object) -> object:
            return None if this is None and (needs_this or other is None) else join(key, this, other)

        def join_tables(key: object, value: Change, timestamp: int, headers: Headers) -> None:
            new, old, is_latest = value
            if not is_latest:
                drop("out of order in a versioned table")
                return
            row = read(key)
            if row is None:
                if needs_other or (new is None and old is None):
                    return
                other = None
            else:
                other, other_time = row
                if other_time > timestamp:
                    timestamp = other_time
            new = joined(key, new, other)
            old = joined(key, old, other) if send_old else None
            forward(key, (new, old, True), timestamp, headers)

        return kernel(node, join_tables, null="key")


@dataclass(slots=True)
class TableTableJoinMerger(Operator):
    """Merge the results of both sides: put them into `store` if materialized, otherwise forward the changes unchanged.

    Attributes:
        store: name of the materialized result, or None.
        send_old_values: forward old values too (from the store if there is one).
        store_versioned: `store` is a versioned one.
    """

    role = "join"

    store: str | None = None
    send_old_values: bool = False
    store_versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        return derived_table(
            node,
            forward,
            _same,
            store=self.store,
            send_old_values=self.send_old_values,
            store_versioned=self.store_versioned,
            reads_old=False,
        )


@inlined
def _same(key: object, value: object) -> object:
    return value
