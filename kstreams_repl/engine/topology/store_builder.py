"""Descriptions of state stores: what a topology knows about a store before a task opens it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kstreams_repl.system.errors import TopologyError, did_you_mean

IN_MEMORY = "in_memory"
"""The value of ``default.dsl.store`` that keeps stores in memory."""
HEADERS = "HEADERS"
"""The value of ``dsl.store.format`` with which stores of the DSL keep headers."""
NO_END = 2**63 - 1
"""Size of a window without an end."""
HISTORY_SUFFIX = ".history"
"""Suffix of the store in which a task keeps the older versions of a versioned store."""


class StoreKind(StrEnum):
    KEY_VALUE = "key-value"
    TIMESTAMPED_KEY_VALUE = "timestamped-key-value"
    LRU = "lru"
    VERSIONED = "versioned"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped-window"
    SESSION = "session"
    # private to operators
    TIME_ORDERED_WINDOW = "time-ordered-window"      # (time, seq, key) order: emit-final aggregates
    OUTER_JOIN = "outer-join"                        # shared store of left/outer stream-stream joins
    SUPPRESS_BUFFER = "suppress-buffer"
    JOIN_GRACE_BUFFER = "join-grace-buffer"          # stream side of a stream-table join with grace
    SUBSCRIPTION = "subscription"                    # foreign-key join


KINDS_WITH_HEADERS = frozenset(
    {StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW, StoreKind.SESSION}
)


@dataclass(frozen=True, slots=True)
class StoreBuilder:
    """Describes one store, which is opened in each task of the sub-topology it is connected to.

    Attributes:
        name: unique in the topology; the changelog is ``<application.id>-<name>-changelog``.
        kind: kind of store.
        key_serde, value_serde: Serde objects (`kstreams_repl.engine.serdes`); None = the application's default.
        caching: whether it has a record cache (sized by ``statestore.cache.max.bytes``, off if that is 0).
        logging: whether it has a changelog topic.
        persistent: False: kept in memory only, and restored from its changelog at every start.
        retention_ms: retention of window, session and join stores; history retention of versioned stores.
        window_size_ms: window size of window stores.
        retain_duplicates: whether several values per key and time are kept (windows of stream-stream joins).
        max_entries: capacity of LRU stores.
        topic_config: changelog topic settings that add to or override the defaults.
        source_topic: the source topic that serves as changelog (optimised tables, read-only stores); None otherwise.
        options: options of a single kind.
        follows_default: whether the user left `persistent` open, so that the application's ``default.dsl.store`` decides.
        headers: whether a row keeps the headers that it was put with (KIP-1271): values are `ValueTimestampHeaders`, in a session store
            `AggregationWithHeaders`. For timestamped stores and session stores. None: the application's ``dsl.store.format`` decides.
    """

    name: str
    kind: StoreKind
    key_serde: Any = None
    value_serde: Any = None
    caching: bool = False
    logging: bool = True
    persistent: bool = True
    retention_ms: int | None = None
    window_size_ms: int | None = None
    retain_duplicates: bool = False
    max_entries: int | None = None
    topic_config: dict[str, str] = field(default_factory=dict)
    source_topic: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    follows_default: bool = False
    headers: bool | None = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", _kind(self.name, self.kind))
        for what, low in (("retention_ms", 0), ("window_size_ms", 0), ("max_entries", 1)):
            number = getattr(self, what)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < low):
                raise TopologyError(
                    f"{what} of store {self.name!r} must be a whole number >= {low}, got {number!r}",
                    hint="leave it out for the default", store=self.name,
                )
        if self.headers and self.kind not in KINDS_WITH_HEADERS:
            raise TopologyError(
                f"store {self.name!r} is a {self.kind} store, which keeps no headers",
                hint=f"take one of {', '.join(sorted(KINDS_WITH_HEADERS))}", store=self.name,
            )
        if self.window_size_ms is None and self.kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW):
            raise TopologyError(
                f"window store {self.name!r} has no window size: its windows would end where they start",
                hint="give window_size_ms= and retention_ms=",
                store=self.name,
            )
        size = self.window_size_ms or 0
        if self.retention_ms is not None and self.retention_ms < size < NO_END:
            raise TopologyError(
                f"retention_ms of store {self.name!r} must be >= its window size ({self.window_size_ms} ms), got {self.retention_ms} ms",
                hint=f"use retention_ms={self.window_size_ms} or more",
                store=self.name,
            )

    def with_caching_enabled(self) -> StoreBuilder:
        """Return a copy with a record cache over the store.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_key_value_store("seen").with_caching_enabled()
        """
        return replace(self, caching=True)

    def with_caching_disabled(self) -> StoreBuilder:
        """Return a copy without a record cache.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_key_value_store("seen").with_caching_disabled()
        """
        return replace(self, caching=False)

    def with_logging_enabled(self, topic_config: dict[str, str] | None = None) -> StoreBuilder:
        """Return a copy with a changelog topic; `topic_config`: settings of the topic (None: the defaults).

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_key_value_store("seen").with_logging_enabled({"segment.ms": "60000"})
        """
        return replace(self, logging=True, topic_config=dict(topic_config or {}))

    def with_logging_disabled(self) -> StoreBuilder:
        """Return a copy without a changelog topic: after a crash the store starts empty.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_key_value_store("seen").with_logging_disabled()
        """
        return replace(self, logging=False, topic_config={})

    def on_disk(self, default_store: str) -> bool:
        """Return whether the store is kept on disk in an application with this ``default.dsl.store``.

        Args:
            default_store: the value of ``default.dsl.store``: "rocksDB" or "in_memory".

        Example:
            >>> import kstreams_repl as ks
            >>> ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE).on_disk("rocksDB")
            True
        """
        return self.persistent and not (self.follows_default and default_store == IN_MEMORY)


def in_application(builder: StoreBuilder, default_store: str, store_format: str) -> StoreBuilder:
    """Return the builder with ``default.dsl.store`` and ``dsl.store.format`` applied. Stores of the DSL that are kept in memory have no
    headers, as in Kafka Streams.
    """
    persistent = builder.on_disk(default_store)
    headers = builder.headers if builder.headers is not None else persistent and store_format.upper() == HEADERS
    if (persistent, headers) == (builder.persistent, builder.headers):
        return builder
    return replace(builder, persistent=persistent, headers=headers)


def _kind(name: str, kind: Any) -> StoreKind:
    try:
        return StoreKind(kind)
    except ValueError:
        raise TopologyError(
            f"expected a StoreKind for store {name!r}, got {kind!r}",
            hint=did_you_mean(str(kind), list(StoreKind)) or "take one of StoreKind",
            store=name,
        ) from None
