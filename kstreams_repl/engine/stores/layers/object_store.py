"""Objects over rows without a record cache: written through immediately, or kept as objects until the flush.

A *item* is what a typed store reads and writes under one physical key: a value, or `(value, timestamp)` in a timestamped store.
`WriteThroughObjects` serializes and logs each write (Kafka Streams' exact behaviour without caching). `WriteBackObjects` defers both for
immutable values, so that a counter costs two dict operations per record; it is used when the changelog gets one record per key
and commit. Mutable values are always serialized immediately: later in-place changes by user code must not reach the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.stores.layers.bytes_store import LogColumns, PhysicalRows, logged_columns, logged_write
from kstreams_repl.engine.stores.layers.codec import NO_TYPES, SMALL, TEXTS, Codec
from kstreams_repl.engine.stores.log.changelog import Changelog
from kstreams_repl.system.types import Deserialize

EntryListener = Callable[[bytes, object, object, int, object], None]
"""(physical key, new item, old item, record timestamp, headers) of one flushed entry."""

_MISSING: object = object()


class StoredObjects(Protocol):
    """One store's objects by physical key. `get` and `put` are plain callables."""

    get: Deserialize
    put: Callable[[bytes, object], None]

    def range(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, Any]]: ...

    def flush(self) -> None: ...

    def clear(self) -> None:
        """Discard everything that is not in the engine (after a rollback)."""

    def set_flush_listener(self, listener: EntryListener, send_old_values: bool) -> bool: ...


class WriteThroughObjects:
    """Serializes, stores and logs each write immediately."""

    def __init__(self, rows: PhysicalRows, codec: Codec, changelog: Changelog, record_context: RecordContext) -> None:
        self._rows = rows
        self._codec = codec
        self._changelog = changelog
        read, decode, encode = rows.get, codec.decode, codec.encode
        write = logged_write(rows, codec, changelog)

        def get(key: bytes) -> object:
            stored = read(key)
            return None if stored is None else decode(stored)

        def put(key: bytes, item: object) -> None:
            write(key, None if item is None else encode(item), record_context.timestamp)

        self.get: Deserialize = get
        self.put: Callable[[bytes, object], None] = put

    def range(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, Any]]:
        decode = self._codec.decode
        return ((key, decode(stored)) for key, stored in self._rows.range(low, high, reverse))

    def flush(self) -> None:
        self._changelog.flush()

    def clear(self) -> None:
        self._changelog.clear()

    def set_flush_listener(self, listener: EntryListener, send_old_values: bool) -> bool:
        return False


class WriteBackObjects:
    """Keeps immutable values as objects until the flush; the changelog gets one record per key and flush.

    Args:
        admit: called before a write is kept (window and session stores reject and count writes to expired segments); None admits all.
        visible: called before a kept item is returned (expired windows are hidden); None shows all.
        capacity: maximum number of clean objects kept for reads after a flush; long ones are not kept.
    """

    def __init__(
        self,
        rows: PhysicalRows,
        codec: Codec,
        changelog: Changelog,
        record_context: RecordContext,
        *,
        admit: Callable[[bytes], bool] | None = None,
        visible: Callable[[bytes], bool] | None = None,
        capacity: int = 200_000,
    ) -> None:
        self._rows = rows
        self._codec = codec
        self._changelog = changelog
        self._write = logged_write(rows, codec, changelog, None if admit is None else getattr(rows, "put_admitted", None))
        self._write_many = logged_columns(rows, changelog) if admit is None else None
        self._dirty: dict[bytes, tuple[object, int]] = {}
        self._clean: dict[bytes, Any] = {}
        self._capacity = capacity
        self._texts = NO_TYPES if codec.serde.layout is not None else TEXTS & codec.deferrable
        self.get_any: Deserialize = self._make_get()
        self.put_any: Callable[[bytes, object], None] = self._make_put(record_context)
        """`get` and `put` without `visible` and `admit`, for stores that have already checked both."""
        self.get: Deserialize = self.get_any
        self.put: Callable[[bytes, object], None] = self.put_any
        if visible is not None:
            self.get = lambda key: self.get_any(key) if visible(key) else None
        if admit is not None:
            self.put = lambda key, item: self.put_any(key, item) if admit(key) else None

    def _make_get(self) -> Deserialize:
        recent, clean_get = self._dirty.get, self._clean.get
        clean, read, decode, capacity = self._clean, self._rows.get, self._codec.decode, self._capacity
        light, timestamped = self._codec.deferrable - self._texts, self._codec.timestamped
        texts, small = self._texts, SMALL

        def get(key: bytes) -> object:
            entry = recent(key)
            if entry is not None:
                return entry[0]
            item = clean_get(key, _MISSING)
            if item is not _MISSING:
                return item
            stored = read(key)
            if stored is None:
                return None
            item = decode(stored)
            kind = type(item[0] if timestamped else item)
            if kind in light or (len(stored) <= small and kind in texts):
                if len(clean) >= capacity:
                    clean.clear()
                clean[key] = item
            return item

        return get

    def _make_put(self, record_context: RecordContext) -> Callable[[bytes, object], None]:
        dirty, clean, write = self._dirty, self._clean, self._write
        encode, deferrable, timestamped = self._codec.encode, self._codec.deferrable, self._codec.timestamped
        forget_dirty, forget_clean = dirty.pop, clean.pop

        def put(key: bytes, item: Any) -> None:
            if item is not None and type(item[0] if timestamped else item) in deferrable:
                dirty[key] = (item, record_context.timestamp)
            else:
                stored = None if item is None else encode(item)
                forget_dirty(key, None)
                forget_clean(key, None)
                write(key, stored, record_context.timestamp)

        return put

    def _spill(self) -> None:
        """Serialize the deferred objects: their rows become readable in order, their changelog records become pending."""
        dirty = self._dirty
        if not dirty:
            return
        write, encode, clean = self._write, self._codec.encode, self._clean
        if len(clean) + len(dirty) > self._capacity:
            clean.clear()
        for key, (item, timestamp) in dirty.items():
            write(key, encode(item), timestamp)
            clean[key] = item
        self._forget_long(dirty)
        dirty.clear()

    def range(self, low: bytes | None, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, Any]]:
        self._spill()
        decode = self._codec.decode
        rows = self._rows.range(low, high, reverse)
        return ((key, decode(stored)) for key, stored in rows)

    def flush(self) -> None:
        if self._write_many is None or self._changelog.pending or not self._leave_in_columns(self._write_many):
            self._spill()
            self._changelog.flush()

    def _leave_in_columns(self, write: LogColumns) -> bool:
        """Write and log the deferred objects column by column. Return False, with nothing written, if a value serializes to None, which
        requires writing item by item."""
        dirty, clean, codec = self._dirty, self._clean, self._codec
        if not dirty:
            return True
        keys = list(dirty)
        objects: Sequence[object]
        values: Sequence[object]
        timestamps: Sequence[int]
        objects, timestamps = zip(*dirty.values(), strict=True)
        values, timestamps = zip(*objects, strict=True) if codec.timestamped else (objects, timestamps)
        stored = codec.encode_many(values, timestamps)
        if codec.serde.layout is None and None in stored:
            return False
        write(keys, stored, codec.log_values(stored), timestamps)  # type: ignore[arg-type]
        if len(clean) + len(dirty) > self._capacity:
            clean.clear()
        clean.update(zip(keys, objects, strict=True))
        self._forget_long(keys)
        dirty.clear()
        return True

    def _forget_long(self, keys: Iterable[bytes]) -> None:
        """Drop long text from the objects that have just become clean."""
        texts, clean, timestamped = self._texts, self._clean, self._codec.timestamped
        if texts:
            for key in keys:
                value = clean[key][0] if timestamped else clean[key]
                if type(value) in texts and len(value) > SMALL:
                    del clean[key]

    def clear(self) -> None:
        self._dirty.clear()
        self._clean.clear()
        self._changelog.clear()

    def set_flush_listener(self, listener: EntryListener, send_old_values: bool) -> bool:
        return False
