"""The record cache of a deployed store: what `CachedCells` does, with one look-up per record.

Each key has a *slot* (a small list) that holds its cell and the context of its last write; writes append the slot to `order`, and a flush
walks that list, taking each slot at its last place: last-write order without hashing. What differs from Kafka Streams' cache: reads
do not count as use, and when the task's budget is exceeded the store flushes everything it has instead of one entry at a time. Both only move
*when* an update leaves, which depends on the commit interval anyway. Immutable values stay objects until they leave; mutable ones are
serialized at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sortedcontainers import SortedList

from kstreams_repl.stores.cells import EntryListener
from kstreams_repl.stores.changelog import NO_HEADERS, Changelog
from kstreams_repl.stores.codec import Codec
from kstreams_repl.stores.record_cache import ENTRY_OVERHEAD, RecordCache
from kstreams_repl.stores.rows import Rows

_CELL, _STORED, _PLACE, _TOPIC, _PARTITION, _OFFSET, _TIMESTAMP, _HEADERS, _KEY = range(9)
_CLEAN, _LEAVING = -1, -2
_Slot = list[Any]
"""[cell, bytes when serialized at once, place of the last write in `order`, topic, partition, offset, timestamp, headers, key]. The place is
-1 in a clean slot and -2 in one that is being forwarded: a write that comes back to its key then gets a slot of its own."""

_VALUE_SIZE = 24
_CHECK_EVERY = 1024
_CAPACITY = 100_000


class WriteBackCache:
    """One cached store's objects in a deployed task (`stores.cells.Cells`).

    Args:
        shared: the task's budget; dirty entries count towards it by an estimate that is renewed every 1,024 writes.
        capacity: so many slots are kept for reading after they were flushed.
    """

    def __init__(
        self, rows: Rows, codec: Codec, changelog: Changelog, record_context: Any, shared: RecordCache, *, capacity: int = _CAPACITY
    ) -> None:
        self._rows = rows
        self._codec = codec
        self._changelog = changelog
        self._context = record_context
        self._listener: EntryListener | None = None
        self._send_old_values = False
        self._shared = shared
        self._capacity = capacity
        self._slots: dict[bytes, _Slot] = {}
        self._order: list[_Slot] = []
        self._index: SortedList | None = None
        self.size = 0
        shared.caches.append(self)
        self.cache = self
        self.get: Callable[[bytes], Any]
        self.put: Callable[[bytes, Any], None]
        self.get, self.put = self._make_access()

    @property
    def dirty(self) -> bool:
        return bool(self._order)

    def _make_access(self) -> tuple[Callable[[bytes], Any], Callable[[bytes, Any], None]]:
        slots, order, context, codec = self._slots, self._order, self._context, self._codec
        find, append, read, decode, encode = slots.get, order.append, self._rows.get, codec.decode, codec.encode
        deferrable, timestamped, check = codec.deferrable, codec.timestamped, self._check
        last_key: bytes | None = None
        last_slot: _Slot | None = None

        def get(key: bytes) -> Any:
            nonlocal last_key, last_slot
            slot = find(key)
            if slot is None:
                stored = read(key)
                if stored is None:
                    return None
                cell = decode(stored)
                if type(cell[0] if timestamped else cell) not in deferrable:
                    return cell
                slots[key] = slot = [cell, None, _CLEAN, None, -1, -1, -1, None, key]
            last_key, last_slot = key, slot
            cell = slot[0]
            if cell is not None:
                return cell
            stored = slot[1]
            return None if stored is None else decode(stored)

        def put(key: bytes, cell: Any) -> None:
            stored = None
            if cell is not None and type(cell[0] if timestamped else cell) not in deferrable:
                stored, cell = encode(cell), None
            slot = last_slot if key is last_key else find(key)
            place = len(order)
            if slot is None or slot[2] == -2:
                slots[key] = slot = [
                    cell, stored, place, context.topic, context.partition, context.offset, context.timestamp, context.headers, key,
                ]  # fmt: skip
                if self._index is not None:
                    self._index.add(key)
            else:
                if self._index is not None and slot[2] == -1:
                    self._index.add(key)
                slot[0], slot[1], slot[2] = cell, stored, place
                slot[3], slot[4], slot[5] = context.topic, context.partition, context.offset
                slot[6], slot[7] = context.timestamp, context.headers
            append(slot)
            if not place & 1023:
                check()

        def forget() -> None:
            nonlocal last_key, last_slot
            last_key = last_slot = None

        self._forget_last = forget
        return get, put

    def _check(self) -> None:
        """Estimate what the dirty entries weigh; flush when the task's budget is exceeded, and forget clean slots when they are many."""
        order = self._order
        sample = order[-64:]
        weight = sum(len(slot[_KEY]) + (_VALUE_SIZE if slot[_STORED] is None else len(slot[_STORED])) for slot in sample)
        size = len(order) * (ENTRY_OVERHEAD + weight // len(sample))
        self._account(size)
        if self._shared.size > self._shared.max_bytes:
            self.flush()

    def _account(self, size: int) -> None:
        self._shared.size += size - self.size
        self.size = size

    def set_flush_listener(self, listener: EntryListener, send_old_values: bool) -> bool:
        self._listener = listener
        self._send_old_values = send_old_values
        return True

    def flush(self) -> None:
        """Write and log all dirty entries, then forward them; a reader downstream sees every one of them."""
        order = self._order
        if not order:
            return
        leaving = [slot for place, slot in enumerate(order) if slot[2] == place]
        order.clear()
        self._index = None
        self._account(0)
        old_cells = self._read_old(leaving) if self._listener is not None else {}
        self._write(leaving, old_cells)
        if self._listener is not None:
            self._forward(leaving, old_cells, self._listener)
        self._settle(leaving)

    def _settle(self, leaving: list[_Slot]) -> None:
        """Keep immutable cells for reading, and forget them all when they are many."""
        slots = self._slots
        for slot in leaving:
            slot[2] = -1
            if slot[0] is None and slots.get(slot[8]) is slot:
                del slots[slot[8]]
        if len(slots) > self._capacity:
            kept = {slot[_KEY]: slot for slot in self._order}
            slots.clear()
            slots.update(kept)
        self._forget_last()

    def _read_old(self, leaving: list[_Slot]) -> dict[bytes, Any]:
        """Cells below the entries, where they are needed: all of them to send old values, else for tombstones only."""
        read, decode, send_old = self._rows.get, self._codec.decode, self._send_old_values
        old: dict[bytes, Any] = {}
        for slot in leaving:
            if send_old or (slot[0] is None and slot[1] is None):
                key = slot[8]
                stored = read(key)
                if stored is not None:
                    old[key] = decode(stored)
        return old

    def _write(self, leaving: list[_Slot], old_cells: dict[bytes, Any]) -> None:
        rows, codec = self._rows, self._codec
        put, log_key, encode, log_value, log_timestamp = rows.put, rows.log_key, codec.encode, codec.log_value, codec.log_timestamp
        send, forwards = self._changelog.send, self._listener is not None
        for slot in leaving:
            cell, stored, key = slot[0], slot[1], slot[8]
            slot[2] = -2
            if cell is not None:
                stored = encode(cell)
            elif stored is None and forwards and key not in old_cells:
                continue  # a tombstone for a row that is not there
            put(key, stored)
            if send is not None:
                name = key if log_key is None else log_key(key)
                if stored is None:
                    send(name, None, slot[6], NO_HEADERS, None)
                else:
                    send(name, log_value(stored), log_timestamp(stored, slot[6]), NO_HEADERS, None)

    def _forward(self, leaving: list[_Slot], old_cells: dict[bytes, Any], listener: EntryListener) -> None:
        context, decode, old_of, send_old = self._context, self._codec.decode, old_cells.get, self._send_old_values
        kept = (context.topic, context.partition, context.offset, context.timestamp, context.headers)
        context.raw_key = context.raw_value = None
        try:
            for cell, stored, _, topic, partition, offset, timestamp, headers, key in leaving:
                if cell is None:
                    if stored is not None:
                        cell = decode(stored)
                    elif key not in old_cells:
                        continue
                context.topic, context.partition, context.offset, context.timestamp, context.headers = topic, partition, offset, timestamp, headers
                listener(key, cell, old_of(key) if send_old else None, timestamp, headers)
        finally:
            context.topic, context.partition, context.offset, context.timestamp, context.headers = kept

    def range(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, Any]]:
        """Rows with dirty entries over them, in key order."""
        decode = self._codec.decode
        rows = self._rows.range(low, high, reverse)
        if not self._order:
            return ((key, decode(stored)) for key, stored in rows)
        if self._index is None:
            self._index = SortedList({slot[_KEY] for slot in self._order})
        cached = [self._slots[key] for key in self._index.irange(low, high, inclusive=(True, False), reverse=reverse)]
        return self._merge(cached, rows, reverse)

    def _merge(self, cached: list[_Slot], rows: Iterator[tuple[bytes, bytes]], reverse: bool) -> Iterator[tuple[bytes, Any]]:
        decode = self._codec.decode
        row = next(rows, None)
        for slot in cached:
            key = slot[_KEY]
            while row is not None and row[0] != key and (row[0] > key if reverse else row[0] < key):
                yield row[0], decode(row[1])
                row = next(rows, None)
            if row is not None and row[0] == key:
                row = next(rows, None)
            if slot[_CELL] is not None:
                yield key, slot[_CELL]
            elif slot[_STORED] is not None:
                yield key, decode(slot[_STORED])
        while row is not None:
            yield row[0], decode(row[1])
            row = next(rows, None)

    def clear(self) -> None:
        self._slots.clear()
        self._order.clear()
        self._index = None
        self._forget_last()
        self._account(0)
        self._changelog.clear()
