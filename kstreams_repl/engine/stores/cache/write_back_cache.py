"""The record cache of a deployed store: equivalent to `CachedObjects`, with one lookup per record and flushes that work in columns.

Each key has a `CacheEntry` with its current object and the context of its last write (`cache_entry` has its states). Each write appends the
entry to the dirty entries (`dirty_entries`). A flush (`entry_flush`) takes each entry at its last position, which is last-write order
without hashing, and then works column by column: encode all, write all, log all, and send all to the topic downstream of the store
if there is one (`set_outlet`).
Differences from Kafka Streams' cache: reads do not count as use, and when the task's budget is exceeded the store flushes
all its entries instead of one at a time. Both only change *when* an update is flushed, which depends on the commit interval anyway.
Immutable values stay objects until they are flushed; mutable ones are serialized immediately (`Frozen`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.serdes.serde import of_values
from kstreams_repl.engine.stores.cache.cache_entry import NOTHING, CacheEntry, EntryState, Frozen, frozen
from kstreams_repl.engine.stores.cache.dirty_entries import DirtyBytes, DirtyEntries
from kstreams_repl.engine.stores.cache.entry_flush import Columns, EntryFlush
from kstreams_repl.engine.stores.cache.record_cache import RecordCache
from kstreams_repl.engine.stores.layers.bytes_store import PhysicalRows, merged_over
from kstreams_repl.engine.stores.layers.codec import SMALL, Codec
from kstreams_repl.engine.stores.layers.object_store import EntryListener
from kstreams_repl.engine.stores.log.changelog import Changelog
from kstreams_repl.system.types import Deserialize, Headers, Outlet, RowLoop

_CAPACITY = 100_000


class RowsOver(Protocol):
    """Rows that the operator which owns the store keeps in a form of its own; they are flushed with the cache (`write_over`)."""

    @property
    def dirty(self) -> bool: ...

    def flush(self) -> None: ...

    def clear(self) -> None: ...


class WriteBackCache:
    """The objects of one cached store in a deployed task (`engine.stores.layers.object_store.StoredObjects`).

    Args:
        visible: called before a range returns a dirty entry (expired windows and sessions are hidden); None shows all. Callers of point
            reads check it themselves.
        shared: the task's budget; dirty entries count towards it by an estimate that is updated every 1,024 writes and, where values
            have no fixed layout, after writes of a sixteenth of the budget.
        capacity: maximum number of objects kept for reads after a flush.
    """

    frozen = Frozen

    def __init__(
        self,
        rows: PhysicalRows,
        codec: Codec,
        changelog: Changelog,
        record_context: RecordContext,
        shared: RecordCache,
        *,
        visible: Callable[[bytes], bool] | None = None,
        capacity: int = _CAPACITY,
    ) -> None:
        self._rows = rows
        self._visible = visible
        self.codec = self._codec = codec
        self.below: Callable[[bytes], bytes | None] = rows.get
        """Returns the stored bytes of a key below the cache."""
        self.over: RowsOver | None = None
        self._size_over = 0
        self._shared = shared
        self._changelog = changelog
        self._capacity = capacity
        self._slots: dict[bytes, CacheEntry] = {}
        self._dirty = DirtyEntries()
        self._bytes = DirtyBytes(shared, codec)
        self._flush = EntryFlush(rows, codec, changelog, record_context)
        self._any_frozen = False
        self._leave_contexts_out: Callable[[], None]
        shared.caches.append(self)
        self.cache = self
        self.find: Callable[[bytes], CacheEntry | None] = self._slots.get
        """Returns the slot of a cached key; its value may be a `Frozen`. None says nothing about the row below."""
        self.get: Deserialize
        self.put: Callable[[bytes, object], None]
        self.rewrite: Callable[[CacheEntry, object, int], None]
        self.load: Callable[[bytes], CacheEntry]
        """Creates the slot of a key that has none, from the row below; without a row its value is `NOTHING` and its timestamp 0."""
        self.make: Callable[[bytes], CacheEntry]
        """Creates the slot of a key that has none, and that has no row below."""
        self.thaw: Deserialize = of_values(codec.serde.deserialize)
        """Returns the value of the bytes in a `Frozen`."""
        self.dropped: Callable[[], object] = list
        """Called when slots were dropped: their keys have rows below from now on."""
        self.get, self.put, self.rewrite, self.load, self.make = self._make_access(record_context)
        self.deferrable = codec.deferrable
        order = self._dirty.order
        self.names = {"dirty": EntryState.DIRTY, "order": order, "note": order.append, "check": self._check}
        self.names |= {"texts": self._bytes.texts, "written": self._bytes.written, "freeze": self._freeze}
        self.names |= {"serialize": of_values(codec.serde.serialize), "frozen": Frozen}
        """The names that generated code needs to inline `rewrite` (`operators.loop_lines.entry_lines`)."""

    @property
    def dirty(self) -> bool:
        return bool(self._dirty.order) or (self.over is not None and self.over.dirty)

    @property
    def with_context(self) -> bool:
        """Whether slots keep topic, partition and offset of their last record."""
        return self._flush.with_context

    @property
    def variable(self) -> bool:
        """Whether values have no fixed layout, so that their lengths are counted."""
        return self._bytes.variable

    @property
    def texts(self) -> frozenset[type]:
        """Types whose values can be long."""
        return self._bytes.texts

    def _make_access(
        self, context: RecordContext
    ) -> tuple[
        Deserialize,
        Callable[[bytes, object], None],
        Callable[[CacheEntry, object, int], None],
        Callable[[bytes], CacheEntry],
        Callable[[bytes], CacheEntry],
    ]:
        slots, find, read, check = self._slots, self._slots.get, self._rows.get, self._check
        order, note, make = self._dirty.order, self._dirty.order.append, CacheEntry
        clean, dirty, leaving, small = EntryState.CLEAN, EntryState.DIRTY, EntryState.LEAVING, SMALL
        with_context = True

        def leave_contexts_out() -> None:
            nonlocal with_context
            with_context = False

        self._leave_contexts_out = leave_contexts_out
        freeze, decode, deferrable, timestamped = self._freeze, self._codec.decode, self._codec.deferrable, self._codec.timestamped
        thaw, data_of, time_of, lazy = self.thaw, self._codec.log_value, self._codec.log_timestamp, self._codec.serde.layout is None

        light, texts, written = deferrable - self._bytes.texts, self._bytes.texts, self._bytes.written
        most, capacity, settle, nothing = 2 * self._capacity, self._capacity, self._settle, NOTHING

        def keep(key: bytes, value: object, at: int) -> CacheEntry:
            nonlocal most
            if len(slots) > most:  # a table that is only read is never flushed
                settle([])
                most = 2 * max(capacity, len(slots))
            slots[key] = slot = make()
            slot.key, slot.value, slot.at, slot.state = key, value, at, clean
            return slot

        def load(key: bytes) -> CacheEntry:
            stored = read(key)
            if stored is None:
                return keep(key, nothing, 0)
            if lazy:  # the value is read when an operator needs it
                return keep(key, frozen(data_of(stored)), time_of(stored, 0))
            item = decode(stored)
            value, at = item if timestamped else (item, 0)
            return keep(key, value if type(value) in deferrable else frozen(data_of(stored)), at)

        def make_entry(key: bytes) -> CacheEntry:
            return keep(key, nothing, 0)

        def get(key: bytes) -> object:
            slot = find(key)
            if slot is None:
                if self.over is not None:
                    self.over.flush()
                stored = read(key)
                if stored is None:
                    return None
                item = decode(stored)
                value, at = item if timestamped else (item, 0)
                if type(value) in light or len(stored) <= small:
                    keep(key, value if type(value) in deferrable else frozen(data_of(stored)), at)
                return item
            value = slot.value
            if type(value) is Frozen:
                if value.data is None:
                    return None
                value = thaw(value.data)
            return (value, slot.at) if timestamped else value

        def put(key: bytes, item: Any) -> None:
            value, at = (None, 0) if item is None else item if timestamped else (item, 0)
            if type(value) not in deferrable:
                value = freeze(value)
            slot = find(key)
            if slot is None or slot.state is leaving:
                slots[key] = slot = make()
                slot.key, slot.state = key, clean
            rewrite(slot, value, at)

        def rewrite_any(slot: CacheEntry, value: object, at: int) -> None:
            if type(value) not in deferrable:
                value = freeze(value)
            if slot.state is leaving:
                slot = self._successor(slot)
            slot.value = value
            slot.at = at
            slot.state = dirty
            slot.timestamp = context.timestamp
            slot.headers = context.headers
            if with_context:
                slot.topic = context.topic
                slot.partition = context.partition
                slot.offset = context.offset
            note(slot)
            if not len(order) & 1023:
                check()

        def rewrite_sized(slot: CacheEntry, value: Any, at: int) -> None:
            if type(value) in texts:
                written[0] += len(value)
            rewrite_any(slot, value, at)
            if written[0] > written[1]:
                check()

        rewrite = rewrite_sized if self._bytes.variable else rewrite_any
        return get, put, rewrite, load, make_entry

    def _freeze(self, value: object) -> Frozen:
        """Return a value that is mutable or None in its serialized form."""
        self._any_frozen = True
        if type(value) is Frozen:
            return value
        if value is None:
            return frozen(None)
        data = self._codec.serde.serialize(value)
        self._bytes.written[0] += 0 if data is None else len(data)
        return frozen(data)

    def _successor(self, leaving: CacheEntry) -> CacheEntry:
        """Return a new slot for a key whose slot is being forwarded."""
        key = leaving.key
        slot = self._slots.get(key)
        if slot is None or slot.state is EntryState.LEAVING:
            self._slots[key] = slot = CacheEntry()
            slot.key, slot.state = key, EntryState.CLEAN
        return slot

    def _check(self) -> None:
        """Flush if the task's budget is exceeded and repeated writes are not the only cause."""
        order = self._dirty.order
        if self._dirty.is_long:
            self._compact()
        if self._bytes.exceed_budget(order):
            before = len(order)
            self._compact()
            if self._bytes.exceed_budget(order) or len(order) > before // 2:
                self.flush()

    def _compact(self) -> None:
        self._dirty.compact()
        self._bytes.recount(self._dirty.order)

    # ---- flushing ----------------------------------------------------------------------------------------------------------------

    def set_flush_listener(self, listener: EntryListener, send_old_values: bool) -> bool:
        self._flush.listen(listener, send_old_values)
        return True

    def set_outlet(self, outlet: Outlet) -> None:
        """Send flushed rows to `outlet` as (physical keys, serialized values, timestamps, headers) instead of to the listener.

        Call it only if the listener needs no old values and the objects are timestamped.
        """
        self._flush.outlet = outlet
        if not self._bytes.variable:  # numbers can always be serialized, so no error will need the source record
            self._flush.with_context = False
            self._leave_contexts_out()

    def set_row_loop(self, keys_of: Callable[[list[bytes]], Sequence[object]], loop: RowLoop) -> None:
        """Forward flushed rows by `loop` instead of one by one to the listener, where none of them is a deletion.

        Args:
            keys_of: returns the keys of physical keys.
        """
        self._flush.keys_of, self._flush.loop = keys_of, loop

    def flush(self) -> None:
        """Write and log all dirty entries, then forward them; downstream readers see all of them."""
        if self.over is not None:
            self.over.flush()
        if not self._dirty.order:
            return
        any_frozen, self._any_frozen = self._any_frozen or self.variable, False
        outlet, leaving = self._flush.outlet, self._dirty.take()
        frozen = [slot for slot in leaving if type(slot.value) is Frozen] if any_frozen else []
        columns = None if outlet is None else self._flush.columns(leaving, frozen)
        self._dirty.clear()
        self._bytes.clear()
        if columns is None or outlet is None:
            self._flush.write(leaving, frozen)
        else:
            self._flush.send(columns, outlet)
        self._settle(leaving if self.texts else frozen)

    def _settle(self, left: list[CacheEntry]) -> None:
        """Keep small objects for reads, and drop the oldest when there are too many: in a window store those of the oldest windows.
        Entries written meanwhile stay."""
        slots, before, texts = self._slots, len(self._slots), self.texts
        for slot in left:
            value = slot.value
            data = value.data if type(value) is Frozen else value if type(value) in texts else b""
            if (data is None or len(data) > SMALL) and slot.state is EntryState.CLEAN and slots.get(slot.key) is slot:
                del slots[slot.key]
        if len(slots) > self._capacity:
            latest = list(islice(slots.items(), len(slots) - self._capacity // 2, None))
            slots.clear()
            slots.update(latest)
            slots.update((slot.key, slot) for slot in self._dirty.order)
        if len(slots) < before:
            self.dropped()

    def range(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, Any]]:
        """Iterate over rows merged with the dirty entries over them, in key order."""
        if self.over is not None:
            self.over.flush()
        rows = self._rows.range(low, high, reverse)
        if not self._dirty.order:
            decode = self._codec.decode
            return ((key, decode(stored)) for key, stored in rows)
        keys = self._dirty.keys(low, high, reverse)
        if self._visible is not None:
            keys = filter(self._visible, keys)
        slots, item = self._slots, self._flush.item
        return merged_over(rows, [(key, item(slots[key])) for key in keys], self._codec.decode, reverse)

    # ---- rows that the operator keeps ---------------------------------------------------------------------------------------------

    def release(self) -> bool:
        """Flush and drop all entries, so that the operator may keep their rows. Return False if there were none."""
        if not self._slots:
            return False
        self.flush()
        self._slots.clear()
        self.dropped()
        return True

    def account_over(self, size: int) -> bool:
        """Count the bytes of the rows over the cache; return whether the task's caches exceed their budget."""
        self._shared.size += size - self._size_over
        self._size_over = size
        return self._shared.size > self._shared.max_bytes

    def write_over(
        self,
        keys: list[bytes],
        data: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers],
        origins: Iterable[tuple[str | None, int, int]],
    ) -> None:
        """Write, log and forward rows in columns.

        Args:
            data: their serialized values, as they are written again after reading them.
            origins: topic, partition and offset of the last record of each.
        """
        if self._flush.outlet is not None and None not in data:
            stored = self.codec.encode_data(data, timestamps)  # type: ignore[arg-type]
            self._flush.send(Columns(keys, stored, data, timestamps, headers), self._flush.outlet)
            return
        leaving = []
        for key, value, at, own, origin in zip(keys, data, timestamps, headers, origins, strict=True):
            slot = CacheEntry()
            slot.key, slot.value, slot.at, slot.timestamp, slot.headers = key, frozen(value), at, at, own
            slot.topic, slot.partition, slot.offset = origin
            leaving.append(slot)
        self._flush.write(leaving, leaving)

    def clear(self) -> None:
        if self.over is not None:
            self.over.clear()
        self._slots.clear()
        self.dropped()
        self._dirty.clear()
        self._bytes.clear()
        self._any_frozen = False
        self._changelog.clear()
