"""Objects over rows with a record cache: Kafka Streams' CachingKeyValueStore, CachingWindowStore and CachingSessionStore in one.

A write stays in the cache together with its record context. On flush or eviction, the old value is read from the rows below, the
entry is written and logged there, and the flush listener receives the new and the old value, all under the entry's own context.
A tombstone for a key that has no row below is neither written nor forwarded. Reads merge the cache over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.stores.cache.record_cache import ENTRY_OVERHEAD, ITEM, Entry, NamedCache, RecordCache
from kstreams_repl.engine.stores.layers.bytes_store import PhysicalRows, logged_write, merged_over
from kstreams_repl.engine.stores.layers.codec import Codec
from kstreams_repl.engine.stores.layers.object_store import EntryListener
from kstreams_repl.engine.stores.log.changelog import Changelog
from kstreams_repl.system.types import Deserialize


class CachedObjects:
    """The objects of one cached store.

    Args:
        keep_reads: keep the result of a point read as a clean entry (key-value stores do, window and session stores do not).
        defer: keep immutable values as objects and serialize them when they are flushed or evicted.
    """

    def __init__(
        self,
        rows: PhysicalRows,
        codec: Codec,
        changelog: Changelog,
        record_context: RecordContext,
        shared: RecordCache,
        *,
        keep_reads: bool,
        defer: bool,
    ) -> None:
        self._rows = rows
        self._codec = codec
        self._changelog = changelog
        self._context = record_context
        self._write = logged_write(rows, codec, changelog)
        self._listener: EntryListener | None = None
        self._send_old_values = False
        self.exact = shared.exact
        self.cache = NamedCache(shared, self._entries_leave)
        self.get: Deserialize = self._make_get(keep_reads, defer)
        self.put: Callable[[bytes, object], None] = self._make_put(defer)

    def _make_get(self, keep_reads: bool, defer: bool) -> Deserialize:
        entries, cache, read, decode = self.cache.entries, self.cache, self._rows.get, self._codec.decode
        find, take = entries.get, entries.pop
        exact, timestamped = self.exact, self._codec.timestamped
        deferrable = self._codec.deferrable if defer else frozenset()

        def get(key: bytes) -> object:
            entry = find(key)
            if entry is not None:
                if exact:
                    entries[key] = take(key)
                item = entry[1]
                if item is not None:
                    return item
                stored = entry[2]
                return None if stored is None else decode(stored)
            stored = read(key)
            if stored is None:
                return None
            item = decode(stored)
            if keep_reads:
                size = len(key) + len(stored) + ENTRY_OVERHEAD
                if type(item[0] if timestamped else item) in deferrable:
                    cache.put(key, (size, item, None, "", -1, -1, -1, ()), False)
                else:
                    cache.put(key, (size, None, stored, "", -1, -1, -1, ()), False)
            return item

        return get

    def _make_put(self, defer: bool) -> Callable[[bytes, object], None]:
        put_entry, context, encode = self.cache.put, self._context, self._codec.encode
        size_of, timestamped = self._codec.size_of, self._codec.timestamped
        deferrable = self._codec.deferrable if defer else frozenset()

        def put(key: bytes, item: Any) -> None:
            topic, headers = context.topic, context.headers
            size = len(key) + ENTRY_OVERHEAD
            if topic is not None:
                size += len(topic)
            for name, value in headers:
                size += len(name) + (len(value) if value is not None else 0)
            stored: bytes | None = None
            if item is not None:
                if type(item[0] if timestamped else item) in deferrable:
                    size += size_of(item)
                else:
                    stored = encode(item)
                    item = None
                    if stored is not None:
                        size += len(stored)
            put_entry(key, (size, item, stored, topic, context.partition, context.offset, context.timestamp, headers), True)

        return put

    def set_flush_listener(self, listener: EntryListener, send_old_values: bool) -> bool:
        self._listener = listener
        self._send_old_values = send_old_values
        return True

    def _entries_leave(self, leaving: list[tuple[bytes, Entry]]) -> None:
        context, write, read = self._context, self._write, self._rows.get
        encode, decode = self._codec.encode, self._codec.decode
        listener, send_old = self._listener, self._send_old_values
        with context.replace(context.snapshot()):  # without raw bytes: the current ones are not those of the entries
            for key, (_, item, stored, topic, partition, offset, timestamp, headers) in leaving:
                context.topic, context.partition, context.offset = topic, partition, offset
                context.timestamp, context.headers = timestamp, headers
                if item is not None:
                    stored = encode(item)
                old = read(key) if listener is not None and (stored is None or send_old) else None
                if stored is None and old is None and listener is not None:
                    continue
                write(key, stored, timestamp)
                if listener is not None:
                    if item is None and stored is not None:
                        item = decode(stored)
                    listener(key, item, decode(old) if send_old and old is not None else None, timestamp, headers)

    def range(
        self, low: bytes | None, high: bytes | None, reverse: bool = False, back_to: bytes | None = None
    ) -> Iterator[tuple[bytes, Any]]:
        """Iterate over rows with low <= key < high.

        Args:
            back_to: entries from this key up to `low` also count as used, after the requested ones have been read.
        """
        cached = self.cache.range(low if back_to is None else back_to, high, reverse)
        rows = iter(list(self._rows.range(low, high, reverse)))  # copied, because a write during the iteration may evict entries into them
        decode = self._codec.decode
        if not cached:
            return ((key, decode(stored)) for key, stored in rows)
        return merged_over(rows, self._used(cached, low or b""), decode, reverse)

    def _used(self, cached: list[tuple[bytes, Entry]], low: bytes) -> Iterator[tuple[bytes, object]]:
        """Iterate over the objects of the entries from `low`; each entry counts as used when it is reached."""
        decode, use = self._codec.decode, self.cache.use
        for key, _ in cached:
            entry = use(key)
            if entry is not None and key >= low:
                item, stored = entry[ITEM], entry[2]
                yield key, decode(stored) if item is None and stored is not None else item

    def flush(self) -> None:
        self.cache.flush()
        self._changelog.flush()

    def clear(self) -> None:
        self.cache.clear()
        self._changelog.clear()
