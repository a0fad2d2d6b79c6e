"""A request to the server as the `Read` that it asks for."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.serving.queries.position import Position
from kstreams_repl.serving.queries.read import BY_TIME, Read, key_bounds
from kstreams_repl.serving.queries.wire import from_wire, key_of, position_from_wire
from kstreams_repl.system.errors import CallError, QueryLimitError

_MOST_NUMBER = 2**63 - 1


def parse_read(kind: str, path: Mapping[str, str], query: Mapping[str, str], serde: Serde, most_rows: int) -> Read:
    """Return the read that a request asks for.

    Args:
        path: ``store`` and, where the route has one, ``key``.
        serde: key serde of the store.

    Raises:
        CallError: a parameter is unknown or has an invalid value.
    """
    accepted = {"key_format", "partition", "position", "wait", "stale", "max_lag", "limit", "page", *_PARAMETERS[kind]}
    refuse_unknown(query, accepted)
    key_format = query.get("key_format", "text")
    has_key = "key" in path
    times, (low, high) = kind in BY_TIME, key_bounds(kind)
    if has_key and not query.keys().isdisjoint((low, high)) and times:
        raise CallError(f"{low} and {high} are bounds of keys, and the path has a key", hint="leave one of them out", argument=low)

    def bound_key(name: str) -> object:
        return key_of(query[name], serde, key_format) if name in query else None

    limit = number(query, "limit", least=1) or 1_000
    if limit > most_rows:
        raise QueryLimitError(f"limit must be <= {most_rows}, got {limit}", hint="read page by page", limit=most_rows)
    return Read(
        kind,
        path["store"],
        key_of(path["key"], serde, key_format) if has_key else None,
        has_key,
        low=bound_key(low),
        high=bound_key(high),
        prefix=query.get("prefix") if kind == "prefix" else None,
        serializer=str.encode,
        time_from=number(query, "from") if times else None,
        time_to=number(query, "to") if times else None,
        as_of=number(query, "as_of"),
        reverse=truth(query, "reverse"),
        partition=number(query, "partition", least=0),
        limit=limit,
        after=page_of(query["page"]) if "page" in query else None,
        bound=position_of(query["position"]) if "position" in query else None,
        wait=min(seconds(query, "wait"), 20.0),
        stale=truth(query, "stale"),
        max_lag=number(query, "max_lag", least=0),
        headers=truth(query, "headers"),
    )


_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "get": ("as_of", "headers"),
    "range": ("from", "to", "as_of", "reverse", "headers"),
    "prefix": ("prefix", "headers"),
    "windows": ("from", "to", "from_key", "to_key", "reverse", "headers"),
    "sessions": ("from", "to", "from_key", "to_key", "reverse", "headers"),
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


def page_of(text: str) -> tuple[int, int, object]:
    """Read what `wire.page_text` has written."""
    try:
        partition, sent, key = json.loads(text)
        if type(partition) is type(sent) is int and 0 <= min(partition, sent) and max(partition, sent) <= _MOST_NUMBER:
            return partition, sent, from_wire(key)
    except (ValueError, TypeError, RecursionError):
        pass
    raise CallError("page is not a value that this server has returned as next", argument="page")


def position_of(text: str) -> Position:
    """Read a position as JSON: topic, partition, offset.

    Raises:
        CallError: it has another form.
    """
    try:
        position = position_from_wire({topic: {part: int(at) for part, at in parts.items()} for topic, parts in json.loads(text).items()})
        offsets = [each for parts in position.offsets.values() for each in parts.items()]
        if all(0 <= partition < 2**31 and 0 <= offset <= _MOST_NUMBER for partition, offset in offsets):
            return position
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        pass
    raise CallError('position must be JSON: {"topic": {"0": 17}}', argument="position")


def refuse_unknown(query: Mapping[str, str], accepted: Collection[str]) -> None:
    """Raise CallError if a query string has a parameter that is not accepted."""
    unknown = set(query) - set(accepted)
    if unknown:
        name = min(unknown)[:40]
        raise CallError(f"unknown parameter {name!r}", hint=f"known: {', '.join(sorted(accepted))}", argument=name)
