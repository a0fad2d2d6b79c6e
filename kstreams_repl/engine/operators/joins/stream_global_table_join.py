"""Join a stream's records with rows of a global table. Kafka Streams' `KStreamGlobalKTableJoin`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.joins.stream_table_join import lookup_join
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.value_getters import ValueGetter
from kstreams_repl.engine.operators.user_functions import joiner_of_side
from kstreams_repl.system.types import Joiner, KeyValueMapper


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
    """

    word = "join"
    role = "join"

    table: ValueGetter
    key_mapper: KeyValueMapper
    joiner: Joiner
    left: bool = False
    with_key: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        join = joiner_of_side(self.joiner, with_key=self.with_key)
        return lookup_join(node, forward, self.table, join, self.key_mapper, left=self.left)
