"""Windowed groupings: aggregates per key and window. The keys of their tables are `Windowed(key, start, end)`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstreams_repl import serdes
from kstreams_repl.dsl.build_log import Handle, logged
from kstreams_repl.dsl.grouped_stream import AGGREGATE, REDUCE, KGroupedStream, table_options
from kstreams_repl.dsl.options import EmitStrategy, Materialized
from kstreams_repl.dsl.store_plans import session_store, sliding_store, window_store
from kstreams_repl.dsl.stream_base import check_callable, first_known
from kstreams_repl.dsl.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from kstreams_repl.errors import TopologyError
from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.getters import StoreGetter, StoreKindRead
from kstreams_repl.operators.stream_session_window_aggregate import StreamSessionWindowAggregate
from kstreams_repl.operators.stream_sliding_window_aggregate import StreamSlidingWindowAggregate
from kstreams_repl.operators.stream_window_aggregate import StreamWindowAggregate
from kstreams_repl.serdes.deferred import around
from kstreams_repl.topology.stores import StoreBuilder

if TYPE_CHECKING:
    from kstreams_repl.dsl.ktable import KTable

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
Merger = Callable[[Any, Any, Any], Any]
AnyWindows = TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows


def zero() -> int:
    """First value of a count."""
    return 0


def nothing() -> None:
    """First value of a reduce: there is none yet."""


def count_one(key: Any, value: Any, count: int) -> int:
    """One more record; a None value counts too in windows."""
    return count + 1


def add_counts(key: Any, one: int, other: int) -> int:
    """The count of two sessions that became one."""
    return one + other


def reducing(reducer: Callable[[Any, Any], Any]) -> Aggregator:
    """An aggregator whose first value is its first aggregate."""

    def aggregate(key: Any, value: Any, so_far: Any) -> Any:
        return value if so_far is None else reducer(so_far, value)

    return aggregate


class WindowedKStream(Handle):
    """What the windowed groupings share."""

    burns_store_number_in_count = True

    def __init__(self, grouped: KGroupedStream, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE) -> None:
        self._log = grouped._log
        self._grouped = grouped
        self._emit = emit

    @property
    def _on_close(self) -> bool:
        return self._emit is EmitStrategy.ON_WINDOW_CLOSE

    @logged
    def count(self, *, store: str | Materialized | None = None, name: str | None = None, **keep: Any) -> KTable:
        """How many records each key has in each window. Late records and None keys are dropped and counted as dropped.

        None values count too, except in sliding windows, which drop them.

        Args:
            store: name of the store, to query it by; or a `Materialized`.
            name: of the node.
            **keep: any of `retention=`, `caching=`, `logging=`, `key_serde=`, `persistent=`, `topic_config=`.
        """
        options = table_options(store, keep)
        if options is not None and options.name is None and self.burns_store_number_in_count:
            self._graph.new_store_name(AGGREGATE)  # Kafka Streams burns a number in this form of count
        options = options or Materialized()
        options = options if options.value_serde is not None else options.with_(value_serde=serdes.long)
        return self._table(zero, count_one, add_counts, options, AGGREGATE, name, count=True)

    @logged
    def reduce(
        self, reducer: Callable[[Any, Any], Any], *, store: str | Materialized | None = None, name: str | None = None, **keep: Any
    ) -> KTable:
        """Fold the values of each key in each window: `reducer(aggregate, value)`. Options as for `count`, and `value_serde=`."""
        check_callable(reducer, "reducer", "reduce")
        options = table_options(store, keep) or Materialized()
        options = options if options.value_serde is not None else options.with_(value_serde=self._grouped.value_serde)
        aggregator = reducing(reducer)

        def merge(key: Any, one: Any, other: Any) -> Any:
            return aggregator(key, other, one)

        return self._table(nothing, aggregator, merge, options, REDUCE, name)

    def emit_strategy(self, strategy: EmitStrategy) -> Any:
        """The same grouping that emits on each update (default) or once per window, when it closes."""
        return self._emit_strategy(EmitStrategy(strategy))

    @logged
    def _emit_strategy(self, strategy: EmitStrategy) -> Any:
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._emit = strategy
        return copy

    @abstractmethod
    def _aggregate_operator(
        self, store: str, initializer: Initializer, aggregator: Aggregator, merger: Merger | None, *, count: bool
    ) -> Operator: ...

    @abstractmethod
    def _store(self, options: Materialized, name: str, key_serde: Any) -> StoreBuilder: ...

    @abstractmethod
    def _window_serde(self, key_serde: Any) -> Any: ...

    def _table(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger | None,
        options: Materialized,
        prefix: str,
        name: str | None,
        *,
        count: bool = False,
    ) -> KTable:
        refuse_history(options)
        graph, grouped = self._graph, self._grouped
        store_name = options.name if options.name is not None else graph.new_store_name(prefix)
        node_name = graph.name_or_generate(name, prefix)
        key = first_known(options.key_serde, grouped.key_serde)
        store = self._store(options, store_name, key)
        operator = self._aggregate_operator(store_name, initializer, aggregator, merger, count=count)
        return grouped._build(node_name, operator, store, window_getter(store), self._window_serde(key), options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._grouped.name})"


def refuse_history(options: Materialized) -> None:
    """Window and session stores keep no versions.

    Raises:
        TopologyError: the options ask for a history.
    """
    if options.versioned:
        raise TopologyError(
            f"the windows of store {options.name!r} cannot have versions",
            hint="leave history= out; retention= says how long windows are kept",
            store=options.name,
        )


def window_getter(store: StoreBuilder) -> StoreGetter:
    """Reads rows of windowed tables by `Windowed` key."""
    return StoreGetter(store.name, StoreKindRead.WINDOW if store.window_size_ms is not None else StoreKindRead.SESSION)


class TimeWindowedKStream(WindowedKStream):
    """A grouping in tumbling, hopping or unlimited windows."""

    def __init__(self, grouped: KGroupedStream, windows: TimeWindows | UnlimitedWindows) -> None:
        super().__init__(grouped)
        self._windows = windows

    @logged
    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """Fold the values of each key in each window: `aggregator(key, value, aggregate)`. Options as for `count`, and
        `value_serde=`."""
        return self._aggregated(initializer, aggregator, None, store, name, keep)

    def _aggregated(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger | None,
        store: str | Materialized | None,
        name: str | None,
        keep: dict[str, Any],
    ) -> KTable:
        check_callable(initializer, "initializer", "aggregate")
        check_callable(aggregator, "aggregator", "aggregate")
        return self._table(initializer, aggregator, merger, table_options(store, keep) or Materialized(), AGGREGATE, name)

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream:
        """The same grouping that emits on each update (default) or once per window, when it closes.

        Raises:
            TopologyError: unlimited windows never close.
        """
        if isinstance(self._windows, UnlimitedWindows) and EmitStrategy(strategy) is EmitStrategy.ON_WINDOW_CLOSE:
            raise TopologyError(
                "unlimited windows never close, so nothing would be emitted",
                hint="emit on window update instead",
                node="emit_strategy()",
            )
        return super().emit_strategy(strategy)  # type: ignore[no-any-return]

    def _aggregate_operator(
        self, store: str, initializer: Initializer, aggregator: Aggregator, merger: Merger | None, *, count: bool
    ) -> Operator:
        return time_window_operator(self._windows, store, initializer, aggregator, emit_on_close=self._on_close, count=count)

    def _store(self, options: Materialized, name: str, key_serde: Any) -> StoreBuilder:
        return window_store(options, name, key_serde, options.value_serde, self._windows, on_close=self._on_close)

    def _window_serde(self, key_serde: Any) -> Any:
        return time_key_serde(key_serde, self._windows.size_ms)


class SlidingWindowedKStream(TimeWindowedKStream):
    """A grouping in sliding windows; None values are dropped."""

    burns_store_number_in_count = False

    def __init__(self, grouped: KGroupedStream, windows: SlidingWindows) -> None:
        WindowedKStream.__init__(self, grouped)
        self._sliding = windows

    def emit_strategy(self, strategy: EmitStrategy) -> SlidingWindowedKStream:
        """The same grouping that emits on each update (default) or once per window, when it closes."""
        return self._emit_strategy(EmitStrategy(strategy))  # type: ignore[no-any-return]

    def _aggregate_operator(
        self, store: str, initializer: Initializer, aggregator: Aggregator, merger: Merger | None, *, count: bool
    ) -> Operator:
        return StreamSlidingWindowAggregate(
            store,
            initializer,
            aggregator,
            self._sliding.time_difference_ms,
            self._sliding.grace_ms,
            emit_on_close=self._on_close,
            count=count,
        )

    def _store(self, options: Materialized, name: str, key_serde: Any) -> StoreBuilder:
        return sliding_store(options, name, key_serde, options.value_serde, self._sliding, on_close=self._on_close)

    def _window_serde(self, key_serde: Any) -> Any:
        return time_key_serde(key_serde, self._sliding.time_difference_ms)


class SessionWindowedKStream(WindowedKStream):
    """A grouping in sessions."""

    def __init__(self, grouped: KGroupedStream, windows: SessionWindows) -> None:
        super().__init__(grouped)
        self._windows = windows

    @logged
    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """Fold the values of each session: `aggregator(key, value, aggregate)`; sessions that meet: `merger(key, one, other)`.

        The merged sessions get a tombstone each before the new one is emitted. Options as for `count`, and `value_serde=`.
        """
        check_callable(initializer, "initializer", "aggregate")
        check_callable(aggregator, "aggregator", "aggregate")
        check_callable(merger, "merger", "aggregate")
        return self._table(initializer, aggregator, merger, table_options(store, keep) or Materialized(), AGGREGATE, name)

    def _aggregate_operator(
        self, store: str, initializer: Initializer, aggregator: Aggregator, merger: Merger | None, *, count: bool
    ) -> Operator:
        assert merger is not None
        return session_operator(self._windows, store, initializer, aggregator, merger, emit_on_close=self._on_close, count=count)

    def _store(self, options: Materialized, name: str, key_serde: Any) -> StoreBuilder:
        return session_store(options, name, key_serde, options.value_serde, self._windows, on_close=self._on_close)

    def _window_serde(self, key_serde: Any) -> Any:
        return session_key_serde(key_serde)


def time_key_serde(key_serde: Any, size_ms: int) -> Any:
    """The serde of `Windowed` keys of time windows, put off until the task is made if the inner one is the default."""
    return around(lambda inner: serdes.time_windowed(inner, size_ms), key_serde, "key")


def session_key_serde(key_serde: Any) -> Any:
    """The serde of `Windowed` keys of sessions."""
    return around(serdes.session_windowed, key_serde, "key")


def time_window_operator(
    windows: TimeWindows | UnlimitedWindows,
    store: str,
    initializer: Initializer,
    aggregator: Aggregator,
    *,
    emit_on_close: bool = False,
    count: bool = False,
) -> StreamWindowAggregate:
    """The operator of tumbling, hopping and unlimited windows."""
    unlimited = isinstance(windows, UnlimitedWindows)
    return StreamWindowAggregate(
        store,
        initializer,
        aggregator,
        windows.size_ms,
        windows.size_ms if isinstance(windows, UnlimitedWindows) else windows.advance_ms,
        windows.grace_ms,
        unlimited_start_ms=windows.start_ms if unlimited else None,  # type: ignore[union-attr]
        emit_on_close=emit_on_close,
        count=count,
    )


def session_operator(
    windows: SessionWindows,
    store: str,
    initializer: Initializer,
    aggregator: Aggregator,
    merger: Merger,
    *,
    emit_on_close: bool = False,
    count: bool = False,
) -> StreamSessionWindowAggregate:
    """The operator of sessions."""
    return StreamSessionWindowAggregate(
        store, initializer, aggregator, merger, windows.gap_ms, windows.grace_ms, emit_on_close=emit_on_close, count=count
    )


def windowed(
    grouped: KGroupedStream, windows: AnyWindows
) -> TimeWindowedKStream | SlidingWindowedKStream | SessionWindowedKStream:
    """The grouping in the given kind of windows.

    Raises:
        TopologyError: it is no kind of windows for aggregates.
    """
    if isinstance(windows, (TimeWindows, UnlimitedWindows)):
        return TimeWindowedKStream(grouped, windows)
    if isinstance(windows, SlidingWindows):
        return SlidingWindowedKStream(grouped, windows)
    if isinstance(windows, SessionWindows):
        return SessionWindowedKStream(grouped, windows)
    raise TopologyError(
        f"windowed_by() takes TimeWindows, SlidingWindows, SessionWindows or UnlimitedWindows, not {windows!r}",
        hint="for example TimeWindows.of_size(60_000, grace=10_000)",
    )
