"""Join a stream's records with rows of a global table. Kafka Streams' `KStreamGlobalKTableJoin`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.operators.value_getters import ValueGetter
from kstreams_repl.types import Headers


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

    table: ValueGetter
    key_mapper: Callable[[Any, Any], Any]
    joiner: Callable[..., Any]
    left: bool = False
    with_key: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        get, key_mapper, join, with_key, left = self.table.build(node), self.key_mapper, self.joiner, self.with_key, self.left
        drop = node.drop

        def stream_global_table_join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            mapped = key_mapper(key, value)
            if value is None or (mapped is None and not left):
                drop("null join key or value")
                return
            row = None if mapped is None else get(mapped)
            if row is not None:
                forward(key, join(key, value, row[0]) if with_key else join(value, row[0]), timestamp, headers)
            elif left:
                forward(key, join(key, value, None) if with_key else join(value, None), timestamp, headers)

        return stream_global_table_join
