"""Windowed groupings: aggregates per key and window. The keys of their tables are `Windowed(key, start, end)`."""

from __future__ import annotations

from typing import Any, Generic, Self, Unpack

from kstreams_repl.engine import serdes
from kstreams_repl.engine.dsl.graph.call_log import Handle, logged
from kstreams_repl.engine.dsl.graph.store_plans import windowed_store
from kstreams_repl.engine.dsl.groupings.grouped_stream import AGGREGATE, REDUCE, GroupedStream
from kstreams_repl.engine.dsl.groupings.windows import AnyWindows, SessionWindows, SlidingWindows, UnlimitedWindows
from kstreams_repl.engine.dsl.options import EmitStrategy, Materialized, WindowOptions, materialized, with_value_serde
from kstreams_repl.engine.dsl.streams.stream_base import check_callable, first_known
from kstreams_repl.engine.dsl.tables.table_operators import TableT
from kstreams_repl.engine.operators.aggregates.aggregators import add_counts, count_one, nothing, reducing, zero
from kstreams_repl.engine.operators.aggregates.stream_session_window_aggregate import StreamSessionWindowAggregate
from kstreams_repl.engine.operators.aggregates.stream_sliding_window_aggregate import StreamSlidingWindowAggregate
from kstreams_repl.engine.operators.aggregates.stream_window_aggregate import StreamWindowAggregate
from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.operators.tables.value_getters import StoreGetter, StoreKindRead
from kstreams_repl.engine.serdes.deferred import around
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import Aggregator, Initializer, Merger, Reducer


class WindowedStream(Handle, Generic[TableT]):
    """Base class of the windowed groupings."""

    def __init__(self, grouped: GroupedStream[TableT], windows: AnyWindows) -> None:
        self._log = grouped._log
        self._grouped = grouped
        self._windows = windows
        self._emit = EmitStrategy.ON_WINDOW_UPDATE

    @property
    def _on_close(self) -> bool:
        return self._emit is EmitStrategy.ON_WINDOW_CLOSE

    @logged
    def count(
        self,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[WindowOptions],
    ) -> TableT:
        """Count the records of each key in each window. Late records and None keys are dropped, and counted as dropped.

        None values count too, except in sliding windows, which drop them.

        Args:
            store: name of the store, for queries; or a `Materialized`.
            name: name of the node.
            key_serde, value_serde, caching, logging, retention, persistent, topic_config: options of the table's store, as in
                `Materialized`; None = its default.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> grouped = builder.stream("words", key_serde="string", value_serde="string").group_by_key()
            >>> windowed = grouped.windowed_by(ks.TimeWindows.of_size(60_000))
            >>> counts = windowed.count(store="counts-per-minute")
        """
        given = materialized(store, store_options)
        if given is not None and given.name is None and not isinstance(self._windows, SlidingWindows):
            self._graph.new_store_name(AGGREGATE)  # Kafka Streams consumes a number in this form of count
        options = with_value_serde(given, serdes.long)
        return self._table(zero, count_one, add_counts, options, AGGREGATE, name, count=True)

    @logged
    def reduce(
        self,
        reducer: Reducer,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[WindowOptions],
    ) -> TableT:
        """Fold the values of each key in each window: `reducer(aggregate, value)`. Keyword arguments as for `count`.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> grouped = builder.stream("words", key_serde="string", value_serde="string").group_by_key()
            >>> windowed = grouped.windowed_by(ks.TimeWindows.of_size(60_000))
            >>> longest = windowed.reduce(lambda one, other: max(one, other, key=len), store="longest")
        """
        check_callable(reducer, "reducer", "reduce")
        given = materialized(store, store_options)
        options = with_value_serde(given, self._grouped.value_serde)
        aggregator = reducing(reducer)

        def merge(key: object, one: object, other: object) -> object:
            return aggregator(key, other, one)

        return self._table(nothing, aggregator, merge, options, REDUCE, name)

    @logged
    def emit_strategy(self, strategy: EmitStrategy) -> Self:
        """Return the same grouping that emits on each update (default) or once per window, when it closes.

        Args:
            strategy: `EmitStrategy.ON_WINDOW_UPDATE` or `EmitStrategy.ON_WINDOW_CLOSE`.

        Raises:
            TopologyError: not an `EmitStrategy`, or unlimited windows, which never close, with `ON_WINDOW_CLOSE`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> grouped = builder.stream("words", key_serde="string", value_serde="string").group_by_key()
            >>> windowed = grouped.windowed_by(ks.SessionWindows.of_inactivity_gap(60_000))
            >>> counts = windowed.emit_strategy(ks.EmitStrategy.ON_WINDOW_CLOSE).count(store="counts")
        """
        emit = EmitStrategy(strategy)
        if isinstance(self._windows, UnlimitedWindows) and emit is EmitStrategy.ON_WINDOW_CLOSE:
            raise TopologyError("unlimited windows never close, so nothing would be emitted", hint="emit on window update instead")
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._emit = emit
        return copy

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
    ) -> TableT:
        refuse_history(options)
        graph, grouped = self._graph, self._grouped
        store_name = options.name if options.name is not None else graph.new_store_name(prefix)
        node_name = graph.name_or_generate(name, prefix)
        key = first_known(options.key_serde, grouped.key_serde)
        store = windowed_store(options, store_name, key, self._windows, on_close=self._on_close)
        operator = windowed_operator(
            self._windows, store_name, initializer, aggregator, merger, emit_on_close=self._on_close, count=count
        )
        return grouped._build(node_name, operator, store, window_getter(store), windowed_key_serde(key, self._windows), options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._grouped.name})"


def refuse_history(options: Materialized) -> None:
    """Raise if a history is requested: window and session stores keep no versions.

    Raises:
        TopologyError: the options have a history.
    """
    if options.versioned:
        raise TopologyError(
            f"expected no history= for windows: store {options.name!r} keeps no versions",
            hint="leave history= out; retention= sets how long windows are kept",
            store=options.name,
        )


def window_getter(store: StoreBuilder) -> StoreGetter:
    """Return a getter of the rows of windowed tables by `Windowed` key."""
    return StoreGetter(store.name, StoreKindRead.WINDOW if store.window_size_ms is not None else StoreKindRead.SESSION)


class TimeWindowedStream(WindowedStream[TableT]):
    """A grouping in tumbling, hopping, sliding or unlimited windows."""

    @logged
    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[WindowOptions],
    ) -> TableT:
        """Fold the values of each key in each window: `aggregator(key, value, aggregate)`. Keyword arguments as for
        `count`.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> windowed = grouped.windowed_by(ks.TimeWindows.of_size(60_000))
            >>> letters = windowed.aggregate(lambda: 0, lambda key, word, n: n + len(word), value_serde="long")
        """
        check_callable(initializer, "initializer", "aggregate")
        check_callable(aggregator, "aggregator", "aggregate")
        options = materialized(store, store_options) or Materialized()
        return self._table(initializer, aggregator, None, options, AGGREGATE, name)


class SessionWindowedStream(WindowedStream[TableT]):
    """A grouping in sessions."""

    @logged
    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[WindowOptions],
    ) -> TableT:
        """Fold the values of each session: `aggregator(key, value, aggregate)`; merge sessions that meet: `merger(key, one,
        other)`.

        Each merged session gets a tombstone before the new one is emitted. Keyword arguments as for `count`.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> windowed = grouped.windowed_by(ks.SessionWindows.of_inactivity_gap(60_000))
            >>> letters = windowed.aggregate(
            ...     lambda: 0, lambda key, word, n: n + len(word), lambda key, one, other: one + other, value_serde="long")
        """
        check_callable(initializer, "initializer", "aggregate")
        check_callable(aggregator, "aggregator", "aggregate")
        check_callable(merger, "merger", "aggregate")
        options = materialized(store, store_options) or Materialized()
        return self._table(initializer, aggregator, merger, options, AGGREGATE, name)


def windowed_key_serde(key_serde: Any, windows: AnyWindows) -> object:
    """Return the serde of `Windowed` keys; deferred until the task is made if the inner serde is the application's default."""
    if isinstance(windows, SessionWindows):
        return around(serdes.session_windowed, key_serde, "key")
    size = windows.time_difference_ms if isinstance(windows, SlidingWindows) else windows.size_ms
    return around(lambda inner: serdes.time_windowed(inner, size), key_serde, "key")


def windowed_operator(
    windows: AnyWindows,
    store: str,
    initializer: Initializer,
    aggregator: Aggregator,
    merger: Merger | None,
    *,
    emit_on_close: bool = False,
    count: bool = False,
) -> Operator:
    """Return the operator that aggregates in these windows; sessions need a merger."""
    if isinstance(windows, SessionWindows):
        assert merger is not None
        return StreamSessionWindowAggregate(
            store, initializer, aggregator, merger, windows.gap_ms, windows.grace_ms, emit_on_close=emit_on_close, count=count
        )
    if isinstance(windows, SlidingWindows):
        return StreamSlidingWindowAggregate(
            store, initializer, aggregator, windows.time_difference_ms, windows.grace_ms, emit_on_close=emit_on_close, count=count
        )
    return StreamWindowAggregate(
        store,
        initializer,
        aggregator,
        windows.size_ms,
        windows.size_ms if isinstance(windows, UnlimitedWindows) else windows.advance_ms,
        windows.grace_ms,
        unlimited_start_ms=windows.start_ms if isinstance(windows, UnlimitedWindows) else None,
        emit_on_close=emit_on_close,
        count=count,
    )
