"""The LRU store: a bounded number of rows; the least recently used row is evicted with a tombstone in the changelog.

The order of up to `MOST_SAVED` rows survives a restart; a larger store on disk reopens in key order. A store that is restored from
its changelog, as Kafka Streams' store always is, has the order of the last writes; one that finds its rows on disk has the order
of use.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.kinds.key_value import KeyValueAccess, prefix_bytes
from kstreams_repl.engine.stores.layers.codec import Codec
from kstreams_repl.engine.stores.log.changelog import Changelog

_SIZE = struct.Struct(">I")
MOST_SAVED = 10_000
"""Maximum number of rows whose order is saved with each commit; takes about 6 ms."""
ORDER = "/order"
"""Suffix of the attribute that holds the store's keys, eldest first."""


def pack_order(keys: Iterable[bytes]) -> bytes:
    """Encode keys as an attribute."""
    return b"".join([_SIZE.pack(len(key)) + key for key in keys])


def unpack_order(data: bytes | None) -> dict[bytes, None]:
    """Decode an attribute encoded by `pack_order`."""
    order: dict[bytes, None] = {}
    data, position = data or b"", 0
    while position < len(data):
        start = position + _SIZE.size
        position = start + _SIZE.unpack_from(data, position)[0]
        order[data[start:position]] = None
    return order


class Lru(KeyValueAccess):
    """A key-value store of bounded size; only `get` and `put` count as use."""

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
        record_context: RecordContext,
    ) -> None:
        super().__init__(name, changelog, key_serde, persistent=persistent)
        self.max_entries = max_entries
        self._codec = codec
        self._changelog = changelog
        self._context = record_context
        self._engine = environment.engine(name, persistent=persistent)
        self._environment = environment
        self._order: dict[bytes, None] = {}
        self._load()
        if persistent:
            environment.before_commit(self._save)
        environment.after_rollback(self._load)

    def _load(self) -> None:
        """Load the engine's keys in the saved or restored order; rows that are not part of it count as the eldest."""
        saved = self._environment.attribute(self.name + ORDER)
        order = self._order if saved is None else unpack_order(saved)
        rows = {key: None for key, _ in self._engine.range()} if self._engine.approximate_count() else {}
        self._order = {key: None for key in rows if key not in order} | {key: None for key in order if key in rows}
        if not self.persistent and saved is not None:
            self._environment.set_attribute(self.name + ORDER, None)

    def _save(self) -> None:
        small = len(self._order) <= MOST_SAVED
        self._environment.set_attribute(self.name + ORDER, pack_order(self._order) if small else None)

    def get(self, key: object) -> Any:
        data = self._bytes(key)
        stored = self._engine.get(data)
        if stored is None:
            return None
        self._order[data] = self._order.pop(data, None)
        return self._codec.decode(stored)

    def put(self, key: object, value: object) -> None:
        data = self._bytes(key)
        self._write(data, self._codec.encode(value))

    def _write(self, key: bytes, stored: bytes | None) -> None:
        self._insert(key, stored)
        self._changelog.log(key, None if stored is None else self._codec.log_value(stored), self._context.timestamp)

    def _insert(self, key: bytes, stored: bytes | None) -> None:
        """Put or delete the row; a row that is evicted for it is logged as deleted immediately."""
        order = self._order
        order.pop(key, None)
        self._engine.put(key, stored)
        if stored is not None:
            order[key] = None
            if len(order) > self.max_entries:
                eldest = next(iter(order))
                del order[eldest]
                self._engine.put(eldest, None)
                self._changelog.log(eldest, None, self._context.timestamp)

    def put_all(self, entries: Iterable[tuple[object, object]]) -> None:
        """Put all rows, then log them, as Kafka Streams does: rows evicted meanwhile are logged first."""
        pairs = entries.items() if isinstance(entries, dict) else entries
        rows = [(self._bytes(key), self._codec.encode(value)) for key, value in pairs]
        for key, stored in rows:
            self._insert(key, stored)
        for key, stored in rows:
            self._changelog.log(key, None if stored is None else self._codec.log_value(stored), self._context.timestamp)

    def prefix_scan(self, prefix: object, serialize: object = None) -> Iterator[tuple[Any, Any]]:
        """Iterate over rows whose serialized key begins with that of `prefix`."""
        start = prefix_bytes(prefix, serialize, self._key)
        if start is None:
            self._null_key()
        return (
            (self._key.deserialize(key), self._codec.decode(stored))
            for key, stored in self._snapshot(reverse=False)
            if key.startswith(start)
        )

    def _snapshot(self, *, reverse: bool) -> list[tuple[bytes, bytes]]:
        """Return the current rows, so that a write during an iteration does not show in it."""
        engine = self._engine
        return [(key, stored) for key in sorted(self._order, reverse=reverse) if (stored := engine.get(key)) is not None]

    def _rows(self, low: bytes | None, high: bytes | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
        return (
            (self._key.deserialize(key), self._codec.decode(stored))
            for key, stored in self._snapshot(reverse=reverse)
            if (low is None or key >= low) and (high is None or key <= high)
        )

    def approximate_num_entries(self) -> int:
        return len(self._order)

    def set_flush_listener(self, listener: object, send_old_values: bool) -> bool:
        return False

    def _rows_held(self) -> str:
        return f"{len(self._order)} of {self.max_entries} rows"
