"""Shared by operators with a store of their own: read the old row, put the new one, and forward it unless a cache does.

A cached store forwards its entries itself when they are flushed or evicted, each under its own record context; the operator that
writes it must not forward. A versioned store returns whether a row was put as the latest version, as an older one, or not at all.
Source: Kafka Streams' TimestampedTupleForwarder, TimestampedCacheFlushListener, KeyValueStoreWrapper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.operators.kernel import inlined, kernel
from kstreams_repl.engine.operators.operator import Change, NodeContext, Process
from kstreams_repl.engine.stores.state_store import NOT_PUT
from kstreams_repl.system.types import Headers, Initializer, KeyValueMapper, UserFunction

if TYPE_CHECKING:
    from kstreams_repl.engine.stores.cache.write_back_cache import WriteBackCache

_UNCHANGEABLE = frozenset({int, float, str, bytes, bool, type(None)})

Keep = Callable[[object, object, object, int, Headers], None]
"""(key, new, old, timestamp, headers): put the new row and forward the change."""


def forwards_on_flush(node: NodeContext, store: Any, forward: Process, send_old_values: bool) -> bool:
    """Make a cached store forward `(new, old, True)` when entries are flushed. Return False if it is not cached: forward directly."""

    def entry_left(key: object, new: object, old: object, timestamp: int, headers: Headers) -> None:
        forward(key, (new, old, True), timestamp, headers)

    cached = bool(store.set_flush_listener(entry_left, send_old_values))
    if cached and not send_old_values and hasattr(store, "set_outlet"):
        store.set_outlet(node.outlet, node.row_loop)
    return cached


def entries_of(cache: WriteBackCache | None) -> tuple[Any, ...]:
    """Return what changes a row in place in a store's write-back cache, four times None without one: `find(key)` returns its slot or None,
    `load(key)` creates the slot from the row below, `rewrite(slot, value, at)` writes it; the type of values that are not objects,
    which have no `data` if there is no row.
    """
    return (None,) * 4 if cache is None else (cache.find, cache.load, cache.rewrite, cache.frozen)


def old_value(store: Any) -> Callable[[object], object]:
    """Return key -> the current row's value, or None. Works for timestamped and versioned stores: a row begins with its value."""
    get = store.get

    def old(key: object) -> object:
        row = get(key)
        return None if row is None else row[0]

    return old


def as_stored(read: UserFunction, first: Initializer) -> UserFunction:
    """Return (old, *where) -> the old value as it is stored. An aggregator may have modified the object it was given
    (`aggregate.append(value)`), which would make the forwarded old value equal to the new one.

    Args:
        read: (*where) -> the row, a tuple that begins with its value, or None.
        first: returns the value that stands for a missing row.
    """

    def stored(old: object, *where: object) -> object:
        if type(old) in _UNCHANGEABLE:
            return old
        row = read(*where)
        return first() if row is None else row[0]

    return stored


def deleter(node: NodeContext, put: Callable[[object, object], None]) -> Callable[[object, int, Headers], None]:
    """Return (key, timestamp, headers): delete a row with the timestamp and headers of a record.

    A deletion has no timestamp of its own: a cache forwards it, and a changelog logs it, with that of the record context. A cached table
    upstream forwards rows under the context of the record that wrote them last, whose timestamp may be older than the row's.
    """
    context = node.record

    def delete(key: object, timestamp: int, headers: Headers) -> None:
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
    first: Initializer | None = None,
) -> Keep:
    """Return the function that puts a table's result into its store. The caller passes `old` None if old values are not sent.

    A tombstone has the timestamp of the record that caused it: the `timestamp` passed (`deleter`), or with `own_time` (an aggregate passes
    the timestamp of its result) that of the record context. With `first`, the old value is one that an aggregator was given (`as_stored`).
    """
    store = node.store(name)
    put, delete = store.put, deleter(node, store.put)
    on_flush = not versioned and forwards_on_flush(node, store, forward, send_old_values)
    stored = as_stored(store.get, first) if first is not None and send_old_values and not on_flush else None

    @inlined
    def keep(key: object, new: object, old: object, timestamp: int, headers: Headers) -> None:
        if stored is not None:
            old = stored(old, key)
        if versioned:
            valid_to = put(key, new, timestamp)
            if valid_to != NOT_PUT:
                forward(key, (new, old, valid_to is None), timestamp, headers)
            return
        if new is not None:
            put(key, (new, timestamp))
        elif own_time:
            put(key, None)
        else:
            delete(key, timestamp, headers)
        if not on_flush:
            forward(key, (new, old, True), timestamp, headers)

    return keep


def derived_table(
    node: NodeContext,
    forward: Process,
    change: KeyValueMapper,
    *,
    store: str | None,
    send_old_values: bool,
    store_versioned: bool,
    reads_old: bool = True,
    hides_unseen: bool = False,
) -> Process:
    """Return the entry of a table that is computed row by row from another, and put into `store` if there is one.

    Args:
        change: (key, value of the parent's row or None) -> value or None, also for old values that no store has.
        reads_old: with a store, the old value is the store's; otherwise always the parent's.
        hides_unseen: with old values, forward nothing if both new and old are None: the row was never forwarded.
    """
    keep: Keep | None = None
    shown: Callable[[object], object] | None = None
    hides = hides_unseen and send_old_values
    if store is not None:
        keep = keeper(node, store, forward, send_old_values=send_old_values, versioned=store_versioned)
        shown = old_value(node.store(store)) if reads_old else None

    def derive(key: object, value: Change, timestamp: int, headers: Headers) -> None:
        new, old, is_latest = value
        new = change(key, new)
        if not send_old_values:
            old = None
        elif shown is not None:
            old = shown(key)
        else:
            old = change(key, old)
        if hides and new is None and old is None:
            return
        if keep is not None:
            keep(key, new, old, timestamp, headers)
        else:
            forward(key, (new, old, is_latest), timestamp, headers)

    return kernel(node, derive)
