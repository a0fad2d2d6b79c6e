"""Reads of the stores on this host, for the server: rows of one partition, at its last commit, up to a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from kstreams_repl.engine.topology.stores import StoreBuilder, StoreKind
from kstreams_repl.serving.local_stores import LocalStores
from kstreams_repl.serving.position import Position, PositionBound
from kstreams_repl.serving.server.limits import Limits
from kstreams_repl.serving.server.reads import BEHIND, Read, Rows
from kstreams_repl.serving.store_types import is_timestamped
from kstreams_repl.serving.task_view import TaskView
from kstreams_repl.system.errors import CallError, QueryLimitError, StateStoreNotAvailableError
from kstreams_repl.system.types import TopicPartition

_KEY_VALUE = frozenset({StoreKind.KEY_VALUE, StoreKind.LRU, StoreKind.TIMESTAMPED_KEY_VALUE})
_WINDOWS = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW})
_KINDS: Mapping[str, frozenset[StoreKind]] = {
    "get": _KEY_VALUE | {StoreKind.VERSIONED},
    "range": _KEY_VALUE | {StoreKind.VERSIONED},
    "prefix": _KEY_VALUE,
    "windows": _WINDOWS,
    "sessions": frozenset({StoreKind.SESSION}),
    "versions": frozenset({StoreKind.VERSIONED}),
}
_LONGEST = 2**63 - 1
_LAG_SECONDS = 0.5
_KEYS = 1_000
"""Keys that are read at once; the limit on bytes is looked at after them."""


class LocalReads:
    """Implements `routing.LocalStores`. Thread-safe.

    Args:
        changelog_of: returns the changelog of a store, for `lag`.
        behind: returns how many records one of its partitions has from a position on, for `lag`.
        most_bytes: of keys and values in one answer: a page of rows ends there; more keys at once are refused.
    """

    def __init__(
        self,
        stores: LocalStores,
        changelog_of: Callable[[StoreBuilder], str] = lambda builder: "",
        behind: Callable[[TopicPartition, int], int] = lambda at, position: 0,
        *,
        most_bytes: int = Limits().page_bytes,
    ) -> None:
        self._stores = stores
        self._most_bytes = most_bytes
        self._changelog_of = changelog_of
        self._behind = behind
        self._lags: dict[TopicPartition, tuple[int, float, int]] = {}
        self._lock = threading.Lock()

    def read(self, read: Read, partition: int, stale: bool) -> Rows:
        """Return the rows of one partition. Raises as `LocalStores.view`.

        Raises:
            CallError: the store is of another kind.
            StateStoreNotAvailableError: the store has not reached the position (its field ``status`` is `BEHIND`).
        """
        builder = self._stores.builder(read.store)
        if builder.kind not in _KINDS.get(read.kind, frozenset(StoreKind)):
            raise CallError(
                f"store {read.store!r} is a {builder.kind} store: it has no {read.kind}", hint=_hint(builder.kind), argument="store"
            )
        if read.as_of is not None and builder.kind is not StoreKind.VERSIONED:
            raise CallError(f"store {read.store!r} is a {builder.kind} store: it has no as_of", hint="leave as_of out", argument="as_of")
        offsets = {topic: {int(part): offset for part, offset in parts.items()} for topic, parts in read.bound.items()}
        bound = PositionBound.at(Position(offsets)) if offsets else None
        with self._stores.view(read.store, partition, stale=stale) as view:
            if bound is None or bound.is_reached_by(view.position, partition):
                return self._rows(read, builder, partition, view)
            raise StateStoreNotAvailableError(
                f"store {read.store!r} is not at the asked position yet (NOT_UP_TO_BOUND)",
                hint="ask again, or with wait= seconds",
                store=read.store,
                partition=partition,
                position=view.position.to_json(),
                status=BEHIND,
            )

    def page(self, read: Read) -> tuple[list[dict[str, Any]], tuple[int, int, Any] | None]:
        """Return one page of rows of all partitions that are here, of any age, and where the next one begins; None if there is none."""
        rows: list[dict[str, Any]] = []
        partitions = self._stores.expect_any(read.store, stale=True)
        for partition in partitions:
            if read.after is not None and partition < read.after[0]:
                continue
            part = replace(read, limit=read.limit - len(rows), after=read.after if read.after and read.after[0] == partition else None)
            found = self.read(part, partition, True)
            rows += found.rows
            if not found.complete:
                return rows, found.next_of(part, partition)
            if len(rows) >= read.limit and partition != partitions[-1]:
                return rows, (partition + 1, 0, None)
        return rows, None

    def get_many(self, store: str, keys: list[Any], partition: int, stale: bool) -> Rows:
        """Return one row per key that is there, all of one commit."""
        builder = self._stores.builder(store)
        if builder.kind not in _KINDS["get"]:
            raise CallError(f"store {store!r} is a {builder.kind} store: it has no single rows", hint=_hint(builder.kind), argument="store")
        with self._stores.view(store, partition, stale=stale) as view:
            view.count_bytes()
            found: list[Any] = []
            for first in range(0, len(keys), _KEYS):
                found += view.get_many(builder, keys[first : first + _KEYS])
                if view.bytes_read > self._most_bytes:
                    limit = self._most_bytes
                    raise QueryLimitError(f"the rows have more than {limit} bytes", hint="ask for fewer keys at once", limit=limit)
            position, size = _plain(view.position), view.bytes_read
        if is_timestamped(builder):  # the common case, without a call for each row
            rows = [{"key": key, "value": pair[0], "timestamp": pair[1]} for key, pair in zip(keys, found, strict=True) if pair is not None]
        else:
            row = _row_of(builder)
            rows = [row(key, value) for key, value in zip(keys, found, strict=True) if value is not None]
        return Rows(rows, position, size=size)

    def lag(self, store: str, partition: int) -> int:
        """Return by how many records the copy here is behind its changelog."""
        at = TopicPartition(self._changelog_of(self._stores.builder(store)), partition)
        with self._stores.view(store, partition, stale=True) as view:
            position = max(0, view.positions.get(str(at), 0))
        now = time.monotonic()
        kept = self._lags.get(at)
        if kept is None or kept[0] != position or now - kept[1] > _LAG_SECONDS:
            kept = self._lags[at] = (position, now, self._behind(at, position))
        return kept[2]

    def _rows(self, read: Read, builder: StoreBuilder, partition: int, view: TaskView) -> Rows:
        store = view.store(builder)
        if read.kind == "count":
            return Rows([{"partition": partition, "count": view.approximate_count(builder)}], _plain(view.position))
        if read.kind == "get":
            value = store.get(read.key) if read.as_of is None else store.get(read.key, read.as_of)
            return Rows([] if value is None else [_row_of(builder)(read.key, value)], _plain(view.position))
        rows: list[dict[str, Any]] = []
        view.count_bytes()
        found = _READS[read.kind](read, store, builder)
        for row in found:
            rows.append(row)
            if len(rows) == read.limit or view.bytes_read > self._most_bytes:
                break
        return Rows(rows, _plain(view.position), next(found, None) is None, view.bytes_read)


def _row_of(builder: StoreBuilder) -> Callable[[Any, Any], dict[str, Any]]:
    if builder.kind is StoreKind.VERSIONED:
        return lambda key, record: {
            "key": key, "value": record.value, "timestamp": record.timestamp, "valid_to": getattr(record, "valid_to", None),
        }  # fmt: skip
    if is_timestamped(builder):
        return lambda key, pair: {"key": key, "value": pair[0], "timestamp": pair[1]}
    return lambda key, value: {"key": key, "value": value}


def _range(read: Read, store: Any, builder: StoreBuilder) -> Iterator[dict[str, Any]]:
    low, high, after = read.low, read.high, read.after
    last = after[2] if after is not None and after[1] else None
    if last is not None:
        low, high = (low, last) if read.reverse else (last, high)
    if builder.kind is StoreKind.VERSIONED:
        found = store.range(low, high, read.as_of, read.reverse)
    else:
        found = store.reverse_range(low, high) if read.reverse else store.range(low, high)
    row = _row_of(builder)
    return (row(key, value) for key, value in found if last is None or key != last)


def _prefix(read: Read, store: Any, builder: StoreBuilder) -> Iterator[dict[str, Any]]:
    if read.prefix is None:
        raise CallError("expected the parameter prefix", argument="prefix")
    row = _row_of(builder)
    found = store.prefix_scan(read.prefix, lambda text: text.encode())
    return _skip(read, (row(key, value) for key, value in found))


def _windows(read: Read, store: Any, builder: StoreBuilder) -> Iterator[dict[str, Any]]:
    first, last = _times(read)
    stamped = is_timestamped(builder)
    size = builder.window_size_ms or 0
    if read.has_key:
        found = store.backward_fetch(read.key, first, last) if read.reverse else store.fetch(read.key, first, last)
        windows = ((read.key, start, min(start + size, _LONGEST), value) for start, value in found)
    else:
        fetch = store.backward_fetch_range if read.reverse else store.fetch_range
        all_keys = fetch(read.low, read.high, first, last)
        windows = ((key.key, key.start, key.end, value) for key, value in all_keys)
    return _skip(read, (_bounded(*window, stamped) for window in windows))


def _sessions(read: Read, store: Any, builder: StoreBuilder) -> Iterator[dict[str, Any]]:
    first, last = _times(read)
    if not read.has_key:
        find = store.backward_find_sessions_range if read.reverse else store.find_sessions_range
        found = find(read.low, read.high, first, last)
    else:
        found = (store.backward_find_sessions if read.reverse else store.find_sessions)(read.key, first, last)
    return _skip(read, (_bounded(key.key, key.start, key.end, value, False) for key, value in found))


def _versions(read: Read, store: Any, builder: StoreBuilder) -> Iterator[dict[str, Any]]:
    row = _row_of(builder)
    first = -_LONGEST if read.time_from is None else read.time_from
    last = _LONGEST if read.time_to is None else read.time_to
    return _skip(read, (row(read.key, record) for record in store.versions(read.key, first, last, read.reverse)))


_READS: Mapping[str, Callable[[Read, Any, StoreBuilder], Iterator[dict[str, Any]]]] = {
    "range": _range,
    "prefix": _prefix,
    "windows": _windows,
    "sessions": _sessions,
    "versions": _versions,
}


def _times(read: Read) -> tuple[int, int]:
    return (0 if read.time_from is None else read.time_from), (_LONGEST if read.time_to is None else read.time_to)


def _bounded(key: Any, start: int, end: int, value: Any, stamped: bool) -> dict[str, Any]:
    row = {"key": key, "window_start": start, "window_end": end, "value": value[0] if stamped else value}
    return {**row, "timestamp": value[1]} if stamped else row


def _skip(read: Read, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return rows if read.after is None else islice(rows, read.after[1], None)


def _plain(position: Position) -> dict[str, dict[str, int]]:
    return {topic: {str(part): offset for part, offset in offsets.items()} for topic, offsets in position.offsets.items()}


def _hint(kind: StoreKind) -> str:
    if kind in _WINDOWS:
        return "ask for its windows: /state/windows/STORE/KEY"
    return "ask for its sessions: /state/sessions/STORE/KEY" if kind is StoreKind.SESSION else "ask for its rows: /state/range/STORE"
