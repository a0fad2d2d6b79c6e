"""Reads of the stores on this host, for the server: rows of one partition, at its last commit, up to a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.queries.position import Position, PositionBound
from kstreams_repl.serving.queries.read import BEHIND, Read, rows_of, value_in
from kstreams_repl.serving.queries.rows import KEY_VALUE, WINDOWS, StoreRow, row_maker
from kstreams_repl.serving.queries.task_view import TaskView
from kstreams_repl.serving.server.limits import ServerLimits
from kstreams_repl.system.errors import CallError, QueryLimitError, StateStoreNotAvailableError
from kstreams_repl.system.types import TopicPartition

_KINDS: Mapping[str, frozenset[StoreKind]] = {
    "get": KEY_VALUE | {StoreKind.VERSIONED},
    "many": KEY_VALUE | {StoreKind.VERSIONED},
    "range": KEY_VALUE | {StoreKind.VERSIONED},
    "prefix": KEY_VALUE,
    "windows": WINDOWS,
    "sessions": frozenset({StoreKind.SESSION}),
    "versions": frozenset({StoreKind.VERSIONED}),
}
_LAG_SECONDS = 0.5
_KEYS = 1_000
"""Keys that are read at once; the limit on bytes is looked at after them."""


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of one partition.

    Attributes:
        rows: plain values, with the columns of their kind of store.
        position: of the copy that answered.
        complete: whether these are all rows; else the read goes on after them.
        size: bytes of their keys and values.
    """

    rows: list[StoreRow]
    position: Position
    complete: bool = True
    size: int = 0

    def next_of(self, read: Read, partition: int) -> tuple[int, int, object]:
        """Return where the page after these rows begins."""
        sent = len(self.rows) + (read.after[1] if read.after is not None else 0)
        return partition, sent, self.rows[-1].get("key") if self.rows else None


class LocalReads:
    """Answers reads of one partition. Thread-safe.

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
        most_bytes: int = ServerLimits().page_bytes,
    ) -> None:
        self._stores = stores
        self._most_bytes = most_bytes
        self._changelog_of = changelog_of
        self._behind = behind
        self._lags: dict[TopicPartition, tuple[int, float, int]] = {}
        self._lock = threading.Lock()

    def read(self, read: Read, partition: int, stale: bool) -> PartitionRows:
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
        if read.headers and not builder.headers:
            raise CallError(f"store {read.store!r} keeps no headers", hint="leave headers out", argument="headers")
        with self._stores.view(read.store, partition, stale=stale) as view:
            if read.bound is None or PositionBound.at(read.bound).is_reached_by(view.position, partition):
                return self._rows(read, builder, partition, view)
            raise StateStoreNotAvailableError(
                f"store {read.store!r} is not at the asked position yet (NOT_UP_TO_BOUND)",
                hint="ask again, or with wait= seconds",
                store=read.store,
                partition=partition,
                position=view.position.to_json(),
                status=BEHIND,
            )

    def page(self, read: Read) -> tuple[list[StoreRow], tuple[int, int, object] | None]:
        """Return one page of rows of all partitions that are here, of any age, and where the next one begins; None if there is none."""
        rows: list[StoreRow] = []
        partitions = self._stores.expect_any(read.store, stale=True)
        for partition in partitions:
            if read.after is not None and partition < read.after[0]:
                continue
            part = read.following(len(rows), partition)
            answer = self.read(part, partition, True)
            rows += answer.rows
            if not answer.complete:
                return rows, answer.next_of(part, partition)
            if len(rows) >= read.limit and partition != partitions[-1]:
                return rows, (partition + 1, 0, None)
        return rows, None

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

    def _rows(self, read: Read, builder: StoreBuilder, partition: int, view: TaskView) -> PartitionRows:
        if read.kind == "count":
            return PartitionRows([{"partition": partition, "count": view.approximate_count(builder)}], view.position)
        row = row_maker(builder, headers=read.headers)
        if read.kind == "get":
            value = value_in(read, view.store(builder, headers=read.headers))
            return PartitionRows([] if value is None else [row(read.key, value)], view.position)
        view.count_bytes()
        if read.kind == "many":
            values = self._values(read, builder, view)
            rows = [row(key, value) for key, value in zip(read.keys, values, strict=True) if value is not None]
            return PartitionRows(rows, view.position, size=view.bytes_read)
        rows = []
        pairs = rows_of(read, view.store(builder, headers=read.headers), builder)
        for key, value in pairs:
            rows.append(row(key, value))
            if len(rows) == read.limit or view.bytes_read > self._most_bytes:
                break
        return PartitionRows(rows, view.position, next(pairs, None) is None, view.bytes_read)

    def _values(self, read: Read, builder: StoreBuilder, view: TaskView) -> list[object]:
        values: list[object] = []
        for first in range(0, len(read.keys), _KEYS):
            values += view.get_many(builder, read.keys[first : first + _KEYS], headers=read.headers)
            if view.bytes_read > self._most_bytes:
                limit = self._most_bytes
                raise QueryLimitError(f"the rows have more than {limit} bytes", hint="ask for fewer keys at once", limit=limit)
        return values


def _hint(kind: StoreKind) -> str:
    if kind in WINDOWS:
        return "ask for its windows: /state/windows/STORE/KEY"
    return "ask for its sessions: /state/sessions/STORE/KEY" if kind is StoreKind.SESSION else "ask for its rows: /state/range/STORE"
