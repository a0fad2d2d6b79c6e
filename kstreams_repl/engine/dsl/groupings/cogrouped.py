"""`CogroupedKStream`: several grouped streams aggregated into one table.

Each grouping has its own aggregate node; all write to one store, so each of them updates a key's aggregate. Source: Kafka
Streams' `CogroupedStreamAggregateBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Unpack

from kstreams_repl.engine.dsl.graph.call_log import BuildLog, Handle, logged
from kstreams_repl.engine.dsl.graph.graph_nodes import GraphNode, OperatorGraphNode
from kstreams_repl.engine.dsl.graph.store_plans import table_store, windowed_store
from kstreams_repl.engine.dsl.groupings.grouped_stream import GroupedStream
from kstreams_repl.engine.dsl.groupings.windowed_stream import (
    refuse_history,
    window_getter,
    windowed_key_serde,
    windowed_operator,
)
from kstreams_repl.engine.dsl.groupings.windows import AnyWindows
from kstreams_repl.engine.dsl.options import Materialized, TableOptions, WindowOptions, materialized
from kstreams_repl.engine.dsl.streams.stream_base import check_callable, first_known
from kstreams_repl.engine.dsl.tables.table_operators import TableT
from kstreams_repl.engine.dsl.tables.table_sources import AggregateState, stored
from kstreams_repl.engine.operators.aggregates.stream_aggregate import StreamAggregate
from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.operators.streams.pass_through import TablePassThrough
from kstreams_repl.engine.operators.tables.value_getters import StoreGetter
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.system.types import Aggregator, Initializer, Merger

AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
MERGE = "COGROUPKSTREAM-MERGE-"
MakeOperator = Callable[[str, Aggregator], Operator]


class CogroupedStream(Handle, Generic[TableT]):
    """Grouped streams with one aggregator each; a grouping that is given twice keeps its last aggregator."""

    def __init__(self, log: BuildLog, grouped: GroupedStream[TableT], aggregator: Aggregator) -> None:
        self._log = log
        self._groups: dict[GroupedStream[TableT], Aggregator] = {grouped: aggregator}
        self._parents: dict[GroupedStream[TableT], GraphNode] = {}

    @logged
    def aggregate(
        self,
        initializer: Initializer,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> TableT:
        """Return the table of aggregates, which start from `initializer()`.

        Args:
            initializer: () -> first aggregate.
            store: name of the store, for queries; or a `Materialized`.
            name: prefix of the nodes' names.
            key_serde, value_serde, caching, logging, history, persistent, topic_config: options of the table's store, as in
                `Materialized`; None = its default.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> totals = grouped.cogroup(lambda key, word, total: total + len(word))
            >>> table = totals.aggregate(lambda: 0, store="totals", value_serde="long")
        """
        check_callable(initializer, "initializer", "aggregate")
        options = materialized(store, store_options) or Materialized()
        store_name = self._store_name(options)
        key = self._key_serde(options)
        builder = table_store(options, store_name, key, options.value_serde)

        def make(store_name: str, aggregator: Aggregator) -> StreamAggregate:
            return StreamAggregate(store_name, initializer, aggregator, versioned=options.versioned)

        return self._build(make, builder, stored(store_name, options.versioned), key, options, name)

    def _windowed(
        self,
        windows: AnyWindows,
        initializer: Initializer,
        merger: Merger | None,
        options: Materialized,
        name: str | None,
    ) -> TableT:
        refuse_history(options)
        store_name, key = self._store_name(options), self._key_serde(options)
        builder = windowed_store(options, store_name, key, windows)

        def make(store_name: str, aggregator: Aggregator) -> Operator:
            return windowed_operator(windows, store_name, initializer, aggregator, merger)

        return self._build(make, builder, window_getter(builder), windowed_key_serde(key, windows), options, name)

    def _store_name(self, options: Materialized) -> str:
        return options.name if options.name is not None else self._graph.new_store_name(AGGREGATE)

    def _key_serde(self, options: Materialized) -> object:
        return first_known(options.key_serde, *(grouped.key_serde for grouped in self._groups))

    def _build(
        self,
        make: MakeOperator,
        store: StoreBuilder,
        getter: StoreGetter,
        table_key_serde: object,
        options: Materialized,
        name: str | None,
    ) -> TableT:
        graph, origin = self._graph, self._graph.here()
        if name is not None:
            validate_name(name, "node")
        sources = self._repartition(store.name)
        nodes: list[GraphNode] = []
        operators: list[Operator] = []
        for number, (grouped, aggregator) in enumerate(self._groups.items()):
            operator = make(store.name, aggregator)
            node = OperatorGraphNode(
                graph.suffix_or_generate(name, f"-cogroup-agg-{number}", AGGREGATE),
                origin,
                operator,
                store=store if not nodes else None,
                used_stores=() if not nodes else (store.name,),
            )
            node.output_versioned = options.versioned
            graph.add(self._parents[grouped], node)
            nodes.append(node)
            operators.append(operator)
        merge = OperatorGraphNode(graph.suffix_or_generate(name, "-cogroup-merge", MERGE), origin, TablePassThrough(store.name))
        graph.add(nodes, merge)
        state = AggregateState(operators, getter)
        table_type = next(iter(self._groups))._table_type
        return table_type(self._log, merge.name, table_key_serde, options.value_serde, sources, merge, state, options.name)

    def _repartition(self, store_name: str) -> frozenset[str]:
        """Put the parents of the aggregates (the groupings or repartition topics) into the graph; returns the sources, which must
        be co-partitioned."""
        graph = self._graph
        sources: set[str] = set()
        for grouped in self._groups:
            if not grouped._repartition_required:
                self._parents[grouped] = grouped._node
                sources |= grouped._sources
                continue
            prefix = store_name if grouped._topic_name is None else grouped._topic_name
            node = graph.new_repartition(prefix, key_serde=grouped.key_serde, value_serde=grouped.value_serde)
            if grouped not in self._parents:
                graph.add(grouped._node, node)
                self._parents[grouped] = node
            sources.add(self._parents[grouped].name)
        graph.copartition(sources)
        return frozenset(sources)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(grouped.name for grouped in self._groups)})"


class WindowedCogroupedStream(Handle, Generic[TableT]):
    """Base class of cogrouped streams in windows."""

    def __init__(self, cogrouped: CogroupedStream[TableT], windows: AnyWindows) -> None:
        self._log = cogrouped._log
        self._cogrouped = cogrouped
        self._windows = windows

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._cogrouped!r})"


class TimeWindowedCogroupedStream(WindowedCogroupedStream[TableT]):
    """Cogrouped streams in tumbling, hopping, unlimited or sliding windows."""

    @logged
    def aggregate(
        self,
        initializer: Initializer,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[WindowOptions],
    ) -> TableT:
        """Return the table of aggregates per key and window. Keyword arguments as for `CogroupedKStream.aggregate`; `retention=`:
        how long windows are kept (ms, timedelta or "30 s").

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> totals = grouped.cogroup(lambda key, word, total: total + len(word))
            >>> windowed = totals.windowed_by(ks.TimeWindows.of_size(60_000))
            >>> letters = windowed.aggregate(lambda: 0, value_serde="long")
        """
        check_callable(initializer, "initializer", "aggregate")
        options = materialized(store, store_options) or Materialized()
        return self._cogrouped._windowed(self._windows, initializer, None, options, name)


class SessionWindowedCogroupedStream(WindowedCogroupedStream[TableT]):
    """Cogrouped streams in sessions."""

    @logged
    def aggregate(
        self,
        initializer: Initializer,
        merger: Merger,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[WindowOptions],
    ) -> TableT:
        """Return the table of aggregates per session; `merger(key, one, other)` merges sessions that meet. Keyword arguments as
        for `TimeWindowedCogroupedKStream.aggregate`.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> totals = grouped.cogroup(lambda key, word, total: total + len(word))
            >>> windowed = totals.windowed_by(ks.SessionWindows.of_inactivity_gap(60_000))
            >>> letters = windowed.aggregate(lambda: 0, lambda key, one, other: one + other, value_serde="long")
        """
        check_callable(initializer, "initializer", "aggregate")
        check_callable(merger, "merger", "aggregate")
        options = materialized(store, store_options) or Materialized()
        return self._cogrouped._windowed(self._windows, initializer, merger, options, name)
