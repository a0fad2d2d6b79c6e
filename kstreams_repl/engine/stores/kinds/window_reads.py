"""The reads and the put of a window store by the user's keys, on top of `fetch_raw`, `put_raw`, `fetch_key_raw` and `range_raw`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.stores.kinds.key_value import not_timestamped
from kstreams_repl.engine.stores.kinds.typed_store import MAX_LONG
from kstreams_repl.engine.stores.layers.indexed_store import ExpiringRows, IndexedStore
from kstreams_repl.engine.stores.layers.object_store import StoredObjects
from kstreams_repl.system.types import ValueAndTimestamp, Windowed

NO_SEQUENCE = bytes(4)


class WindowReads(IndexedStore):
    """A window store. StoredObjects are values, or `(value, timestamp)` when `timestamped`. Time bounds are inclusive on both ends."""

    present: Callable[[Any], Any] = ValueAndTimestamp._make
    """Makes what a read of a timestamped store returns."""
    fetch_raw: Callable[[bytes, int], Any]
    """(serialized key, window start) -> item or None."""
    put_raw: Callable[[bytes, object, int], None]
    """(serialized key, item or None, window start)."""

    def __init__(
        self,
        name: str,
        objects: StoredObjects,
        rows: ExpiringRows,
        key_serde: Serde,
        *,
        window_size_ms: int,
        timestamped: bool,
        persistent: bool,
    ) -> None:
        super().__init__(name, objects, rows, key_serde, persistent=persistent)
        self.window_size_ms = window_size_ms
        self.timestamped = timestamped

    def fetch_key_raw(self, key: bytes, time_from: int, time_to: int, reverse: bool = False) -> Iterator[tuple[int, Any]]:
        """Iterate over (window start, item) of one serialized key with time_from <= start <= time_to."""
        raise NotImplementedError

    def range_raw(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool = False
    ) -> Iterator[tuple[bytes, int, Any]]:
        """Iterate over (serialized key, window start, item) in physical order."""
        raise NotImplementedError

    def put(self, key: object, value: object, window_start: int) -> None:
        if self.timestamped and value is not None:
            if not (isinstance(value, tuple) and len(value) == 2):
                raise not_timestamped(self.name, value)
            value = None if value[0] is None else value
        self.put_raw(self._bytes(key), value, window_start)

    def fetch(self, key: object, time_from: int, time_to: int | None = None) -> Any:
        data = self._bytes(key)
        if time_to is not None:
            return self._of_key(data, time_from, time_to, False)
        item = self.fetch_raw(data, time_from)
        return None if item is None else self._present(item)

    def backward_fetch(self, key: object, time_from: int, time_to: int) -> Iterator[tuple[int, Any]]:
        return self._of_key(self._bytes(key), time_from, time_to, True)

    def fetch_range(self, from_key: object, to_key: object, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(self._optional_bytes(from_key), self._optional_bytes(to_key), time_from, time_to, False)

    def backward_fetch_range(self, from_key: object, to_key: object, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(self._optional_bytes(from_key), self._optional_bytes(to_key), time_from, time_to, True)

    def fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(None, None, time_from, time_to, False)

    def backward_fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(None, None, time_from, time_to, True)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(None, None, 0, MAX_LONG, False)

    def backward_all(self) -> Iterator[tuple[Windowed, Any]]:
        return self._of_keys(None, None, 0, MAX_LONG, True)

    def _present(self, item: object) -> object:
        return self.present(item) if self.timestamped else item

    def _windowed(self, key: bytes, start: int) -> Windowed:
        return Windowed(self._key.deserialize(key), start, min(start + self.window_size_ms, MAX_LONG))

    def _of_key(self, key: bytes, time_from: int, time_to: int, reverse: bool) -> Iterator[tuple[int, object]]:
        rows = self.fetch_key_raw(key, time_from, time_to, reverse)
        if not self._exact:  # an exact cache is read lazily, because a read that ends early uses fewer entries
            rows = iter(list(rows))
        if self.timestamped:
            present = self.present
            return ((start, present(item)) for start, item in rows)
        return rows

    def _of_keys(
        self, low: bytes | None, high: bytes | None, time_from: int, time_to: int, reverse: bool
    ) -> Iterator[tuple[Windowed, object]]:
        rows = list(self.range_raw(low, high, time_from, time_to, reverse))
        return ((self._windowed(key, start), self._present(item)) for key, start, item in rows)
