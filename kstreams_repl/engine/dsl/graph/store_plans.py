"""Derives the description of a store from the options of a table or join: kind, retention, caching.

Sources: Kafka Streams' `KeyValueStoreMaterializer`, `WindowStoreMaterializer`, `SlidingWindowStoreMaterializer`,
`SessionStoreMaterializer`, `StreamJoinedStoreFactory`, `OuterStreamJoinStoreFactory`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kstreams_repl.engine.dsl.groupings.windows import AnyWindows, SessionWindows, SlidingWindows
from kstreams_repl.engine.dsl.options import Materialized
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.errors import TopologyError


def table_store(options: Materialized, name: str, key_serde: object, value_serde: object) -> StoreBuilder:
    """Return a timestamped key-value store, or a versioned one if a history is given; versioned stores are never cached, have no headers,
    and ``default.dsl.store`` does not apply to them."""
    if options.versioned:
        versioned = _store(options, name, StoreKind.VERSIONED, key_serde, value_serde, retention_ms=options.history_ms)
        return replace(versioned, follows_default=False)
    return _store(
        options, name, StoreKind.TIMESTAMPED_KEY_VALUE, key_serde, value_serde, caching=options.caching, headers=options.headers
    )


def windowed_store(options: Materialized, name: str, key_serde: object, windows: AnyWindows, *, on_close: bool = False) -> StoreBuilder:
    """Return the store of a windowed aggregate: a timestamped window store, or a session store.

    Windows are kept for as long as they can change, unless the options say longer. For sliding windows that is twice the time
    difference (plus grace), because a record also creates windows for its predecessors; for sessions with emit on close two gaps
    and grace, because a record that is not late may still extend them.
    """
    if isinstance(windows, SessionWindows):
        retention = _retention(options, name, windows.gap_ms + windows.grace_ms, "inactivity gap + grace")
        if on_close:
            retention = max(retention, 2 * windows.gap_ms + windows.grace_ms + 1)
        kind, size = StoreKind.SESSION, None
    else:
        kind = StoreKind.TIME_ORDERED_WINDOW if on_close else StoreKind.TIMESTAMPED_WINDOW
        if isinstance(windows, SlidingWindows):
            size = windows.time_difference_ms
            retention = _retention(options, name, 2 * size + windows.grace_ms, "2 x time difference + grace")
        else:
            size = windows.size_ms
            retention = _retention(options, name, size + windows.grace_ms, "window size + grace")
    return _store(
        options, name, kind, key_serde, options.value_serde,
        caching=options.caching and not on_close,
        headers=options.headers,
        retention_ms=retention,
        window_size_ms=size,
        options={"time_ordered": True} if on_close and kind is StoreKind.SESSION else {},
    )  # fmt: skip


def join_store(options: Materialized, name: str, key_serde: object, value_serde: object, size_ms: int, retention_ms: int) -> StoreBuilder:
    """Return one side's store of a stream-stream join: a window store with several values per key and time; never cached."""
    return _store(
        options, name, StoreKind.WINDOW, key_serde, value_serde,
        retention_ms=retention_ms, window_size_ms=size_ms, retain_duplicates=True,
    )  # fmt: skip


def outer_join_store(
    options: Materialized, name: str, key_serde: object, left_serde: object, right_serde: object, retention_ms: int
) -> StoreBuilder:
    """Return the store of the records of a left or outer join that wait for a match, of both sides."""
    serdes_of_sides = {"left_serde": left_serde, "right_serde": right_serde}
    return _store(options, name, StoreKind.OUTER_JOIN, key_serde, None, retention_ms=retention_ms, options=serdes_of_sides)


def _store(
    chosen: Materialized, name: str, kind: StoreKind, key_serde: object, value_serde: object, *, caching: bool = False, **of_kind: Any
) -> StoreBuilder:
    """Return the store with the options of the table: changelog and its settings, on disk or in memory; caching and headers as given."""
    return StoreBuilder(
        name, kind, key_serde, value_serde,
        caching=caching,
        logging=chosen.logging,
        persistent=chosen.persistent is not False,
        follows_default=chosen.persistent is None,
        topic_config=chosen.topic_config,
        **of_kind,
    )  # fmt: skip


def _retention(options: Materialized, name: str, needed: int, what: str) -> int:
    if options.retention_ms is None:
        return min(needed, 2**63 - 1)
    if options.retention_ms < needed:
        raise TopologyError(
            f"retention of store {name!r} must be >= {needed} ms ({what}), got {options.retention_ms} ms",
            hint=f"use retention={needed} or more, or leave it out",
            store=name,
        )
    return options.retention_ms
