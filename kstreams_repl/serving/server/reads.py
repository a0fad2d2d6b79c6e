"""One read as the server understands it: parsed from a request, answered here or sent on to the owner, whose answer has the same form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.serving.wire import key_of, to_wire
from kstreams_repl.system.errors import CallError, QueryLimitError

_WITH_TIMES = frozenset({"windows", "sessions", "versions"})
_MOST_NUMBER = 2**63 - 1
BEHIND = 412
"""HTTP status of a read whose position is not reached."""


@dataclass(frozen=True, slots=True)
class Read:
    """One read of one store.

    Attributes:
        kind: ``get``, ``range``, ``prefix``, ``windows``, ``sessions``, ``versions`` or ``count``; ``windows`` and ``sessions`` without a
            key read all keys.
        key: the key, deserialized; meaningless unless `has_key`.
        low, high: bounds of a range of keys, both inclusive; None: open. Of windows and sessions: without a key.
        prefix: of keys, as text.
        time_from, time_to: bounds of window starts, session times or versions in epoch ms; None: open.
        as_of: time of a versioned read.
        partition: the only partition to read; None: the key's own, or all.
        limit: rows of one page.
        after: where the next page begins: ``[partition, rows of it that were sent, last key]``.
        bound: a position that the answer must have reached (`Position` as JSON).
        wait: seconds to wait for it.
        stale: whether a standby copy may answer, and by how many records it may be behind (None: any number).
    """

    kind: str
    store: str
    key: Any = None
    has_key: bool = False
    low: Any = None
    high: Any = None
    prefix: str | None = None
    time_from: int | None = None
    time_to: int | None = None
    as_of: int | None = None
    reverse: bool = False
    partition: int | None = None
    limit: int = 1_000
    after: tuple[int, int, Any] | None = None
    bound: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    wait: float = 0.0
    stale: bool = False
    max_lag: int | None = None

    def on(self, partition: int, **changes: Any) -> Read:
        """Return the same read of one partition."""
        return replace(self, partition=partition, **changes)

    def target(self) -> str:
        """Return path and query string for another server: keys as JSON, whatever their serde."""
        query: dict[str, str] = {"key_format": "json", "limit": str(self.limit)}
        path = f"/state/{_PATHS[self.kind]}/{quote(self.store, safe='')}"
        if self.has_key:
            path += f"/{quote(json.dumps(to_wire(self.key)), safe='')}"
        for name, value in zip(_key_bounds(self.kind), (self.low, self.high), strict=True):
            if value is not None:
                query[name] = json.dumps(to_wire(value))
        for name, number in (("from", self.time_from), ("to", self.time_to), ("as_of", self.as_of), ("partition", self.partition)):
            if number is not None:
                query[name] = str(number)
        if self.prefix is not None:
            query["prefix"] = self.prefix
        if self.reverse:
            query["reverse"] = "true"
        if self.after is not None:
            query["page"] = page_text(self.after)
        if self.bound:
            query |= {"position": json.dumps(self.bound), "wait": str(self.wait)}
        if self.stale:
            query |= {"stale": "true"} | ({} if self.max_lag is None else {"max_lag": str(self.max_lag)})
        return f"{path}?{urlencode(query)}"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one partition.

    Attributes:
        rows: plain values, with the columns of their kind of store.
        position: the position of the copy that answered (topic, partition, offset).
        complete: whether these are all rows; else the read goes on after them.
        size: bytes of their keys and values.
    """

    rows: list[dict[str, Any]]
    position: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    complete: bool = True
    size: int = 0

    def next_of(self, read: Read, partition: int) -> tuple[int, int, Any]:
        """Return where the page after these rows begins."""
        sent = len(self.rows) + (read.after[1] if read.after is not None else 0)
        return partition, sent, self.rows[-1].get("key") if self.rows else None


def _key_bounds(kind: str) -> tuple[str, str]:
    """Return the parameters for bounds of keys: reads by time have their times in ``from`` and ``to``."""
    return ("from_key", "to_key") if kind in _WITH_TIMES else ("from", "to")


_PATHS = {
    "get": "stores", "range": "range", "prefix": "prefix", "windows": "windows", "sessions": "sessions", "versions": "versions",
    "count": "count",
}  # fmt: skip


def parse_read(kind: str, path: Mapping[str, str], query: Mapping[str, str], serde: Serde, most_rows: int) -> Read:
    """Return the read that a request asks for.

    Args:
        path: ``store`` and, where the route has one, ``key``.
        serde: key serde of the store.

    Raises:
        CallError: a parameter is unknown or has an invalid value.
    """
    known = {"key_format", "partition", "position", "wait", "stale", "max_lag", "limit", "page", *_PARAMETERS[kind]}
    unknown = set(query) - known
    if unknown:
        raise CallError(f"unknown parameter {min(unknown)[:40]!r}", hint=f"known: {', '.join(sorted(known))}", argument=min(unknown)[:40])
    key_format = query.get("key_format", "text")
    has_key = "key" in path
    times, (low, high) = kind in _WITH_TIMES, _key_bounds(kind)
    if has_key and not query.keys().isdisjoint((low, high)) and times:
        raise CallError(f"{low} and {high} are bounds of keys, and the path has a key", hint="leave one of them out", argument=low)

    def bound_key(name: str) -> Any:
        return key_of(query[name], serde, key_format) if name in query else None

    limit = number(query, "limit", least=1) or 1_000
    if limit > most_rows:
        raise QueryLimitError(f"limit must be <= {most_rows}, got {limit}", hint="read page by page", limit=most_rows)
    return Read(
        kind,
        path["store"],
        key_of(path["key"], serde, key_format) if has_key else None,
        has_key,
        bound_key(low),
        bound_key(high),
        query.get("prefix") if kind == "prefix" else None,
        number(query, "from") if times else None,
        number(query, "to") if times else None,
        number(query, "as_of"),
        truth(query, "reverse"),
        number(query, "partition", least=0),
        limit,
        page_of(query["page"]) if "page" in query else None,
        position_of(query["position"]) if "position" in query else {},
        min(seconds(query, "wait"), 20.0),
        truth(query, "stale"),
        number(query, "max_lag", least=0),
    )


_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "get": ("as_of",),
    "range": ("from", "to", "as_of", "reverse"),
    "prefix": ("prefix",),
    "windows": ("from", "to", "from_key", "to_key", "reverse"),
    "sessions": ("from", "to", "from_key", "to_key", "reverse"),
    "versions": ("from", "to", "reverse"),
    "count": (),
}


def number(query: Mapping[str, str], name: str, *, least: int = -_MOST_NUMBER) -> int | None:
    """Return a whole number of a query string; None if it is not given."""
    text = query.get(name)
    if text is None:
        return None
    try:
        value = int(text) if len(text) < 21 else _MOST_NUMBER + 1
    except ValueError:
        value = _MOST_NUMBER + 1
    if not least <= value <= _MOST_NUMBER:
        raise CallError(f"{name} must be a whole number >= {least}, got {text[:40]!r}", argument=name)
    return value


def truth(query: Mapping[str, str], name: str) -> bool:
    """Return a flag of a query string."""
    text = query.get(name, "false")
    if text not in ("true", "false", "1", "0"):
        raise CallError(f"{name} must be true or false, got {text[:40]!r}", argument=name)
    return text in ("true", "1")


def seconds(query: Mapping[str, str], name: str) -> float:
    """Return a time in seconds, 0 or more."""
    try:
        value = float(query.get(name, "0"))
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise CallError(f"{name} must be a number of seconds, got {query[name][:40]!r}", argument=name)
    return value


def page_text(after: tuple[int, int, Any]) -> str:
    """Return where the next page begins, as text."""
    return json.dumps([after[0], after[1], to_wire(after[2])], separators=(",", ":"))


def page_of(text: str) -> tuple[int, int, Any]:
    """Read what `page_text` has written."""
    from kstreams_repl.serving.wire import from_wire

    try:
        partition, sent, key = json.loads(text)
        if type(partition) is type(sent) is int and 0 <= min(partition, sent) and max(partition, sent) <= _MOST_NUMBER:
            return partition, sent, from_wire(key)
    except (ValueError, TypeError, RecursionError):
        pass
    raise CallError("page is not a value that this server has returned as next", argument="page")


def position_of(text: str) -> dict[str, dict[str, int]]:
    """Read a position as JSON: topic, partition, offset.

    Raises:
        CallError: it has another form.
    """
    try:
        plain = json.loads(text)
        if isinstance(plain, dict):
            found = {str(topic): {int(part): int(offset) for part, offset in parts.items()} for topic, parts in plain.items()}
            if all(0 <= part < 2**31 and 0 <= offset <= _MOST_NUMBER for parts in found.values() for part, offset in parts.items()):
                return {topic: {str(part): offset for part, offset in parts.items()} for topic, parts in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        pass
    raise CallError('position must be JSON: {"topic": {"0": 17}}', argument="position")
