"""`Read`: one read of one store, and what a store on this host has for it.

Each caller makes a `Read`: the typed handles (`read_only_stores`), the queries of version 2 (`run_query`), a request by HTTP
(`server.parsing`) and its client. `rows_of` answers it from a commit of a task; `remote_stores` sends it to the query servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypedDict
from urllib.parse import quote, urlencode

from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.serving.queries.position import Position
from kstreams_repl.serving.queries.wire import page_text, to_wire
from kstreams_repl.system.durations import Seconds
from kstreams_repl.system.errors import CallError
from kstreams_repl.system.types import Windowed

BEHIND = 412
"""HTTP status of a read whose position is not reached."""
ROWS = frozenset({"range", "prefix", "windows", "sessions", "versions"})
"""Kinds of reads that return rows; the others return a value."""
BY_TIME = frozenset({"windows", "sessions", "versions"})
LONGEST = 2**63 - 1


class ReadOptions(TypedDict, total=False):
    """What a client may say of a read besides kind, store and key: fields of `Read`, with `position` for `bound`."""

    has_key: bool
    low: object
    high: object
    prefix: object
    time_from: int | None
    time_to: int | None
    as_of: int | None
    reverse: bool
    partition: int | None
    limit: int
    position: Position | None
    wait: Seconds
    stale: bool
    max_lag: int | None
    headers: bool


class Read(NamedTuple):
    """One read of one store.

    Attributes:
        kind: ``get``, ``many``, ``range``, ``prefix``, ``windows``, ``sessions``, ``versions`` or ``count``; ``windows`` and
            ``sessions`` without a key read all keys. ``window`` and ``session`` are single ones, by their bounds.
        key: the key, deserialized; meaningless unless `has_key`.
        keys: of ``many``.
        low, high: bounds of a range of keys, both inclusive; None: open. Of windows and sessions: without a key.
        prefix: of keys: text, or what `serializer` makes bytes of (a serde, or a function; None: the store's key serde).
        time_from, time_to: bounds of window starts or versions in epoch ms; of sessions the earliest end and the latest start;
            None: open.
        as_of: time of a versioned read.
        reverse: from the last to the first.
        partition: the only partition to read; None: the key's own, or all.
        limit: rows of one page.
        after: where the next page begins: ``[partition, rows of it that were sent, last key]``.
        bound: a position that the answer must have reached.
        wait: seconds to wait for it.
        stale: whether a standby copy may answer, and by how many records it may be behind (`max_lag`; None: any number).
        headers: of a store that keeps headers: with them.
    """

    kind: str
    store: str
    key: object = None
    has_key: bool = False
    low: object = None
    high: object = None
    prefix: Any = None
    time_from: int | None = None
    time_to: int | None = None
    as_of: int | None = None
    reverse: bool = False
    partition: int | None = None
    limit: int = 1_000
    after: tuple[int, int, object] | None = None
    bound: Position | None = None
    wait: float = 0.0
    stale: bool = False
    max_lag: int | None = None
    keys: Sequence[object] = ()
    serializer: object = None
    headers: bool = False

    def following(self, sent: int, partition: int) -> Read:
        """Return the read of the rows of a partition, after so many rows of the page, and after those that a page before has sent."""
        return self._replace(limit=self.limit - sent, after=self.after if self.after is not None and self.after[0] == partition else None)

    def request(self) -> tuple[str, str, bytes]:
        """Return method, path with query string, and body of the request to a server: keys as JSON, whatever their serde."""
        path = f"/state/{_PATHS.get(self.kind, self.kind)}/{quote(self.store, safe='')}"
        if self.kind == "many":
            content = {"keys": [to_wire(key) for key in self.keys], "stale": self.stale, "partition": self.partition}
            content |= {"headers": True} if self.headers else {}
            return "POST", path, json.dumps(content).encode()
        if self.has_key:
            path += f"/{quote(json.dumps(to_wire(self.key)), safe='')}"
        query: dict[str, str] = {"key_format": "json", "limit": str(self.limit)}
        for name, value in zip(key_bounds(self.kind), (self.low, self.high), strict=True):
            if value is not None:
                query[name] = json.dumps(to_wire(value))
        for name, number in (("from", self.time_from), ("to", self.time_to), ("as_of", self.as_of), ("partition", self.partition)):
            if number is not None:
                query[name] = str(number)
        if self.prefix is not None:
            query["prefix"] = self.prefix
        if self.reverse:
            query["reverse"] = "true"
        if self.headers and self.kind != "count":
            query["headers"] = "true"
        if self.after is not None:
            query["page"] = page_text(self.after)
        if self.bound is not None:
            query |= {"position": self.bound.to_json(), "wait": str(self.wait)}
        if self.stale:
            query |= {"stale": "true"} | ({} if self.max_lag is None else {"max_lag": str(self.max_lag)})
        return "GET", f"{path}?{urlencode(query)}", b""


_PATHS = {"get": "stores", "many": "stores"}


def key_bounds(kind: str) -> tuple[str, str]:
    """Return the parameters for bounds of keys: reads by time have their times in ``from`` and ``to``."""
    return ("from_key", "to_key") if kind in BY_TIME else ("from", "to")


def value_in(read: Read, store: Any) -> Any:
    """Return the value that a store has for a read that is none of `ROWS`; None if it has none."""
    if read.kind == "get":
        return store.get(read.key) if read.as_of is None else store.get(read.key, read.as_of)
    if read.kind == "window":
        return store.fetch(read.key, read.time_from)
    if read.kind == "session":
        return store.fetch_session(read.key, read.time_from, read.time_to)
    return store.approximate_num_entries()


def rows_of(read: Read, store: object, builder: StoreBuilder) -> Iterator[tuple[object, object]]:
    """Return the (key, value) that a store has for a read of `ROWS`, keys of windows and sessions as `Windowed`."""
    return _ROWS[read.kind](read, store, builder)


def _range(read: Read, store: Any, builder: StoreBuilder) -> Iterator[tuple[object, object]]:
    low, high = read.low, read.high
    last = read.after[2] if read.after is not None and read.after[1] else None
    if last is not None:
        low, high = (low, last) if read.reverse else (last, high)
    if builder.kind is StoreKind.VERSIONED:
        rows = store.range(low, high, read.as_of, read.reverse)
    else:
        rows = store.reverse_range(low, high) if read.reverse else store.range(low, high)
    return rows if last is None else (row for row in rows if row[0] != last)


def _prefix(read: Read, store: Any, builder: StoreBuilder) -> Iterator[tuple[object, object]]:
    if read.prefix is None:
        raise CallError("expected the parameter prefix", argument="prefix")
    return _skip(read, store.prefix_scan(read.prefix, read.serializer))


def _windows(read: Read, store: Any, builder: StoreBuilder) -> Iterator[tuple[object, object]]:
    first, last = _times(read)
    if not read.has_key:
        return _skip(read, (store.backward_fetch_range if read.reverse else store.fetch_range)(read.low, read.high, first, last))
    key, size = read.key, builder.window_size_ms or 0
    found = (store.backward_fetch if read.reverse else store.fetch)(key, first, last)
    return _skip(read, ((Windowed(key, start, min(start + size, LONGEST)), value) for start, value in found))


def _sessions(read: Read, store: Any, builder: StoreBuilder) -> Iterator[tuple[object, object]]:
    first, last = _times(read)
    if read.has_key:
        return _skip(read, (store.backward_find_sessions if read.reverse else store.find_sessions)(read.key, first, last))
    find = store.backward_find_sessions_range if read.reverse else store.find_sessions_range
    return _skip(read, find(read.low, read.high, first, last))


def _versions(read: Read, store: Any, builder: StoreBuilder) -> Iterator[tuple[object, object]]:
    first = -LONGEST if read.time_from is None else read.time_from
    last = LONGEST if read.time_to is None else read.time_to
    key = read.key
    return _skip(read, ((key, record) for record in store.versions(key, first, last, read.reverse)))


_ROWS: Mapping[str, Callable[[Read, Any, StoreBuilder], Iterator[tuple[object, object]]]] = {
    "range": _range,
    "prefix": _prefix,
    "windows": _windows,
    "sessions": _sessions,
    "versions": _versions,
}


def _times(read: Read) -> tuple[int, int]:
    return (0 if read.time_from is None else read.time_from), (LONGEST if read.time_to is None else read.time_to)


def _skip(read: Read, rows: Iterator[tuple[object, object]]) -> Iterator[tuple[object, object]]:
    return rows if read.after is None else islice(rows, read.after[1], None)
