"""The record cache of a deployed store: equivalent to `CachedCells`, with one lookup per record and flushes that work in columns.

Each key has a `Slot` with its current object and the context of its last write. Each write appends the slot to `order`. A flush
takes each slot at its last position, which is last-write order without hashing, and then works column by column: encode all, write
all, log all, and send all to the topic downstream of the store if there is one (`set_outlet`). Differences from Kafka Streams'
cache: reads do not count as use, and when the task's budget is exceeded the store flushes all its entries instead of one at a
time. Both only change *when* an update is flushed, which depends on the commit interval anyway. Immutable values stay objects
until they are flushed; mutable ones are serialized immediately (`Frozen`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sortedcontainers import SortedList

from kstreams_repl.stores.bytes_store import Rows, logged_columns, many_at_once
from kstreams_repl.stores.cache_entry import NOTHING, Frozen, Slot, headers_length, is_deletion, length
from kstreams_repl.stores.changelog import Changelog
from kstreams_repl.stores.codec import NO_TYPES, SMALL, TEXTS, Codec
from kstreams_repl.stores.object_store import EntryListener
from kstreams_repl.stores.record_cache import ENTRY_OVERHEAD, RecordCache
from kstreams_repl.types import Outlet

_FIRST_COMPACTION = 131_072
_CLEAN, _DIRTY, _LEAVING = 0, 1, 2
_VALUE_SIZE = 24
_CAPACITY = 100_000


class WriteBackCache:
    """The objects of one cached store in a deployed task (`stores.object_store.Cells`).

    Args:
        visible: called before a range returns a dirty entry (expired windows and sessions are hidden); None shows all. Callers of point
            reads check it themselves.
        shared: the task's budget; dirty entries count towards it by an estimate that is updated every 1,024 writes and, where values
            have no fixed layout, after writes of a sixteenth of the budget.
        capacity: maximum number of objects kept for reads after a flush.
    """

    def __init__(
        self,
        rows: Rows,
        codec: Codec,
        changelog: Changelog,
        record_context: Any,
        shared: RecordCache,
        *,
        visible: Callable[[bytes], bool] | None = None,
        capacity: int = _CAPACITY,
    ) -> None:
        self._rows = rows
        self._visible = visible
        self._put_many = many_at_once(rows)
        self._write_many = logged_columns(rows, codec, changelog)
        self._codec = codec
        self._changelog = changelog
        self._context = record_context
        self._listener: EntryListener | None = None
        self._send_old_values = False
        self._outlet: Outlet | None = None
        self._shared = shared
        self._capacity = capacity
        self._slots: dict[bytes, Slot] = {}
        self._order: list[Slot] = []
        self._compact_at = _FIRST_COMPACTION
        self._index: SortedList | None = None
        self._indexed: set[bytes] = set()
        self._indexed_to = 0
        self._any_frozen = False
        self.texts = NO_TYPES if codec.serde.layout is not None else TEXTS & codec.deferrable
        """Types whose values can be long."""
        self._sized = codec.serde.layout is None
        self._look_after = shared.max_bytes >> 4
        self._written = [0, self._look_after]
        """Bytes of long objects and frozen values since the last flush, repeated writes included, and the value at which to check the
        budget again."""
        self.with_context = True
        """Whether slots keep topic, partition and offset of their last record."""
        self._leave_contexts_out: Callable[[], None]
        self.size = 0
        shared.caches.append(self)
        self.cache = self
        self.frozen = Frozen
        self.nothing = NOTHING
        self.find: Callable[[bytes], Slot | None] = self._slots.get
        """Returns the slot of a cached key; its value may be a `Frozen`. None says nothing about the row below."""
        self.get: Callable[[bytes], Any]
        self.put: Callable[[bytes, Any], None]
        self.rewrite: Callable[[Slot, Any, int], None]
        self.load: Callable[[bytes], Slot]
        """Creates the slot of a key that has none, from the row below; without a row its value is `nothing` and its timestamp 0."""
        self.get, self.put, self.rewrite, self.load = self._make_access()
        self.deferrable = codec.deferrable
        self.names = {"dirty": _DIRTY, "order": self._order, "note": self._order.append, "check": self._check}
        self.names |= {"texts": self.texts, "written": self._written}
        """The names that generated code needs to inline `rewrite` (`operators.loop_lines.slot_lines`)."""

    @property
    def dirty(self) -> bool:
        return bool(self._order)

    def _make_access(
        self,
    ) -> tuple[
        Callable[[bytes], Any], Callable[[bytes, Any], None], Callable[[Slot, Any, int], None], Callable[[bytes], Slot]
    ]:
        slots, find, read, check = self._slots, self._slots.get, self._rows.get, self._check
        order, note, context, make, frozen = self._order, self._order.append, self._context, Slot, Frozen
        clean, dirty, leaving, small = _CLEAN, _DIRTY, _LEAVING, SMALL
        with_context = True

        def leave_contexts_out() -> None:
            nonlocal with_context
            with_context = False

        self._leave_contexts_out = leave_contexts_out
        freeze, decode, deferrable, timestamped = self._freeze, self._codec.decode, self._codec.deferrable, self._codec.timestamped

        light, texts, written = deferrable - self.texts, self.texts, self._written
        most, capacity, settle, nothing = 2 * self._capacity, self._capacity, self._settle, NOTHING

        def keep(key: bytes, value: Any, at: int) -> Slot:
            nonlocal most
            if len(slots) > most:  # a table that is only read is never flushed
                settle([])
                most = 2 * max(capacity, len(slots))
            slots[key] = slot = make()
            slot.key, slot.value, slot.at, slot.state = key, value, at, clean
            return slot

        def load(key: bytes) -> Slot:
            stored = read(key)
            if stored is None:
                return keep(key, nothing, 0)
            cell = decode(stored)
            value, at = cell if timestamped else (cell, 0)
            return keep(key, value if type(value) in deferrable else frozen(stored), at)

        def get(key: bytes) -> Any:
            slot = find(key)
            if slot is None:
                stored = read(key)
                if stored is None:
                    return None
                cell = decode(stored)
                value, at = cell if timestamped else (cell, 0)
                if type(value) in light or len(stored) <= small:
                    keep(key, value if type(value) in deferrable else frozen(stored), at)
                return cell
            value = slot.value
            if type(value) is frozen:
                return None if value.stored is None else decode(value.stored)
            return (value, slot.at) if timestamped else value

        def put(key: bytes, cell: Any) -> None:
            value, at = (None, 0) if cell is None else cell if timestamped else (cell, 0)
            if type(value) not in deferrable:
                value = freeze(value, at)
            slot = find(key)
            if slot is None or slot.state is leaving:
                slots[key] = slot = make()
                slot.key, slot.state = key, clean
            rewrite(slot, value, at)

        def rewrite_any(slot: Slot, value: Any, at: int) -> None:
            if type(value) not in deferrable:
                value = freeze(value, at)
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

        def rewrite_sized(slot: Slot, value: Any, at: int) -> None:
            if type(value) in texts:
                written[0] += len(value)
            rewrite_any(slot, value, at)
            if written[0] > written[1]:
                check()

        rewrite = rewrite_sized if self._sized else rewrite_any
        return get, put, rewrite, load

    def _freeze(self, value: Any, at: int) -> Frozen:
        """Return a value that is mutable or None in its serialized form."""
        self._any_frozen = True
        if type(value) is Frozen:
            return value
        if value is None:
            return Frozen(None)
        stored = self._codec.encode((value, at) if self._codec.timestamped else value)
        self._written[0] += 0 if stored is None else len(stored)
        return Frozen(stored)

    def _successor(self, leaving: Slot) -> Slot:
        """Return a new slot for a key whose slot is being forwarded."""
        key = leaving.key
        slot = self._slots.get(key)
        if slot is None or slot.state is _LEAVING:
            self._slots[key] = slot = Slot()
            slot.key, slot.state = key, _CLEAN
        return slot

    # ---- the budget --------------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Estimate the size of the dirty entries; flush if the task's budget is exceeded and repeated writes are not the only cause."""
        shared, order = self._shared, self._order
        if len(order) >= self._compact_at:
            self._compact()
        self._weigh()
        if shared.size > shared.max_bytes:
            before = len(order)
            self._compact()
            self._weigh()
            if shared.size > shared.max_bytes or len(order) > before // 2:
                self.flush()

    def _compact(self) -> None:
        """Drop all but the last position of each slot."""
        order = self._order
        order[:] = self._take_dirty()
        for slot in order:
            slot.state = _DIRTY
        self._written[0] = sum(length(slot.value) for slot in order) if self._sized else 0
        self._compact_at = 2 * len(order) + _FIRST_COMPACTION
        self._forget_index()

    def _take_dirty(self) -> list[Slot]:
        """Return each dirty slot once, in the order of the last writes, and mark them as clean."""
        found: list[Slot] = []
        found_one, clean, dirty = found.append, _CLEAN, _DIRTY
        for slot in reversed(self._order):
            if slot.state is dirty:
                slot.state = clean
                found_one(slot)
        found.reverse()
        return found

    def _weigh(self) -> None:
        sample, written, sized = self._order[-64:], self._written, self._sized
        weight = sum(len(slot.key) + _VALUE_SIZE + headers_length(slot.headers) for slot in sample)
        if not sized:
            weight += sum(length(slot.value) for slot in sample)
        self._account(len(self._order) * (ENTRY_OVERHEAD + weight // max(len(sample), 1)) + (written[0] if sized else 0))
        written[1] = written[0] + self._look_after

    def _account(self, size: int) -> None:
        self._shared.size += size - self.size
        self.size = size

    # ---- flushing ----------------------------------------------------------------------------------------------------------------

    def set_flush_listener(self, listener: EntryListener, send_old_values: bool) -> bool:
        self._listener = listener
        self._send_old_values = send_old_values
        return True

    def set_outlet(self, outlet: Outlet) -> None:
        """Send flushed rows to `outlet` as (physical keys, serialized values, timestamps, headers) instead of to the listener.

        Call it only if the listener needs no old values and the cells are timestamped.
        """
        self._outlet = outlet
        if self._codec.serde.layout is not None:  # numbers can always be serialized, so no error will need the source record
            self.with_context = False
            self._leave_contexts_out()

    def flush(self) -> None:
        """Write and log all dirty entries, then forward them; downstream readers see all of them."""
        if not self._order:
            return
        any_frozen, self._any_frozen = self._any_frozen, False
        if self._outlet is not None and not any_frozen:
            self._flush_columns(self._outlet)
            return
        leaving = self._take_dirty()
        self._flushed()
        frozen = [slot for slot in leaving if type(slot.value) is Frozen] if any_frozen else []
        settling = leaving if self.texts else frozen
        old_cells: dict[bytes, Any] = {}
        if self._listener is not None and (frozen or self._send_old_values):
            old_cells = self._read_old(leaving if self._send_old_values else frozen)
            if frozen:  # a tombstone for a key without a row is neither written nor forwarded
                leaving = [slot for slot in leaving if slot.key in old_cells or not is_deletion(slot.value)]
        if leaving:
            self._leave(leaving, old_cells, any_frozen=bool(frozen))
        self._settle(settling)

    def _flushed(self) -> None:
        """Reset the state of dirty entries after a flush."""
        self._order.clear()
        self._compact_at = _FIRST_COMPACTION
        self._forget_index()
        self._written[:] = 0, self._look_after
        self._account(0)

    def _flush_columns(self, outlet: Outlet) -> None:
        """Flush in the most common case, in which no entry is frozen."""
        leaving = self._take_dirty()
        keys = [slot.key for slot in leaving]
        values = [slot.value for slot in leaving]
        timestamps = [slot.at for slot in leaving]
        headers = [slot.headers for slot in leaving]
        stored = self._encode(leaving, values, timestamps)
        if self._codec.serde.layout is None and None in stored:
            self._any_frozen = True  # a value that its serde serializes to None requires the slow path
            for slot in leaving:
                slot.state = _DIRTY
            self.flush()
            return
        self._flushed()
        logged = self._write_many(keys, stored, timestamps)
        outlet(keys, logged, timestamps, headers if any(headers) else None)
        self._settle(leaving if self.texts else [])

    def _leave(self, leaving: list[Slot], old_cells: dict[bytes, Any], *, any_frozen: bool) -> None:
        codec, log_key = self._codec, self._rows.log_key
        keys = [slot.key for slot in leaving]
        stored: list[bytes | None]
        if any_frozen:
            stored = self._one_by_one(leaving)
        else:
            stored = self._encode(leaving, [slot.value for slot in leaving], [slot.at for slot in leaving])
        whole = not any_frozen and None not in stored
        self._put_many(keys, stored)
        values: Sequence[bytes | None]
        timestamps: Sequence[int]
        if whole:
            values = codec.log_values(stored)  # type: ignore[arg-type]
            timestamps = [slot.at for slot in leaving] if codec.timestamped else [slot.timestamp for slot in leaving]
        else:
            log_value, log_timestamp = codec.log_value, codec.log_timestamp
            values = [None if data is None else log_value(data) for data in stored]
            timestamps = [
                slot.timestamp if data is None else log_timestamp(data, slot.timestamp) for data, slot in zip(stored, leaving, strict=True)
            ]
        self._changelog.send_many(keys if log_key is None else list(map(log_key, keys)), values, timestamps)
        if self._listener is not None:
            self._forward(leaving, old_cells, self._listener)

    def _encode(self, leaving: list[Slot], values: list[Any], timestamps: list[int]) -> list[bytes | None]:
        try:
            return self._codec.encode_many(values, timestamps)
        except BaseException:  # find the value that cannot be serialized, and its record
            self._one_by_one(leaving)
            raise

    def _one_by_one(self, leaving: list[Slot]) -> list[bytes | None]:
        """Return the entries' bytes; attach the entry's record to an error where it is known."""
        stored: list[bytes | None] = []
        try:
            for slot in leaving:
                stored.append(self._stored(slot))
        except BaseException as error:
            context, kept = self._context, self._context.snapshot()
            context.topic, context.partition, context.offset = (
                (slot.topic, slot.partition, slot.offset) if self.with_context else (None, -1, -1)
            )
            context.raised(error)
            context.restore(kept)
            raise
        return stored

    def _stored(self, slot: Slot) -> bytes | None:
        value = slot.value
        if type(value) is Frozen:
            return value.stored
        return self._codec.encode((value, slot.at) if self._codec.timestamped else value)

    def _forward(self, leaving: list[Slot], old_cells: dict[bytes, Any], listener: EntryListener) -> None:
        context, old_of, send_old = self._context, old_cells.get, self._send_old_values
        kept, raw_key, raw_value = context.snapshot(), context.raw_key, context.raw_value
        context.raw_key = context.raw_value = None  # the current raw bytes are not those of the entries
        for slot in leaving:
            slot.state = _LEAVING
        try:
            for slot in leaving:
                key = slot.key
                cell = self._cell(slot)
                if self.with_context:
                    context.topic, context.partition, context.offset = slot.topic, slot.partition, slot.offset
                else:
                    context.topic, context.partition, context.offset = None, -1, -1
                context.timestamp, context.headers = slot.timestamp, slot.headers
                listener(key, cell, old_of(key) if send_old else None, slot.timestamp, slot.headers)
        except BaseException as error:
            context.raised(error)
            raise
        finally:
            context.restore(kept)
            context.raw_key, context.raw_value = raw_key, raw_value
        for slot in leaving:
            slot.state = _CLEAN

    def _cell(self, slot: Slot) -> Any:
        """Return the cell that `get` returns for the slot."""
        value = slot.value
        if type(value) is Frozen:
            return None if value.stored is None else self._codec.decode(value.stored)
        return (value, slot.at) if self._codec.timestamped else value

    def _read_old(self, leaving: list[Slot]) -> dict[bytes, Any]:
        """Return the cells of the rows below the entries, where there are rows."""
        read, decode = self._rows.get, self._codec.decode
        return {slot.key: decode(stored) for slot in leaving if (stored := read(slot.key)) is not None}

    def _settle(self, left: list[Slot]) -> None:
        """Keep small objects for reads, and drop all when there are too many. Entries written meanwhile stay."""
        slots = self._slots
        for slot in left:
            value = slot.value
            if (length(value) > SMALL or is_deletion(value)) and slot.state is _CLEAN and slots.get(slot.key) is slot:
                del slots[slot.key]
        if len(slots) > self._capacity:
            slots.clear()
            slots.update((slot.key, slot) for slot in self._order)

    # ---- ranges ------------------------------------------------------------------------------------------------------------------

    def range(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, Any]]:
        """Iterate over rows merged with the dirty entries over them, in key order."""
        decode = self._codec.decode
        rows = self._rows.range(low, high, reverse)
        if not self._order:
            return ((key, decode(stored)) for key, stored in rows)
        keys = self._dirty_keys().irange(low, high, inclusive=(True, False), reverse=reverse)
        if self._visible is not None:
            keys = filter(self._visible, keys)
        return self._merge([(key, self._cell(self._slots[key])) for key in keys], rows, reverse)

    def _dirty_keys(self) -> SortedList:
        """Return the dirty keys in order; each read updates the index, so that writes need not."""
        fresh = {slot.key for slot in self._order[self._indexed_to :]} - self._indexed
        if self._index is None:
            self._index = SortedList(fresh)
        elif len(fresh) < 8:
            for key in fresh:
                self._index.add(key)
        else:
            self._index.update(fresh)
        self._indexed |= fresh
        self._indexed_to = len(self._order)
        return self._index

    def _forget_index(self) -> None:
        self._index, self._indexed, self._indexed_to = None, set(), 0

    def _merge(self, cached: list[tuple[bytes, Any]], rows: Iterator[tuple[bytes, bytes]], reverse: bool) -> Iterator[tuple[bytes, Any]]:
        decode = self._codec.decode
        row = next(rows, None)
        for key, cell in cached:
            while row is not None and row[0] != key and (row[0] > key if reverse else row[0] < key):
                yield row[0], decode(row[1])
                row = next(rows, None)
            if row is not None and row[0] == key:
                row = next(rows, None)
            if cell is not None:
                yield key, cell
        while row is not None:
            yield row[0], decode(row[1])
            row = next(rows, None)

    def clear(self) -> None:
        self._slots.clear()
        self._order.clear()
        self._any_frozen = False
        self._forget_index()
        self._written[:] = 0, self._look_after
        self._account(0)
        self._changelog.clear()
