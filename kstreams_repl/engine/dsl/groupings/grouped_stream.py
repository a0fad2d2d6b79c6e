"""Aggregates of a stream that is grouped by key: `count`, `reduce`, `aggregate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Unpack

from kstreams_repl.engine import serdes
from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.dsl.graph.graph_nodes import OperatorGraphNode
from kstreams_repl.engine.dsl.graph.store_plans import table_store
from kstreams_repl.engine.dsl.options import Materialized, TableOptions, materialized, with_value_serde
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, check_callable, first_known
from kstreams_repl.engine.dsl.tables.table_operators import TableT
from kstreams_repl.engine.dsl.tables.table_sources import AggregateState, stored
from kstreams_repl.engine.operators.aggregates.stream_aggregate import StreamAggregate, StreamCount, StreamReduce
from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.operators.tables.value_getters import StoreGetter
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.system.types import Aggregator, Initializer, Reducer

AGGREGATE = "KSTREAM-AGGREGATE-"
REDUCE = "KSTREAM-REDUCE-"


class GroupedStream(AbstractStream, Generic[TableT]):
    """The aggregates of `KGroupedStream`. If the key may have changed since the source, an aggregate repartitions first."""

    _table_type: type[TableT]

    @logged
    def count(
        self,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> TableT:
        """Count the records of each key; records with a None key or value are dropped, and counted as dropped.

        Args:
            store: name of the store, for queries; or a `Materialized`.
            name: name of the node.
            key_serde, value_serde, caching, logging, history, persistent, topic_config: options of the table's store, as in
                `Materialized`; None = its default.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> counts = grouped.count(store="counts")
        """
        given = materialized(store, store_options)
        if given is not None and given.name is None:
            self._graph.new_store_name(AGGREGATE)  # Kafka Streams consumes a number in this form of count
        options = with_value_serde(given, serdes.long)

        def operator(store_name: str) -> StreamCount:
            return StreamCount(store_name, versioned=options.versioned)

        return self._table(operator, options, AGGREGATE, name)

    @logged
    def reduce(
        self,
        reducer: Reducer,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> TableT:
        """Fold the values of each key: `reducer(aggregate, value)`; the first value is the first aggregate.

        Records with a None key or value are dropped and counted. Keyword arguments as for `count`.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> longest = grouped.reduce(lambda one, other: max(one, other, key=len), store="longest")
        """
        check_callable(reducer, "reducer", "reduce")
        given = materialized(store, store_options)
        options = with_value_serde(given, self.value_serde)
        return self._table(
            lambda store_name: StreamReduce(store_name, reducer, versioned=options.versioned), options, REDUCE, name
        )

    @logged
    def aggregate(
        self,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> TableT:
        """Fold the values of each key: `aggregator(key, value, aggregate)`, starting from `initializer()`.

        An aggregate of None deletes the row. Records with a None key or value are dropped and counted. Keyword arguments as for
        `count`; `value_serde=` is that of the aggregate (None = the application's default).

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> letters = grouped.aggregate(lambda: 0, lambda key, word, total: total + len(word), store="letters", value_serde="long")
        """
        check_callable(initializer, "initializer", "aggregate")
        check_callable(aggregator, "aggregator", "aggregate")
        options = materialized(store, store_options) or Materialized()
        return self._table(
            lambda store_name: StreamAggregate(store_name, initializer, aggregator, versioned=options.versioned),
            options,
            AGGREGATE,
            name,
        )

    def _table(self, make: Callable[[str], Operator], options: Materialized, prefix: str, name: str | None) -> TableT:
        """Add an aggregate whose store is a key-value store."""
        graph = self._graph
        store_name = options.name if options.name is not None else graph.new_store_name(prefix)
        node_name = graph.name_or_generate(name, prefix)
        key = first_known(options.key_serde, self.key_serde)
        return self._build(
            node_name,
            make(store_name),
            table_store(options, store_name, key, options.value_serde),
            stored(store_name, options.versioned),
            key,
            options,
        )

    def _build(
        self,
        node_name: str,
        operator: Operator,
        store: StoreBuilder,
        getter: StoreGetter,
        table_key_serde: object,
        options: Materialized,
    ) -> TableT:
        """Add an aggregate after this grouping, repartitioning first if keys may have changed."""
        graph, parent, sources = self._graph, self._node, self._sources
        if self._repartition_required:
            # made on each call, because it consumes numbers even if the first one is shared
            repartition = graph.new_repartition(
                store.name if self._topic_name is None else self._topic_name,
                key_serde=self.key_serde,
                value_serde=self.value_serde,
            )
            if self._repartition_node is None or self._topic_name is None:
                self._repartition_node = repartition
            graph.add(parent, self._repartition_node)
            parent, sources = self._repartition_node, frozenset((repartition.name,))
        node = OperatorGraphNode(node_name, graph.here(), operator, store=store)
        node.output_versioned = options.versioned
        graph.add(parent, node)
        return self._table_type(
            self._log,
            node_name,
            table_key_serde,
            options.value_serde,
            sources,
            node,
            AggregateState((operator,), getter),
            options.name,
        )
