"""Join a stream's records with rows of a global table. Kafka Streams' `KStreamGlobalKTableJoin`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.joins.stream_table_join import lookup_join
from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.value_getters import StoreGetter, ValueGetter
from kstreams_repl.engine.operators.user_functions import joiner_of_side
from kstreams_repl.system.types import Headers, Joiner, KeyValueMapper


@dataclass(slots=True)
class StreamGlobalTableJoin(Operator):
    """`StreamTableJoin` with a global table, read at the key `key_mapper(key, value)` (never buffered, not versioned).

    Inner: a None *mapped* key is dropped and counted. Left: a None mapped key joins with None, whether or not the record has a key (Kafka
    Streams since 4.3). The stream record's key and timestamp are kept.

    Attributes:
        table: getter of the global table's row.
        key_mapper: (key, value) -> key of the global table.
        joiner: (value, table value) -> value, or (key, value, table value) -> value when `with_key` (the stream's key).
        left: left (not inner) join.
        with_key: the joiner also takes the key.
        with_mapped_key: the joiner takes (key, mapped key, value, table value) (KIP-1340).
    """

    word = "join"
    role = "join"

    table: ValueGetter
    key_mapper: KeyValueMapper
    joiner: Joiner
    left: bool = False
    with_key: bool = False
    with_mapped_key: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        if self.with_mapped_key:
            return self._with_mapped_key(node, forward)
        join = joiner_of_side(self.joiner, with_key=self.with_key)
        return lookup_join(node, forward, self.table, join, self.key_mapper, left=self.left)

    def _with_mapped_key(self, node: NodeContext, forward: Process) -> Process:
        get, drop, join, key_of, left = self.table.build(node), node.drop, self.joiner, self.key_mapper, self.left

        def stream_global_table_join(key: object, value: object, timestamp: int, headers: Headers) -> None:
            mapped = key_of(key, value)
            if value is None or (mapped is None and not left):
                drop("null join key or value")
                return
            row = None if mapped is None else get(mapped)
            if row is not None:
                forward(key, join(key, mapped, value, row[0]), timestamp, headers)
            elif left:
                forward(key, join(key, mapped, value, None), timestamp, headers)

        quick = {"get"} if isinstance(self.table, StoreGetter) else set()
        return kernel(node, stream_global_table_join, calls={"join", "key_of"}, quick=quick)
