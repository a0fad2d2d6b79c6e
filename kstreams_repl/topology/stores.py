"""Descriptions of state stores: what a topology knows of a store before any task opens it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kstreams_repl.errors import TopologyError, did_you_mean

IN_MEMORY = "in_memory"
"""The value of ``default.dsl.store`` that keeps stores in memory."""
NO_END = 2**63 - 1
"""Size of a window without an end."""
HISTORY_SUFFIX = ".history"
"""Behind a versioned store's name: where a task keeps its older versions."""


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


@dataclass(frozen=True, slots=True)
class StoreBuilder:
    """One store to be opened in each task of the sub-topology it is connected to.

    Attributes:
        name: unique in the topology; the changelog is ``<application.id>-<name>-changelog``.
        kind: which store.
        key_serde, value_serde: Serde objects (`kstreams_repl.serdes`); None = the application's default.
        caching: put a record cache over it (sized by ``statestore.cache.max.bytes``, off when that is 0).
        logging: keep a changelog topic.
        persistent: False keeps it in memory only: filled from its changelog at every start.
        retention_ms: window, session and join stores; history retention of versioned ones.
        window_size_ms: window stores.
        retain_duplicates: stream-stream join windows keep several values for one key and time.
        max_entries: LRU stores.
        topic_config: extra or overriding changelog topic settings.
        source_topic: set when the changelog is a source topic (optimised tables, read-only stores).
        options: what one kind alone needs.
        follows_default: the user left `persistent` open; ``default.dsl.store`` of the application decides.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", _kind(self.name, self.kind))
        for what, low in (("retention_ms", 0), ("window_size_ms", 0), ("max_entries", 1)):
            number = getattr(self, what)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < low):
                raise TopologyError(
                    f"store {self.name!r} has {what}={number!r}", hint=f"give a whole number of {low} or more", store=self.name
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
                f"store {self.name!r} keeps windows of {self.window_size_ms} ms for {self.retention_ms} ms only",
                hint=f"use retention_ms={self.window_size_ms} or more",
                store=self.name,
            )

    def on_disk(self, default_store: str) -> bool:
        """Whether the store is kept on disk in an application with this ``default.dsl.store``."""
        return self.persistent and not (self.follows_default and default_store == IN_MEMORY)

    def with_(self, **changes: Any) -> StoreBuilder:
        """A copy with the given attributes changed."""
        return replace(self, **changes)


def _kind(name: str, kind: Any) -> StoreKind:
    try:
        return StoreKind(kind)
    except ValueError:
        raise TopologyError(
            f"store {name!r} is of no known kind: {kind!r}",
            hint=did_you_mean(str(kind), list(StoreKind)) or "take one of StoreKind",
            store=name,
        ) from None
