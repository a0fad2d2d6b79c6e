"""Open the stores of a task from their builders.

The layers, from the inside: engine (`engine/stores/engine`), rows (physical keys, segments), objects (objects; written through, written
back, or in the record cache; a write is logged at the point where it reaches the engine), and the typed store with its serdes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kstreams_repl.engine.processor.record_context import ContextSnapshot, RecordContext
from kstreams_repl.engine.serdes import Serde, bytes_, resolve
from kstreams_repl.engine.stores.cache.record_cache import RecordCache
from kstreams_repl.engine.stores.cache.write_back_cache import WriteBackCache
from kstreams_repl.engine.stores.engine.environment import Engine, Environment
from kstreams_repl.engine.stores.kinds.header_stores import (
    KeyValueWithHeaders,
    SessionWithHeaders,
    TimeOrderedWindowWithHeaders,
    WindowWithHeaders,
)
from kstreams_repl.engine.stores.kinds.join_grace_buffer import JoinGraceBuffer
from kstreams_repl.engine.stores.kinds.key_value import KeyValue, TimestampedKeyValue
from kstreams_repl.engine.stores.kinds.lru import Lru
from kstreams_repl.engine.stores.kinds.outer_join import OuterJoin
from kstreams_repl.engine.stores.kinds.session import SessionStore
from kstreams_repl.engine.stores.kinds.suppress_buffer import SuppressBuffer
from kstreams_repl.engine.stores.kinds.time_ordered_window import TimeOrderedRows, TimeOrderedWindow
from kstreams_repl.engine.stores.kinds.versioned import Versioned, VersionedRows
from kstreams_repl.engine.stores.kinds.window import Sequence, WindowStore
from kstreams_repl.engine.stores.layers.bytes_store import EngineRows, PhysicalRows
from kstreams_repl.engine.stores.layers.caching_store import CachedObjects
from kstreams_repl.engine.stores.layers.codec import Codec
from kstreams_repl.engine.stores.layers.header_rows import HeaderCodec, PlainObjects
from kstreams_repl.engine.stores.layers.object_store import StoredObjects, WriteBackObjects, WriteThroughObjects
from kstreams_repl.engine.stores.layers.segments import SegmentedRows
from kstreams_repl.engine.stores.log.changelog import Changelog, Send
from kstreams_repl.engine.stores.state_store import StateStore
from kstreams_repl.engine.topology.store_builder import HISTORY_SUFFIX, StoreBuilder, StoreKind
from kstreams_repl.system.errors import TopologyError

EXPIRED = "expired"
"""The reason passed to `on_dropped` when a put is older than the store's retention."""

_DAY_MS = 86_400_000
_WRITE_ALL_THEY_KEEP = frozenset({"bytes", "string", "json", "double"})
"""Built-in serdes that can write every value of their `immutable` types; the others reject numbers out of range."""


def open_store(
    builder: StoreBuilder,
    environment: Environment,
    *,
    record_context: RecordContext,
    send: Send | None = None,
    send_many: Callable[..., None] | None = None,
    partition: int | None = None,
    cache: RecordCache | None = None,
    defaults: tuple[object, object] | Mapping[str, object] | None = None,
    on_dropped: Callable[[str], None] | None = None,
    suppress_changelog: bool = False,
    write_at_once: bool = False,
) -> StateStore:
    """Open one store of one task.

    Args:
        builder: the store's builder from the topology.
        environment: the task's engines; the store's rows join its commits and rollbacks.
        record_context: the task's `RecordContext`; its `timestamp` and `headers` must be those of the current record whenever a store
            is written (plain stores log with that timestamp, cached entries are flushed with that context).
        send: writes to the changelog topic, `(key, value, timestamp, headers, partition)`; None = no changelog. A timestamp of None
            means the producer's time.
        send_many: the same for columns (`engine.runtime.nodes.collector.SendMany`), in order with `send`; None = record by record.
        partition: the changelog partition to pass to `send`: the task's own; None leaves the choice to `send`.
        cache: the task's record cache; used if the builder enables caching and the cache's budget is not 0.
        defaults: the application's default (key serde, value serde).
        on_dropped: called with a reason for each put that is rejected because it is too old.
        suppress_changelog: send one changelog record per key and flush instead of one per update.
        write_at_once: serialize each value when it is put, so that a value that cannot be serialized fails in the put that wrote it.
    """
    opening = _Opening(
        builder, environment, record_context, send, send_many, partition, cache, defaults, on_dropped, suppress_changelog, write_at_once
    )
    try:
        make = _MAKERS[builder.kind]
    except KeyError:
        raise TopologyError(f"store {builder.name}: unknown kind {builder.kind!r}", store=builder.name) from None
    return make(opening)


@dataclass
class _Opening:
    """The arguments of `open_store` and what follows from them, for the functions below."""

    builder: StoreBuilder
    environment: Environment
    record_context: RecordContext
    send: Send | None
    send_many: Callable[..., None] | None
    partition: int | None
    cache: RecordCache | None
    defaults: tuple[object, object] | Mapping[str, object] | None
    on_dropped: Callable[[str], None] | None
    write_back: bool
    write_at_once: bool

    def __post_init__(self) -> None:
        builder, cache, defaults, on_dropped = self.builder, self.cache, self.defaults, self.on_dropped
        key_default, value_default = (defaults["key"], defaults["value"]) if isinstance(defaults, Mapping) else (defaults or (None, None))
        self.name = builder.name
        if not builder.logging:
            self.send = self.send_many = None
        self.cache = cache if builder.caching and cache is not None and cache.max_bytes > 0 else None
        self.key_serde: Serde = resolve(builder.key_serde, key_default)
        self.value_serde: Serde = resolve(builder.value_serde, value_default)
        self.changelog = self.log(suppressed=self.write_back)
        self.persistent = builder.persistent
        self.retention_ms = builder.retention_ms if builder.retention_ms is not None else _DAY_MS
        self.on_expired: Callable[[], None] = (lambda: None) if on_dropped is None else (lambda: on_dropped(EXPIRED))

    def codec(self, *, timestamped: bool) -> Codec:
        if self.builder.headers:
            return HeaderCodec(self.value_serde, timestamped=timestamped, record_context=self.record_context)
        return Codec(self.value_serde, timestamped=timestamped)

    def log(self, *, suppressed: bool, last_write_order: bool = False) -> Changelog:
        return Changelog(
            self.send, suppressed=suppressed, partition=self.partition, send_many=self.send_many, last_write_order=last_write_order
        )

    def engine(self, suffix: str = "") -> Engine:
        return self.environment.engine(self.name + suffix, persistent=self.persistent)

    def segmented_rows(self, timestamp_at: int, *, time_first: bool = False) -> SegmentedRows:
        return SegmentedRows(
            self.environment,
            self.engine(),
            self.name,
            retention_ms=self.retention_ms,
            timestamp_at=timestamp_at,
            on_expired=self.on_expired,
            time_first=time_first,
        )

    def objects(self, rows: PhysicalRows, codec: Codec, *, keep_reads: bool = False, cacheable: bool = True) -> StoredObjects:
        objects: StoredObjects
        expiring = rows if isinstance(rows, SegmentedRows | TimeOrderedRows) else None
        visible = expiring.visible if expiring else None
        if self.write_at_once and not (codec.serde._builtin and codec.serde.name in _WRITE_ALL_THEY_KEEP):
            codec.deferrable = frozenset()
        keeps_headers = codec.log_headers is not None  # written with each row, which the caches below keep as a value and a time
        if self.cache is not None and cacheable and not self.cache.exact and not keeps_headers:
            objects = WriteBackCache(rows, codec, self.changelog, self.record_context, self.cache, visible=visible)
        elif self.cache is not None and cacheable:
            objects = CachedObjects(
                rows, codec, self.changelog, self.record_context, self.cache, keep_reads=keep_reads, defer=self.write_back
            )
        elif self.write_back and not keeps_headers:
            objects = WriteBackObjects(
                rows,
                codec,
                self.changelog,
                self.record_context,
                admit=expiring.admit if expiring else None,
                visible=visible,
            )
        else:
            objects = WriteThroughObjects(rows, codec, self.changelog, self.record_context)
        self.environment.after_rollback(objects.clear)
        return objects


def _subscription(opening: _Opening) -> StateStore:
    """Open the subscription store of a foreign-key join: a timestamped store whose keys are already bytes."""
    opening.key_serde = bytes_
    return _open_key_value(opening, TimestampedKeyValue, timestamped=True)


def _open_key_value(opening: _Opening, kind: type[KeyValue], *, timestamped: bool) -> StateStore:
    engine = opening.engine()
    codec = opening.codec(timestamped=timestamped)
    objects = opening.objects(EngineRows(engine), codec, keep_reads=True)
    serdes = (opening.key_serde, opening.value_serde)
    about: dict[str, Any] = {"persistent": opening.persistent, "count": engine.approximate_count}
    if codec.log_headers is None:
        return kind(opening.name, objects, *serdes, **about, decode=codec.decode)
    store = KeyValueWithHeaders(opening.name, objects, *serdes, **about, decode=codec.decode)
    plain = PlainObjects(objects, timestamped=True)
    store.plain = TimestampedKeyValue(opening.name, plain, *serdes, **about, decode=lambda row: codec.decode(row)[:2])
    return store


def _lru(opening: _Opening) -> StateStore:
    codec = Codec(opening.value_serde, timestamped=False)
    changelog = opening.log(suppressed=opening.write_back, last_write_order=True)
    opening.environment.after_rollback(changelog.clear)
    return Lru(
        opening.name,
        opening.environment,
        codec,
        changelog,
        opening.key_serde,
        max_entries=opening.builder.max_entries or 1000,
        persistent=opening.persistent,
        record_context=opening.record_context,
    )


def _open_window(opening: _Opening, *, timestamped: bool) -> StateStore:
    rows = opening.segmented_rows(12)
    duplicates = opening.builder.retain_duplicates
    codec = opening.codec(timestamped=timestamped)
    objects = opening.objects(rows, codec, cacheable=not duplicates)
    changelog, context = opening.changelog, opening.record_context
    about: dict[str, Any] = {
        "window_size_ms": opening.builder.window_size_ms or 0,
        "timestamped": timestamped,
        "persistent": opening.persistent,
        "sequence": Sequence(opening.environment, opening.name) if duplicates else None,
        "log_null": (lambda key: changelog.log(key, None, context.timestamp)) if duplicates else None,
    }
    serdes = (opening.key_serde, opening.value_serde)
    if codec.log_headers is None:
        return WindowStore(opening.name, objects, rows, *serdes, **about)
    store = WindowWithHeaders(opening.name, objects, rows, *serdes, **about)
    plain = PlainObjects(objects, timestamped=True, cached_segments=store.cached_segments)
    store.plain = WindowStore(opening.name, plain, rows, *serdes, **about)
    store.plain.indexable = False
    return store


def _session(opening: _Opening) -> StateStore:
    rows = opening.segmented_rows(16, time_first=bool(opening.builder.options.get("time_ordered")))
    codec = opening.codec(timestamped=False)
    objects = opening.objects(rows, codec)
    if codec.log_headers is None:
        return SessionStore(opening.name, objects, rows, opening.key_serde, persistent=opening.persistent)
    store = SessionWithHeaders(opening.name, objects, rows, opening.key_serde, persistent=opening.persistent)
    plain = PlainObjects(objects, timestamped=False, cached_segments=store.cached_segments)
    store.plain = SessionStore(opening.name, plain, rows, opening.key_serde, persistent=opening.persistent)
    store.plain.indexable, store.plain.forgets_headers = False, True
    return store


def _versioned(opening: _Opening) -> StateStore:
    rows = VersionedRows(
        opening.environment, opening.name, opening.engine(), opening.engine(HISTORY_SUFFIX), retention_ms=opening.retention_ms
    )
    # Every version is part of the history, so the changelog is never reduced to the last one.
    changelog = opening.log(suppressed=False)
    return Versioned(
        opening.name,
        rows,
        changelog,
        opening.key_serde,
        opening.value_serde,
        persistent=opening.persistent,
        on_expired=opening.on_expired,
    )


def _time_ordered_window(opening: _Opening) -> StateStore:
    timestamped = bool(opening.builder.options.get("timestamped", True))
    rows = TimeOrderedRows(
        opening.environment, opening.engine(), opening.name, retention_ms=opening.retention_ms, on_expired=opening.on_expired
    )
    codec = opening.codec(timestamped=timestamped)
    objects = opening.objects(rows, codec, cacheable=False)
    about: dict[str, Any] = {
        "window_size_ms": opening.builder.window_size_ms or 0,
        "timestamped": timestamped,
        "persistent": opening.persistent,
    }
    if codec.log_headers is None:
        return TimeOrderedWindow(opening.name, objects, rows, opening.key_serde, **about)
    store = TimeOrderedWindowWithHeaders(opening.name, objects, rows, opening.key_serde, **about)
    store.plain = TimeOrderedWindow(opening.name, PlainObjects(objects, timestamped=True), rows, opening.key_serde, **about)
    store.plain.indexable = False
    return store


def _outer_join(opening: _Opening) -> StateStore:
    options = opening.builder.options
    opening.environment.after_rollback(opening.changelog.clear)
    return OuterJoin(
        opening.name,
        opening.engine(),
        opening.changelog,
        opening.key_serde,
        resolve(options.get("left_serde"), opening.value_serde),
        resolve(options.get("right_serde"), opening.value_serde),
        persistent=opening.persistent,
        record_context=opening.record_context,
    )


def _suppress_buffer(opening: _Opening) -> StateStore:
    return SuppressBuffer(
        opening.name,
        opening.environment,
        opening.key_serde,
        opening.value_serde,
        send=opening.send,
        partition=opening.partition,
        persistent=opening.persistent,
        context_type=_snapshot_type(opening.record_context),
        exact_order=not opening.write_back,
        headers=bool(opening.builder.headers),
    )


def _join_grace_buffer(opening: _Opening) -> StateStore:
    opening.environment.after_rollback(opening.changelog.clear)
    return JoinGraceBuffer(
        opening.name,
        opening.environment,
        opening.changelog,
        opening.key_serde,
        opening.value_serde,
        persistent=opening.persistent,
        context_type=_snapshot_type(opening.record_context),
    )


def _snapshot_type(record_context: RecordContext) -> type[ContextSnapshot] | None:
    """Return the class of the task's context snapshots, so that buffered contexts are read back as the same class."""
    return type(record_context.snapshot()) if hasattr(record_context, "snapshot") else None


_MAKERS: dict[StoreKind, Callable[[_Opening], StateStore]] = {
    StoreKind.KEY_VALUE: partial(_open_key_value, kind=KeyValue, timestamped=False),
    StoreKind.TIMESTAMPED_KEY_VALUE: partial(_open_key_value, kind=TimestampedKeyValue, timestamped=True),
    StoreKind.LRU: _lru,
    StoreKind.VERSIONED: _versioned,
    StoreKind.WINDOW: partial(_open_window, timestamped=False),
    StoreKind.TIMESTAMPED_WINDOW: partial(_open_window, timestamped=True),
    StoreKind.SESSION: _session,
    StoreKind.TIME_ORDERED_WINDOW: _time_ordered_window,
    StoreKind.OUTER_JOIN: _outer_join,
    StoreKind.SUPPRESS_BUFFER: _suppress_buffer,
    StoreKind.JOIN_GRACE_BUFFER: _join_grace_buffer,
    StoreKind.SUBSCRIPTION: _subscription,
}
