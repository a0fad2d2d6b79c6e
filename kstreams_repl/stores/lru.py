"""The LRU store: at most so many rows; the least recently used one leaves with a tombstone in the changelog.

The order of use is not kept over a restart, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kstreams_repl.errors import StateStoreError
from kstreams_repl.serdes import Serde
from kstreams_repl.stores.changelog import Changelog
from kstreams_repl.stores.codec import Codec
from kstreams_repl.stores.engine.base import Environment


class Lru:
    """A key-value store of bounded size; it has no ranges, as in Kafka Streams."""

    def __init__(
        self,
        name: str,
        environment: Environment,
        codec: Codec,
        changelog: Changelog,
        key_serde: Serde,
        *,
        max_entries: int,
        persistent: bool = False,
        record_context: Any,
    ) -> None:
        self.name = name
        self.persistent = persistent
        self.max_entries = max_entries
        self._codec = codec
        self._changelog = changelog
        self._key = key_serde
        self._context = record_context
        self._engine = environment.engine(name, persistent=persistent)
        self._order: dict[bytes, None] = {}
        self._load()
        environment.after_rollback(self._load)

    def _load(self) -> None:
        self._order = {key: None for key, _ in self._engine.range()} if self._engine.approximate_count() else {}

    def _bytes(self, key: Any) -> bytes:
        data = self._key.serialize(key)
        if data is None:
            raise StateStoreError(
                f"store {self.name}: the key must not be null", store=self.name, hint="filter records without a key first"
            )
        return data

    def get(self, key: Any) -> Any:
        data = self._bytes(key)
        stored = self._engine.get(data)
        if stored is None:
            return None
        self._order[data] = self._order.pop(data, None)
        return self._codec.decode(stored)

    def put(self, key: Any, value: Any) -> None:
        data = self._bytes(key)
        self._write(data, self._codec.encode(value))

    def _write(self, key: bytes, stored: bytes | None) -> None:
        order, log, now = self._order, self._changelog.log, self._context.timestamp
        order.pop(key, None)
        self._engine.put(key, stored)
        if stored is not None:
            order[key] = None
            if len(order) > self.max_entries:
                eldest = next(iter(order))
                del order[eldest]
                self._engine.put(eldest, None)
                log(eldest, None, now)
        log(key, None if stored is None else self._codec.log_value(stored), now)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: Any) -> Any:
        old = self.get(key)
        self.put(key, None)
        return old

    def _no_order(self, *_: Any, **__: Any) -> Any:
        raise StateStoreError(f"store {self.name}: an LRU store has no ranges", store=self.name, hint="use a key-value store to iterate")

    range: Callable[..., Any] = _no_order
    reverse_range: Callable[..., Any] = _no_order
    all: Callable[..., Any] = _no_order
    reverse_all: Callable[..., Any] = _no_order
    prefix_scan: Callable[..., Any] = _no_order

    def approximate_num_entries(self) -> int:
        return len(self._order)

    def set_flush_listener(self, listener: Any, send_old_values: bool) -> bool:
        return False

    def flush(self) -> None:
        self._changelog.flush()

    def close(self) -> None:
        self._changelog.clear()

    def __repr__(self) -> str:
        return f"Lru({self.name!r}, {len(self._order)} of {self.max_entries} rows)"
