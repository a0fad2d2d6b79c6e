"""Options that several operators share: how a table is kept, when windows emit, what a branch is called, what suppress may
buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.dsl.windows import Millis, not_negative
from kstreams_repl.errors import TopologyError
from kstreams_repl.serdes.deferred import DeferredSerde
from kstreams_repl.topology.names import validate_name


@dataclass(frozen=True, slots=True)
class Materialized:
    """How a table is kept. Most operators take these as keyword arguments; a `Materialized` can also be given as `store=`.

    Attributes:
        name: of the store; None = generated, and not to be queried by name.
        key_serde, value_serde: None = inherited, else the application's defaults.
        caching: keep a record cache over the store, which also collapses updates between commits.
        logging: keep a changelog topic.
        retention_ms: how long windows are kept; None = as long as they can change.
        history_ms: makes a versioned store that keeps this much history.
        persistent: False keeps the store in memory, filled from its changelog at every start; True on disk; None as
            ``default.dsl.store`` of the application says.
        topic_config: settings of the changelog topic.
    """

    name: str | None = None
    key_serde: Any = None
    value_serde: Any = None
    caching: bool = True
    logging: bool = True
    retention_ms: int | None = None
    history_ms: int | None = None
    persistent: bool | None = None
    topic_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name is not None:
            validate_name(self.name, "store")
        for part in ("key_serde", "value_serde"):
            serde = getattr(self, part)
            if serde is not None and not isinstance(serde, DeferredSerde):
                object.__setattr__(self, part, serdes.resolve(serde))
        for what in ("retention", "history"):
            if getattr(self, f"{what}_ms") is not None:
                object.__setattr__(self, f"{what}_ms", not_negative(getattr(self, f"{what}_ms"), what))
        if not isinstance(self.topic_config, Mapping):
            raise TopologyError(f"topic_config= takes a dict of topic settings, not {self.topic_config!r}", hint='{"segment.ms": "60000"}')
        if self.history_ms is not None and self.name is None:
            raise TopologyError("a versioned store needs a name", hint='give store="name" together with history=')

    @property
    def kept(self) -> dict[str, Any]:
        """How a `StoreBuilder` says it."""
        return {"persistent": self.persistent is not False, "follows_default": self.persistent is None}

    @property
    def versioned(self) -> bool:
        return self.history_ms is not None

    def with_(self, **changes: Any) -> Materialized:
        """A copy with the given attributes changed."""
        return replace(self, **changes)


def materialized(
    store: str | Materialized | None,
    *,
    key_serde: Any = None,
    value_serde: Any = None,
    caching: bool | None = None,
    logging: bool | None = None,
    retention: Millis | None = None,
    history: Millis | None = None,
    persistent: bool | None = None,
    topic_config: Mapping[str, str] | None = None,
) -> Materialized | None:
    """The keyword arguments of a table operator as one value; None when none was given (Kafka Streams' call without
    `Materialized`)."""
    changes = {
        "key_serde": key_serde,
        "value_serde": value_serde,
        "caching": caching,
        "logging": logging,
        "retention_ms": None if retention is None else not_negative(retention, "retention"),
        "history_ms": None if history is None else not_negative(history, "history"),
        "persistent": persistent,
        "topic_config": topic_config,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    if isinstance(store, Materialized):
        return store.with_(**given) if given else store
    if store is None and not given:
        return None
    if store is not None and not isinstance(store, str):
        raise TopologyError(f"store= takes a name or a Materialized, not {store!r}", hint='store="counts"')
    return Materialized(name=store, **given)


class EmitStrategy(StrEnum):
    """When a windowed aggregate emits: on every update, or once when the window closes (KIP-825)."""

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"

    @classmethod
    def _missing_(cls, value: object) -> EmitStrategy:
        raise TopologyError(
            f"there is no emit strategy {value!r}",
            hint="EmitStrategy.ON_WINDOW_UPDATE or EmitStrategy.ON_WINDOW_CLOSE",
            node="emit_strategy()",
        )


@dataclass(frozen=True, slots=True)
class Branched:
    """What becomes of one branch of `split()`.

    Attributes:
        name: goes after the splitter's name in the node's name; None = the branch's number.
        with_function: (stream) -> stream put into the result instead of the branch (None leaves it out).
        with_consumer: (stream) -> nothing; the branch is not put into the result.
    """

    name: str | None = None
    with_function: Callable[[Any], Any] | None = None
    with_consumer: Callable[[Any], None] | None = None


@dataclass(frozen=True, slots=True)
class Suppressed:
    """How long `KTable.suppress` holds updates back, and what its buffer may take.

    Example:
        >>> Suppressed.until_window_closes().shut_down_when_full
        True
        >>> Suppressed.until_time_limit(1000, max_records=5).max_records
        5
    """

    wait_ms: int | None
    max_records: int | None = None
    max_bytes: int | None = None
    shut_down_when_full: bool = False
    name: str | None = None
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def until_window_closes(
        cls,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        name: str | None = None,
        logging: bool = True,
        topic_config: Mapping[str, str] | None = None,
    ) -> Suppressed:
        """One final result per window, when stream time passes its end and grace. A full buffer stops the application.

        Args:
            max_records, max_bytes: bounds of the buffer; none by default.
            name: of the node; its store is ``<name>-store``.
            logging, topic_config: the buffer's changelog.
        """
        _check_bounds(max_records, max_bytes)
        return cls(None, max_records, max_bytes, True, _named(name), logging, dict(topic_config or {}))

    @classmethod
    def until_time_limit(
        cls,
        limit: Millis,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        shut_down_when_full: bool = False,
        name: str | None = None,
        logging: bool = True,
        topic_config: Mapping[str, str] | None = None,
    ) -> Suppressed:
        """At most one update per key and `limit` of stream time. A full buffer emits its oldest entry early, or stops the
        application.

        Args:
            limit: how long an update is held.
            max_records, max_bytes: bounds of the buffer; none by default.
            shut_down_when_full: stop instead of emitting early.
            name: of the node; its store is ``<name>-store``.
            logging, topic_config: the buffer's changelog.
        """
        _check_bounds(max_records, max_bytes)
        wait = not_negative(limit, "limit")
        return cls(wait, max_records, max_bytes, shut_down_when_full, _named(name), logging, dict(topic_config or {}))


def _named(name: str | None) -> str | None:
    return None if name is None else validate_name(name, "node")


def _check_bounds(max_records: int | None, max_bytes: int | None) -> None:
    for what, bound in (("max_records", max_records), ("max_bytes", max_bytes)):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise TopologyError(f"{what} must be a whole number, not {bound!r}", hint="leave it out for an unbounded buffer")
        if bound is not None and bound < 0:
            raise TopologyError(f"{what} must not be negative, got {bound}", hint="leave it out for an unbounded buffer")
