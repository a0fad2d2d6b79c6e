"""Descriptions of state stores: what a topology knows about a store before a task opens it. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kstreams_repl.engine.topology.store_options import CachedAndLogged, check_options, common, describe_options, option
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
class StoreBuilder(CachedAndLogged):
    """Describes one store, which is opened in each task of the sub-topology it is connected to."""

    name: str = field(metadata={"meaning": "unique in the topology; the changelog is ``<application.id>-<name>-changelog``"})
    kind: StoreKind = field(metadata={"meaning": "kind of store"})
    key_serde: Any = option("serde of its keys; None = the application's default", None)
    value_serde: Any = option("serde of its values; None = the application's default", None)
    caching: bool = common("caching", False)
    logging: bool = common("logging", True)
    persistent: bool = common("persistent", True)
    retention_ms: int | None = option("retention of window, session and join stores; history retention of versioned stores", None)
    window_size_ms: int | None = option("window size of window stores", None)
    retain_duplicates: bool = option("whether several values per key and time are kept (windows of stream-stream joins)", False)
    max_entries: int | None = option("capacity of LRU stores", None)
    topic_config: Mapping[str, str] = common("topic_config", {})
    source_topic: str | None = option(
        "the source topic that serves as changelog (optimised tables, read-only stores); None otherwise", None
    )
    options: dict[str, object] = option("options of a single kind", {})
    follows_default: bool = option(
        "whether the user left `persistent` open, so that the application's ``default.dsl.store`` decides", False
    )
    headers: bool | None = common(
        "headers", False, "; values are then `ValueTimestampHeaders`, in a session store `AggregationWithHeaders`"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", _kind(self.name, self.kind))
        check_options(self)
        for what, low in (("retention_ms", 0), ("window_size_ms", 0), ("max_entries", 1)):
            number = getattr(self, what)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < low):
                raise TopologyError(
                    f"{what} of store {self.name!r} must be a whole number >= {low}, got {number!r}",
                    hint="leave it out for the default", store=self.name,
                )
        if self.headers and self.kind not in KINDS_WITH_HEADERS and self.kind is not StoreKind.SUPPRESS_BUFFER:
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


describe_options(StoreBuilder)


def in_application(builder: StoreBuilder, default_store: str, store_format: str) -> StoreBuilder:
    """Return the builder with ``default.dsl.store`` and ``dsl.store.format`` applied. Stores of the DSL that are kept in memory have no
    headers, as in Kafka Streams, except the buffer of `suppress`.
    """
    persistent = builder.on_disk(default_store)
    keeps = persistent or builder.kind is StoreKind.SUPPRESS_BUFFER
    headers = builder.headers if builder.headers is not None else keeps and store_format.upper() == HEADERS
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
