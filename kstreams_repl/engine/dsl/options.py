"""Options that several operators share: the store of a table, when windows emit, the name of a branch, the limits of suppress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypedDict, Unpack

from kstreams_repl.engine import serdes
from kstreams_repl.engine.call_checks import spelled_out
from kstreams_repl.engine.serdes.deferred import DeferredSerde
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.engine.topology.store_options import CachedAndLogged, check_options, common, describe_options, option
from kstreams_repl.system.durations import Millis, as_millis
from kstreams_repl.system.errors import TopologyError


class SourceOptions(TypedDict, total=False):
    """The fields of `Materialized` as keyword arguments of an operator that has serdes of its own; None = the default."""

    caching: bool | None
    logging: bool | None
    history: Millis | None
    persistent: bool | None
    topic_config: Mapping[str, str] | None


class TableOptions(SourceOptions, total=False):
    """The fields of `Materialized` as keyword arguments of an operator whose table has no windows."""

    key_serde: object
    value_serde: object


class WindowOptions(TypedDict, total=False):
    """The fields of `Materialized` as keyword arguments of an operator whose table has windows."""

    key_serde: object
    value_serde: object
    caching: bool | None
    logging: bool | None
    retention: Millis | None
    persistent: bool | None
    topic_config: Mapping[str, str] | None


class StreamJoinOptions(TypedDict, total=False):
    """Options of the stores of a stream-stream join as keyword arguments; None = the default."""

    store: str | None
    key_serde: object
    value_serde: object
    other_value_serde: object
    logging: bool | None
    persistent: bool | None


class StoreOptions(TableOptions, total=False):
    """All of them."""

    retention: Millis | None


def _checked_name(name: str, store: object) -> str:
    return validate_name(store, "store")


def _checked_time(name: str, duration: object) -> int:
    return as_millis(duration, name)


def _checked_serde(name: str, serde: object) -> object:
    return serde if isinstance(serde, DeferredSerde) else serdes.resolve(serde)


@dataclass(frozen=True, slots=True)
class Materialized(CachedAndLogged):
    """The store of a table. Most operators take these as keyword arguments; a `Materialized` can also be given as `store=`.

    `SourceOptions`, `TableOptions` and `WindowOptions` name the fields that operators take.
    """

    name: str | None = option("name of the store; None = generated, and not queryable by name", None, _checked_name)
    key_serde: Any = option("serde of its keys; None = inherited, else the application's default", None, _checked_serde)
    value_serde: Any = option("serde of its values; None = inherited, else the application's default", None, _checked_serde)
    caching: bool = common("caching", True)
    logging: bool = common("logging", True)
    retention: Millis | None = option(
        'how long windows are kept (ms, timedelta or "30 s"); None = as long as they can change', None, _checked_time, "windows, sessions"
    )
    history: Millis | None = option(
        'makes a versioned store that keeps this much history (ms, timedelta or "30 s")', None, _checked_time, "tables without windows"
    )
    persistent: bool | None = common("persistent", None, "; None = `default.dsl.store` decides")
    topic_config: Mapping[str, str] = common("topic_config", {})
    headers: bool | None = common("headers", None)

    def __post_init__(self) -> None:
        check_options(self)
        if self.history is not None and self.name is None:
            raise TopologyError("a versioned store needs a name", hint='give store="name" together with history=')

    @property
    def versioned(self) -> bool:
        return self.history is not None

    @property
    def retention_ms(self) -> int | None:
        """Return `retention` in milliseconds."""
        return None if self.retention is None else as_millis(self.retention, "retention")

    @property
    def history_ms(self) -> int | None:
        """Return `history` in milliseconds."""
        return None if self.history is None else as_millis(self.history, "history")

    @classmethod
    def as_(cls, store: str | StoreBuilder) -> Materialized:
        """Return options with a store of that name, or with the settings of a supplier of `Stores`.

        Args:
            store: a name, or the result of a function of `Stores`, of which name, retention or history, and persistence are used.

        Example:
            >>> import kstreams_repl as ks
            >>> options = ks.Materialized.as_("counts").with_value_serde("long").with_caching_disabled()
            >>> ks.Materialized.as_(ks.Stores.in_memory_key_value_store("counts")).persistent
            False
        """
        if not isinstance(store, StoreBuilder):
            return cls(store)
        history = store.retention_ms if store.kind is StoreKind.VERSIONED else None
        retention = None if store.kind is StoreKind.VERSIONED else store.retention_ms
        options = cls(store.name, store.key_serde, store.value_serde, retention=retention, history=history, persistent=store.persistent)
        return replace(options, headers=store.headers)

    def with_key_serde(self, serde: object) -> Materialized:
        """Return a copy with this key serde.

        Example:
            >>> import kstreams_repl as ks
            >>> options = ks.Materialized.as_("counts").with_key_serde("string")
        """
        return self.with_(key_serde=serde)

    def with_value_serde(self, serde: object) -> Materialized:
        """Return a copy with this value serde.

        Example:
            >>> import kstreams_repl as ks
            >>> options = ks.Materialized.as_("counts").with_value_serde("long")
        """
        return self.with_(value_serde=serde)

    def with_retention(self, retention: Millis) -> Materialized:
        """Return a copy that keeps windows for `retention` (ms, timedelta or "30 s").

        Example:
            >>> import kstreams_repl as ks
            >>> options = ks.Materialized.as_("counts").with_retention(3_600_000)
        """
        return self.with_(retention=retention)

    @spelled_out
    def with_(self, *, name: str | None = None, **store_options: Unpack[StoreOptions]) -> Materialized:
        """Return a copy with the given attributes changed; None leaves an attribute unchanged. Arguments as those of
        `Materialized`.

        Example:
            >>> import kstreams_repl as ks
            >>> options = ks.Materialized("counts").with_(caching=False)
        """
        return materialized(self if name is None else replace(self, name=name), store_options) or self


describe_options(Materialized)


def materialized(store: str | Materialized | None, options: SourceOptions | WindowOptions) -> Materialized | None:
    """Return the keyword arguments of a table operator as one value; None if none was given (Kafka Streams' call without
    `Materialized`)."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if isinstance(store, Materialized):
        return replace(store, **given) if given else store
    if store is None and not given:
        return None
    if store is not None and not isinstance(store, str):
        raise TopologyError(f"expected a name or a Materialized as store=, got {store!r}", hint='store="counts"')
    return Materialized(name=store, **given)


def with_value_serde(options: Materialized | None, serde: object) -> Materialized:
    """Return the options, or the defaults, with this value serde unless they have one."""
    options = options or Materialized()
    return options if options.value_serde is not None else options.with_(value_serde=serde)


class EmitStrategy(StrEnum):
    """When a windowed aggregate emits: on every update, or once when the window closes (KIP-825)."""

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"

    @staticmethod
    def on_window_close() -> EmitStrategy:
        """Emit once per window, when it closes.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.EmitStrategy.on_window_close().name
            'ON_WINDOW_CLOSE'
        """
        return EmitStrategy.ON_WINDOW_CLOSE

    @staticmethod
    def on_window_update() -> EmitStrategy:
        """Emit on every update of a window.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.EmitStrategy.on_window_update().name
            'ON_WINDOW_UPDATE'
        """
        return EmitStrategy.ON_WINDOW_UPDATE

    @classmethod
    def _missing_(cls, value: object) -> EmitStrategy:
        raise TopologyError(
            f"expected an EmitStrategy, got {value!r}",
            hint="EmitStrategy.ON_WINDOW_UPDATE or EmitStrategy.ON_WINDOW_CLOSE",
            node="emit_strategy()",
        )


@dataclass(frozen=True, slots=True)
class Branched:
    """Options of one branch of `split()`.

    Attributes:
        name: suffix after the splitter's name in the node's name; None = the branch's number.
        with_function: (stream) -> the stream that replaces the branch in the result (None omits it).
        with_consumer: (stream) -> nothing; the branch is not in the result.
    """

    name: str | None = None
    with_function: Callable[[Any], Any] | None = None
    with_consumer: Callable[[Any], None] | None = None

    @classmethod
    def as_(cls, name: str) -> Branched:
        """Return options with the name of a branch: `Branched(name)`.

        Example:
            >>> import kstreams_repl as ks
            >>> long_words = ks.Branched.as_("long")
        """
        return cls(name)

    def with_name(self, name: str) -> Branched:
        """Return a copy with this name.

        Example:
            >>> import kstreams_repl as ks
            >>> long_words = ks.Branched().with_name("long")
        """
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class Suppressed:
    """How long `KTable.suppress` buffers updates, and the limits of its buffer.

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
        """Emit one final result per window, when stream time passes its end and grace. A full buffer stops the application.

        Args:
            max_records, max_bytes: limits of the buffer; None: unlimited.
            name: name of the node; its store is ``<name>-store``.
            logging, topic_config: whether the buffer has a changelog, and the topic's settings.

        Example:
            >>> import kstreams_repl as ks
            >>> finals = ks.Suppressed.until_window_closes(max_records=100_000)
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
        """Emit at most one update per key and `limit` of stream time. A full buffer emits its oldest entry early, or stops the
        application.

        Args:
            limit: how long an update is buffered (ms, timedelta or "30 s").
            max_records, max_bytes: limits of the buffer; None: unlimited.
            shut_down_when_full: stop the application instead of emitting early.
            name: name of the node; its store is ``<name>-store``.
            logging, topic_config: whether the buffer has a changelog, and the topic's settings.

        Example:
            >>> import kstreams_repl as ks
            >>> slower = ks.Suppressed.until_time_limit(5_000)
        """
        _check_bounds(max_records, max_bytes)
        wait = as_millis(limit, "limit")
        return cls(wait, max_records, max_bytes, shut_down_when_full, _named(name), logging, dict(topic_config or {}))

    def with_name(self, name: str) -> Suppressed:
        """Return a copy with this name for the node; its store is ``<name>-store``.

        Example:
            >>> import kstreams_repl as ks
            >>> finals = ks.Suppressed.until_window_closes().with_name("finals")
        """
        return replace(self, name=_named(name))


def _named(name: str | None) -> str | None:
    return None if name is None else validate_name(name, "node")


def _check_bounds(max_records: int | None, max_bytes: int | None) -> None:
    for what, bound in (("max_records", max_records), ("max_bytes", max_bytes)):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise TopologyError(f"{what} must be a whole number >= 0, got {bound!r}", hint="leave it out for an unbounded buffer")
        if bound is not None and bound < 0:
            raise TopologyError(f"{what} must be a whole number >= 0, got {bound}", hint="leave it out for an unbounded buffer")
