"""What operators with a store of their own share: reading the old row, keeping the new one, and forwarding unless a cache will.

A cached store forwards its entries itself when they leave the cache (flush, eviction), each under its own record context; the
operator that writes it must then stay silent. A versioned store says whether a row was put as the latest version, as an older
one, or not at all.
Source: Kafka Streams' TimestampedTupleForwarder, TimestampedCacheFlushListener, KeyValueStoreWrapper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstreams_repl.operators.base import NodeContext, Process
from kstreams_repl.stores.api import NOT_PUT
from kstreams_repl.types import Headers

_UNCHANGEABLE = frozenset({int, float, str, bytes, bool, type(None)})

Keep = Callable[[Any, Any, Any, int, Headers], None]
"""(key, new, old, timestamp, headers): store the new row and forward the change."""


def forwards_on_flush(node: NodeContext, store: Any, forward: Process, send_old_values: bool) -> bool:
    """Let a cached store forward `(new, old, True)` as entries leave its cache. False: it is not cached, forward yourself."""

    def entry_left(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        forward(key, (new, old, True), timestamp, headers)

    cached = bool(store.set_flush_listener(entry_left, send_old_values))
    if cached and not send_old_values and hasattr(store, "set_outlet"):
        store.set_outlet(node.outlet)
    return cached


def slots_of(store: Any) -> tuple[Callable[[bytes], Any], Callable[[Any, Any, int], None], type]:
    """How to change a row where it lies in the store's cache: `find(key)` gives its slot (with `value` and `at`, its timestamp),
    `rewrite(slot, value, at)` writes it. The type is that of values that are no objects; those, and rows without a slot, go through
    `get` and `put`. A store without such a cache never finds one.
    """
    cache = store.cached
    return (_no_slot, _no_slot, object) if cache is None else (cache.find, cache.rewrite, cache.frozen)


def window_slots_of(store: Any) -> tuple[Callable[[bytes, int], Any], Callable[[Any, Any, int], None], type]:
    """As `slots_of`, for a window store: `find(key, window start)`."""
    cache = store.cached
    return (_no_slot, _no_slot, object) if cache is None else (store.find_slot(), cache.rewrite, cache.frozen)


def _no_slot(*arguments: Any) -> None:
    """The store has no slots."""


def old_value(store: Any) -> Callable[[Any], Any]:
    """key -> the present row's value, or None. For timestamped and versioned stores alike: a row begins with its value."""
    get = store.get

    def old(key: Any) -> Any:
        row = get(key)
        return None if row is None else row[0]

    return old


def as_stored(read: Callable[..., Any], first: Callable[[], Any]) -> Callable[..., Any]:
    """(old, *where) -> the old value as it is stored: an aggregator may have changed the object that it was given
    (`aggregate.append(value)`), and what is forwarded as old would be the new one.

    Args:
        read: (*where) -> the row, a tuple that begins with its value, or None.
        first: makes the value that stands for a row that is not there.
    """

    def stored(old: Any, *where: Any) -> Any:
        if type(old) in _UNCHANGEABLE:
            return old
        row = read(*where)
        return first() if row is None else row[0]

    return stored


def deleter(node: NodeContext, put: Callable[[Any, Any], None]) -> Callable[[Any, int, Headers], None]:
    """(key, timestamp, headers): delete a row for a record of this time and these headers.

    A deletion has no time of its own: a cache forwards it later, and a changelog logs it, under the record context's. A cached table
    upstream forwards rows under the context of the record that wrote them last, whose time may be older than the row's.
    """
    context = node.record

    def delete(key: Any, timestamp: int, headers: Headers) -> None:
        kept_timestamp, kept_headers = context.timestamp, context.headers
        context.timestamp, context.headers = timestamp, headers
        put(key, None)
        context.timestamp, context.headers = kept_timestamp, kept_headers

    return delete


def keeper(
    node: NodeContext,
    name: str,
    forward: Process,
    *,
    send_old_values: bool,
    versioned: bool,
    own_time: bool = False,
    first: Callable[[], Any] | None = None,
) -> Keep:
    """The call that keeps a table's result in its store. The caller passes `old` None where old values are not sent.

    A tombstone has the time of the record that brought it: the `timestamp` passed (`deleter`), or with `own_time` (an aggregate passes
    the time of its result) that of the record context. With `first` the old value is one that an aggregator was given (`as_stored`).
    """
    store = node.store(name)
    put = store.put
    stored = as_stored(store.get, first) if first is not None and send_old_values else None
    if versioned:

        def keep_version(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
            if stored is not None:
                old = stored(old, key)
            valid_to = put(key, new, timestamp)
            if valid_to != NOT_PUT:
                forward(key, (new, old, valid_to is None), timestamp, headers)

        return keep_version
    delete = (lambda key, timestamp, headers: put(key, None)) if own_time else deleter(node, put)
    if forwards_on_flush(node, store, forward, send_old_values):

        def keep_cached(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
            if new is not None:
                put(key, (new, timestamp))
            else:
                delete(key, timestamp, headers)

        return keep_cached

    def keep(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        if stored is not None:
            old = stored(old, key)
        if new is not None:
            put(key, (new, timestamp))
        else:
            delete(key, timestamp, headers)
        forward(key, (new, old, True), timestamp, headers)

    return keep
