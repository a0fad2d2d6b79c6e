"""Join a stream's records with a table's rows. Kafka Streams' `KStreamKTableJoin`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.errors import NullKeyError
from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.operators.joiners import Joiner, joiner_with_key
from kstreams_repl.operators.value_getters import ValueGetter
from kstreams_repl.runtime.record_context import ContextSnapshot
from kstreams_repl.types import Headers


@dataclass(slots=True)
class StreamTableJoin(Operator):
    """Look up the table row of a record's key and forward the joined value with the stream record's key and timestamp.

    Inner: a None key is dropped and counted; no row, no output. Left: a missing row (or a None key) joins with None. A None stream value
    is dropped and counted. A versioned table is read as of the record's timestamp. With `buffer_store` (KIP-923), stream records are
    buffered until the largest buffered timestamp is `grace_ms` ahead of them, and then joined under their own record context; later
    records are joined immediately. A left join with grace rejects None keys, as Kafka Streams does, because the buffer is ordered by key.

    Attributes:
        table: getter of the table's row.
        joiner: (value, table value) -> value, or (key, value, table value) -> value when `with_key`.
        left: left (not inner) join.
        with_key: the joiner also takes the key.
        grace_ms: how long records are buffered, in ms of stream time; None = not at all.
        buffer_store: name of the buffer (kind `JOIN_GRACE_BUFFER`); None without grace.
        versioned: the table is versioned.
    """

    table: ValueGetter
    joiner: Callable[..., Any]
    left: bool = False
    with_key: bool = False
    grace_ms: int | None = None
    buffer_store: str | None = None
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        if self.buffer_store is not None:
            return self._buffered(node, self.buffer_store, forward)
        if self.versioned:
            return self._as_of(node, forward)
        get, join, with_key, left, drop = self.table.build(node), self.joiner, self.with_key, self.left, node.drop

        def stream_table_join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or key is None:
                if value is None or not left:
                    drop("null join key or value")
                else:
                    forward(key, join(key, value, None) if with_key else join(value, None), timestamp, headers)
                return
            row = get(key)
            if row is not None:
                forward(key, join(key, value, row[0]) if with_key else join(value, row[0]), timestamp, headers)
            elif left:
                forward(key, join(key, value, None) if with_key else join(value, None), timestamp, headers)

        return stream_table_join

    def _as_of(self, node: NodeContext, forward: Process) -> Process:
        left, drop = self.left, node.drop
        join = self._join_as_of(node, forward)

        def stream_table_join_as_of(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                drop("null join key or value")
            else:
                join(key, value, timestamp, headers)

        return stream_table_join_as_of

    def _join_as_of(self, node: NodeContext, forward: Process) -> Process:
        get = self.table.build_as_of(node)
        join: Joiner = joiner_with_key(self.joiner, self.with_key)
        left = self.left

        def join_as_of(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            row = None if key is None else get(key, timestamp)
            if row is not None:
                forward(key, join(key, value, row[0]), timestamp, headers)
            elif left:
                forward(key, join(key, value, None), timestamp, headers)

        return join_as_of

    def _buffered(self, node: NodeContext, store: str, forward: Process) -> Process:
        buffer, record, drop, left = node.store(store), node.record, node.drop, self.left
        put, evict_until, grace = buffer.put, buffer.evict_until, self.grace_ms or 0
        join = self._join_as_of(node, forward)

        def resume(time: int) -> None:
            buffer.observed_time = max(time, buffer.observed_time)

        node.remember(store, lambda: buffer.observed_time, resume)

        def emit(key: Any, value: Any, context: ContextSnapshot) -> None:
            with record.replace(context):
                join(key, value, context.timestamp, context.headers)

        def stream_table_join_with_grace(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                drop("null join key or value")
            elif key is None:
                raise NullKeyError(
                    f"{node.name}: a stream-table join with a grace period cannot buffer a record without a key",
                    hint="filter out records with a null key first, or join without grace",
                    node=node.name,
                    store=store,
                )
            elif buffer.observed_time - grace > timestamp:
                join(key, value, timestamp, headers)
            else:
                context = ContextSnapshot(record.topic, record.partition, record.offset, timestamp, headers)
                put(timestamp, key, value, context)
                due = buffer.observed_time - grace
                if buffer.min_time <= due:
                    evict_until(due, emit)

        return stream_table_join_with_grace
