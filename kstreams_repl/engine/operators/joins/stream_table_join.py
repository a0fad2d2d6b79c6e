"""Join a stream's records with a table's rows. Kafka Streams' `KStreamKTableJoin`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.operators.kernel import inlined, kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.value_getters import Row, StoreGetter, ValueGetter
from kstreams_repl.engine.operators.user_functions import joiner_of_side
from kstreams_repl.engine.processor.record_context import ContextSnapshot
from kstreams_repl.system.errors import NullKeyError
from kstreams_repl.system.types import Headers, Joiner, KeyValueMapper


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

    word = "join"
    role = "join"

    table: ValueGetter
    joiner: Joiner
    left: bool = False
    with_key: bool = False
    grace_ms: int | None = None
    buffer_store: str | None = None
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        as_of = self.versioned or self.buffer_store is not None
        join = joiner_of_side(self.joiner, with_key=self.with_key)
        entry = lookup_join(node, forward, self.table, join, own_key, left=self.left, as_of=as_of)
        return entry if self.buffer_store is None else self._buffered(node, self.buffer_store, entry)

    def _buffered(self, node: NodeContext, store: str, join: Process) -> Process:
        buffer, record, left = node.store(store), node.record, self.left
        put, evict_until, grace = buffer.put, buffer.evict_until, self.grace_ms or 0

        def resume(time: int) -> None:
            buffer.observed_time = max(time, buffer.observed_time)

        node.remember(store, lambda: buffer.observed_time, resume)

        def emit(key: object, value: object, context: ContextSnapshot) -> None:
            with record.replace(context):
                join(key, value, context.timestamp, context.headers)

        def emit_all() -> None:
            if buffer.min_time <= buffer.observed_time:
                evict_until(buffer.observed_time, emit)
                buffer.observed_time += grace

        node.on_window_close(emit_all)

        def stream_table_join_with_grace(key: object, value: object, timestamp: int, headers: Headers) -> None:
            if key is None and value is not None and left:
                raise NullKeyError(
                    f"{node.name}: a stream-table join with a grace period cannot buffer a record without a key",
                    hint="filter out records with a null key first, or join without grace",
                    node=node.name,
                    store=store,
                )
            if key is None or value is None or buffer.observed_time - grace > timestamp:
                join(key, value, timestamp, headers)
            else:
                context = ContextSnapshot(record.topic, record.partition, record.offset, timestamp, headers)
                put(timestamp, key, value, context)
                due = buffer.observed_time - grace
                if buffer.min_time <= due:
                    evict_until(due, emit)

        return stream_table_join_with_grace


@inlined
def own_key(key: object, value: object) -> object:
    """Return the record's own key."""
    return key


def lookup_join(
    node: NodeContext,
    forward: Process,
    table: ValueGetter,
    join: Joiner,
    key_of: KeyValueMapper,
    *,
    left: bool,
    as_of: bool = False,
) -> Process:
    """Return the entry that joins a record with the row of its mapped key, at its time if `as_of`."""
    drop = node.drop
    store = node.store(table.store) if isinstance(table, StoreGetter) and key_of is own_key and not as_of else None
    if store is not None and getattr(store, "cached", None) is not None:
        return _join_entries(node, forward, store, join, left)
    get: Callable[..., Row] = table.build_as_of(node) if as_of else table.build(node)

    def stream_table_join(key: object, value: object, timestamp: int, headers: Headers) -> None:
        mapped = key_of(key, value)
        if value is None or (mapped is None and not left):
            drop("null join key or value")
            return
        row = None if left and mapped is None else get(mapped, timestamp) if as_of else get(mapped)
        if row is not None:
            forward(key, join(key, value, row[0]), timestamp, headers)
        elif left:
            forward(key, join(key, value, None), timestamp, headers)

    quick = {"get"} if isinstance(table, StoreGetter) else set()
    return kernel(node, stream_table_join, calls={"join", "key_of"}, quick=quick)


def _join_entries(node: NodeContext, forward: Process, store: Any, join: Joiner, left: bool) -> Process:
    """Return the entry of a join by the record's own key with a cached table: it reads the row's slot by the key's bytes, which a loop has
    already, so the key need not be read.
    """
    drop, to_bytes, read, refuse, cache = node.drop, store.serialize_key, store.get_raw, store.get, store.cached
    find, frozen, thaw = cache.find, cache.frozen, cache.thaw

    def below(data: bytes | None) -> object:
        row = refuse(None) if data is None else read(data)
        return None if row is None else row[0]

    def stream_table_join(key: object, value: object, timestamp: int, headers: Headers) -> None:
        if value is None or (key is None and not left):
            drop("null join key or value")
            return
        data = to_bytes(key)
        slot = find(data)
        if slot is None:
            row = None if left and key is None else below(data)
        else:
            row = slot.value
            if type(row) is frozen:
                row = None if row.data is None else thaw(row.data)
        if row is not None:
            forward(key, join(key, value, row), timestamp, headers)
        elif left:
            forward(key, join(key, value, None), timestamp, headers)

    return kernel(node, stream_table_join, calls={"join"}, quick={"find", "below", "thaw"}, store=store)
