"""Key-value stores as a processor uses them, plain and timestamped: serdes on top of objects.

Operators that already have the serialized key use `get_raw`, `put_raw` and `delete_raw`. A timestamped store returns
`ValueAndTimestamp` from `get` and a plain `(value, timestamp)` tuple from `get_raw`; `put` accepts either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kstreams_repl.engine.serdes import Serde, resolve
from kstreams_repl.engine.stores.cache.write_back_cache import WriteBackCache
from kstreams_repl.engine.stores.engine.environment import after, after_prefix
from kstreams_repl.engine.stores.kinds.typed_store import TypedStore
from kstreams_repl.engine.stores.layers.object_store import StoredObjects
from kstreams_repl.engine.stores.state_store import FindOutlet, FindRowLoop, FlushListener
from kstreams_repl.system.errors import SerializationError
from kstreams_repl.system.types import Deserialize, ValueAndTimestamp

_make_value_and_timestamp = ValueAndTimestamp._make


def not_timestamped(store: str, item: object) -> SerializationError:
    """Return the error for a plain value put into a timestamped store."""
    return SerializationError(
        f"store {store} expected (value, timestamp), got {item!r}",
        hint="put (value, timestamp) or ValueAndTimestamp(value, timestamp)",
        store=store,
    )


def prefix_bytes(prefix: object, serialize: Any, key_serde: Serde) -> bytes | None:
    """Return the serialized prefix; `serialize` makes its bytes; without it they are those of the store's key serde."""
    given = serialize is None or isinstance(serialize, (Serde, str)) or not callable(serialize)
    data: bytes | None = resolve(serialize, key_serde).serialize(prefix) if given else serialize(prefix)
    return data


class KeyValueAccess(TypedStore):
    """What stores of one value per key have in common, on top of `get`, `put` and `_rows`."""

    get: Callable[[Any], Any]
    put: Callable[[object, object], None]

    def put_if_absent(self, key: object, value: object) -> Any:
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def delete(self, key: object) -> Any:
        old = self.get(key)
        self.put(key, None)
        return old

    def range(self, from_key: object = None, to_key: object = None) -> Iterator[tuple[Any, Any]]:
        """Iterate over rows with from_key <= key <= to_key in key byte order; None = unbounded."""
        return self._rows(self._bound(from_key), self._bound(to_key), False)

    def reverse_range(self, from_key: object = None, to_key: object = None) -> Iterator[tuple[Any, Any]]:
        return self._rows(self._bound(from_key), self._bound(to_key), True)

    def all(self) -> Iterator[tuple[Any, Any]]:
        return self._rows(None, None, False)

    def reverse_all(self) -> Iterator[tuple[Any, Any]]:
        return self._rows(None, None, True)

    def _bound(self, key: object) -> bytes | None:
        return None if key is None else self._key.serialize(key)

    def _rows(self, low: bytes | None, high: bytes | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
        raise NotImplementedError


class KeyValue(KeyValueAccess):
    """A key-value store whose objects are plain values."""

    def __init__(
        self,
        name: str,
        objects: StoredObjects,
        key_serde: Serde,
        value_serde: Serde,
        *,
        persistent: bool,
        count: Callable[[], int],
        decode: Deserialize,
    ) -> None:
        super().__init__(name, objects, key_serde, persistent=persistent)
        self._objects = objects
        self._value = value_serde
        self._count = count
        self.get_raw: Deserialize = objects.get
        """(serialized key) -> item or None."""
        self.put_item: Callable[[bytes, object], None] = objects.put
        """(serialized key, item or None)."""
        self.cached: WriteBackCache | None = objects if isinstance(objects, WriteBackCache) else None
        """The write-back cache, for operators that use its slots directly."""
        self.decode: Deserialize = decode
        """(stored bytes) -> item."""
        self.get, self.put = self._make_access()

    def _make_access(self) -> tuple[Callable[[object], object], Callable[[object, object], None]]:
        to_bytes, read, write, refuse = self._key.serialize, self._objects.get, self._objects.put, self._null_key

        def get(key: object) -> object:
            data = to_bytes(key)
            return refuse() if data is None else read(data)

        def put(key: object, value: object) -> None:
            data = to_bytes(key)
            if data is None:
                refuse()
            else:
                write(data, value)

        return get, put

    def put_raw(self, key: bytes, value: object, timestamp: int | None = None) -> None:
        """Put with a serialized key; only timestamped stores use `timestamp`."""
        self._objects.put(key, value)

    def delete_raw(self, key: bytes) -> None:
        self._objects.put(key, None)

    def _present(self, item: object) -> object:
        return item

    def put_all(self, entries: Iterable[tuple[object, object]]) -> None:
        for key, value in entries.items() if isinstance(entries, dict) else entries:
            self.put(key, value)

    def prefix_scan(self, prefix: object, serialize: object = None) -> Iterator[tuple[Any, Any]]:
        from_bytes, present = self._key.deserialize, self._present
        data = prefix_bytes(prefix, serialize, self._key)
        rows = self._null_key() if data is None else self.prefix_scan_raw(data)
        return ((from_bytes(key), present(item)) for key, item in rows)

    def prefix_scan_raw(self, prefix: bytes) -> Iterator[tuple[bytes, Any]]:
        """Iterate over (serialized key, item) of every key that starts with these bytes."""
        return self._objects.range(prefix, after_prefix(prefix), False)

    def _rows(self, low: bytes | None, high: bytes | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
        from_bytes, present = self._key.deserialize, self._present
        rows = self._objects.range(low, None if high is None else after(high), reverse)
        return ((from_bytes(key), present(item)) for key, item in rows)

    def approximate_num_entries(self) -> int:
        return self._count()

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        from_bytes = self._key.deserialize

        def entry_leaves(key: bytes, new: object, old: object, timestamp: int, headers: object) -> None:
            listener(from_bytes(key), new, old, timestamp, headers)

        return self._objects.set_flush_listener(entry_leaves, send_old_values)

    def _rows_held(self) -> str:
        return f"~{self._count()} rows"


class TimestampedKeyValue(KeyValue):
    """A key-value store whose objects are `(value, timestamp)`; `put_item` puts an item or None under a serialized key."""

    def _make_access(self) -> tuple[Callable[[object], object], Callable[[object, object], None]]:
        to_bytes, read, write, refuse = self._key.serialize, self._objects.get, self._objects.put, self._null_key
        kind, make = ValueAndTimestamp, _make_value_and_timestamp

        def get(key: object) -> object:
            data = to_bytes(key)
            if data is None:
                return refuse()
            item = read(data)
            return item if item is None or type(item) is kind else make(item)

        def put(key: object, item: object) -> None:
            data = to_bytes(key)
            if data is None:
                refuse()
            elif item is None:
                write(data, None)
            elif isinstance(item, tuple) and len(item) == 2:
                write(data, None if item[0] is None else item)
            else:
                raise not_timestamped(self.name, item)

        return get, put

    def put_raw(self, key: bytes, value: object, timestamp: int | None = None) -> None:
        self._objects.put(key, None if value is None else (value, timestamp))

    def _present(self, item: Any) -> object:
        return _make_value_and_timestamp(item)

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        from_bytes = self._key.deserialize

        def entry_leaves(key: bytes, new: Any, old: Any, timestamp: int, headers: object) -> None:
            old_value = None if old is None else old[0]
            if new is None:
                listener(from_bytes(key), None, old_value, timestamp, headers)
            else:
                listener(from_bytes(key), new[0], old_value, new[1], headers)

        return self._objects.set_flush_listener(entry_leaves, send_old_values)

    def set_outlet(self, find: FindOutlet, find_loop: FindRowLoop) -> None:
        """Send flushed rows in their stored bytes where `find` returns an outlet for them, otherwise together if there is a loop."""
        outlet = find(self._key, self._value)
        if self.cached is None:
            return
        if outlet is not None:
            self.cached.set_outlet(outlet)
        elif (loop := find_loop()) is not None:
            from_bytes = self._key.deserialize
            self.cached.set_row_loop(lambda keys: list(map(from_bytes, keys)), loop)
