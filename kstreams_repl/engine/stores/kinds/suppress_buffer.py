"""The buffer of `suppress`: one entry per key, ordered by (time, key bytes).

An update of a buffered key keeps the entry's position but replaces its value and context. Entries live in memory; a flush writes
the changes since the last one to the engine and the changelog together, in the changelog's layout, so a restart reads the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sortedcontainers import SortedList

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.kinds.buffer_headers import NO_HEADERS_NO_TIME, front_of, fronts, logged, packed, value_of
from kstreams_repl.engine.stores.kinds.buffer_value import BufferValue, Context
from kstreams_repl.engine.stores.kinds.typed_store import LONG, MAX_LONG
from kstreams_repl.engine.stores.log.changelog import NO_HEADERS, Send
from kstreams_repl.system.errors import NullKeyError
from kstreams_repl.system.types import Headers

VERSION_HEADER: Headers = [("v", b"\x03")]

Emit = Callable[[object, object, object, Context], None]
"""(key, new value, old value, record context) of one evicted entry."""


class SuppressBuffer:
    """Buffered changes by key, with their times.

    Args:
        headers: whether values keep the headers and the time with which they came (`dsl.store.format=HEADERS`, as in Kafka Streams 4.4).
    """

    def __init__(
        self,
        name: str,
        environment: Environment,
        key_serde: Serde,
        value_serde: Serde,
        *,
        send: Send | None,
        partition: int | None = None,
        persistent: bool,
        context_type: Callable[..., Context] | None = None,
        exact_order: bool = True,
        headers: bool = False,
    ) -> None:
        self.name = name
        self.persistent = persistent
        self._engine = environment.engine(name, persistent=persistent)
        self._key = key_serde
        self._value = value_serde
        self._send = send
        self._partition = partition
        self._context_type = context_type
        self._exact_order = exact_order
        self._headers = headers
        self._values: dict[bytes, BufferValue] = {}
        self._times: dict[bytes, int] = {}
        self._order = SortedList()
        self._dirty: dict[bytes, None] = {}
        self._capacity = 16
        self._byte_size = 0
        self.min_time = MAX_LONG
        self._load()
        environment.after_rollback(self._load)

    def _load(self) -> None:
        self._values.clear()
        self._times.clear()
        self._dirty.clear()
        self._order.clear()
        self._byte_size = 0
        for key, data in self._engine.range():
            value = BufferValue.decode(data, self._context_type)
            self._values[key] = value
            self._times[key] = LONG.unpack_from(data, len(data) - 8)[0]
            self._byte_size += 8 + len(key) + value.size()
        self._order.update((time, key) for key, time in self._times.items())
        self.min_time = self._order[0][0] if self._order else MAX_LONG

    def record_count(self) -> int:
        return len(self._times)

    def byte_size(self) -> int:
        """Return Kafka Streams' size estimate in bytes: per entry 8 + the key's length + its values and context."""
        return self._byte_size

    def put(self, time: int, key: object, new: object, old: object, context: Context) -> None:
        """Buffer a change of `key` under `time`; a key that is already buffered keeps its time."""
        data = self._key.serialize(key)
        if data is None:
            raise NullKeyError(f"store {self.name}: the key must not be null", store=self.name)
        old_bytes, new_bytes = self._value.serialize(old), self._value.serialize(new)
        before = self._values.get(data)
        if self._headers:
            old_bytes, new_bytes = self._with_headers(before, old_bytes, new_bytes, context)
        value = BufferValue(old_bytes if before is None else before.prior, old_bytes, new_bytes, context)
        if before is None:
            self._times[data] = time
            self._order.add((time, data))
            if time < self.min_time:
                self.min_time = time
            self._byte_size += 8 + len(data) + value.size()
        else:
            self._byte_size += value.size() - before.size()
        self._values[data] = value
        self._mark_dirty(data)

    def evict_first(self, emit: Emit) -> None:
        """Pass the first entry to `emit`, then remove it."""
        _, key = self._order[0]
        value = self._values[key]
        deserialize = self._part if self._headers else self._value.deserialize
        emit(self._key.deserialize(key), deserialize(value.new), deserialize(value.old), value.context)
        order = self._order
        order.pop(0)
        del self._values[key]
        del self._times[key]
        self._mark_dirty(key)
        self._byte_size -= 8 + len(key) + value.size()
        self.min_time = order[0][0] if order else MAX_LONG

    def _mark_dirty(self, key: bytes) -> None:
        self._dirty[key] = None
        if len(self._dirty) * 4 > self._capacity * 3:
            self._capacity *= 2

    def prior_value(self, key: object) -> tuple[Any] | None:
        """Return `(the value the key had before it was buffered,)`, or None if it is not buffered."""
        data = self._key.serialize(key)
        value = None if data is None else self._values.get(data)
        return None if value is None else (self._part(value.prior) if self._headers else self._value.deserialize(value.prior),)

    def _with_headers(
        self, before: BufferValue | None, old: bytes | None, new: bytes | None, context: Context
    ) -> tuple[bytes | None, bytes | None]:
        """Return both values with headers and time in front: the new one's are the record's, the old one's those with which it was put
        into this buffer; empty and -1 if it never was.
        """
        front = NO_HEADERS_NO_TIME if before is None or before.new is None else front_of(before.new)
        return None if old is None else front + old, None if new is None else packed(context[4], context[3]) + new

    def _part(self, data: bytes | None) -> Any:
        return self._value.deserialize(value_of(data))

    def flush(self) -> None:
        if not self._dirty:
            return
        send, put = self._send, self._engine.put
        for key in self._flush_order():
            value = self._values.get(key)
            data = None if value is None else value.encode() + LONG.pack(self._times[key])
            put(key, data)
            if send is not None:
                headers = NO_HEADERS if value is None else VERSION_HEADER
                if self._headers and value is not None:
                    data, headers = logged(value), [*VERSION_HEADER, *fronts(value)]
                    data += LONG.pack(self._times[key])
                send(key, data, None, headers, self._partition)
        self._dirty.clear()

    def _flush_order(self) -> Iterable[bytes]:
        return java_hash_order(self._dirty, self._capacity) if self._exact_order else self._dirty

    def close(self) -> None:
        self._dirty.clear()

    def __repr__(self) -> str:
        return f"SuppressBuffer({self.name!r}, {len(self._times)} records, {self._byte_size} bytes)"


def java_hash_order(keys: Iterable[bytes], capacity: int) -> list[bytes]:
    """Return the iteration order of a Java `HashSet<Bytes>` with that table size: the order of Kafka Streams' flush."""

    def bucket(key: bytes) -> int:
        code = 1
        for byte in key:
            code = (31 * code + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
        return (code ^ (code >> 16)) & (capacity - 1)

    return sorted(keys, key=bucket)
