"""Aggregates of a table that is regrouped by another key: `count`, `reduce`, `aggregate`.

They need two functions, one to add a value and one to subtract it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Unpack

from kstreams_repl.engine import serdes
from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.dsl.graph.graph_nodes import OperatorGraphNode, RepartitionGraphNode
from kstreams_repl.engine.dsl.graph.store_plans import table_store
from kstreams_repl.engine.dsl.options import Materialized, TableOptions, materialized, with_value_serde
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, check_callable, first_known
from kstreams_repl.engine.dsl.tables.table_operators import TableT
from kstreams_repl.engine.dsl.tables.table_sources import AggregateState, stored
from kstreams_repl.engine.operators.aggregates.aggregators import count_one, uncount_one, zero
from kstreams_repl.engine.operators.aggregates.table_aggregate import TableAggregate, TableReduce
from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.serdes.change import change
from kstreams_repl.engine.topology.names import REPARTITION_SUFFIX, validate_name
from kstreams_repl.system.types import Aggregator, Initializer, Reducer

AGGREGATE = "KTABLE-AGGREGATE-"
REDUCE = "KTABLE-REDUCE-"


class GroupedTable(AbstractStream, Generic[TableT]):
    """The aggregates of `KGroupedTable`; always downstream of a repartition topic that carries new and old values."""

    _table_type: type[TableT]

    @logged
    def count(
        self,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> TableT:
        """Count the rows of each group.

        Args:
            store: name of the store, for queries; or a `Materialized`.
            name: name of the node.
            key_serde, value_serde, caching, logging, history, persistent, topic_config: options of the table's store, as in
                `Materialized`; None = its default.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> grouped = prices.group_by(lambda product, price: (product[:1], price))
            >>> products = grouped.count()
        """
        given = materialized(store, store_options)
        options = with_value_serde(given, serdes.long)

        def make(store_name: str) -> TableAggregate:
            return TableAggregate(store_name, zero, count_one, uncount_one, versioned=options.versioned)

        return self._table(make, options, AGGREGATE, name)

    @logged
    def reduce(
        self,
        adder: Reducer,
        subtractor: Reducer,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> TableT:
        """Fold the values of each group: `adder(aggregate, value)` adds one, `subtractor(aggregate, value)` subtracts one.

        A group's first value is its first aggregate. Keyword arguments as for `count`.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> grouped = prices.group_by(lambda product, price: (product[:1], price))
            >>> total = grouped.reduce(lambda total, price: total + price, lambda total, price: total - price)
        """
        check_callable(adder, "adder", "reduce")
        check_callable(subtractor, "subtractor", "reduce")
        given = materialized(store, store_options)
        options = with_value_serde(given, self.value_serde)
        return self._table(
            lambda store_name: TableReduce(store_name, adder, subtractor, versioned=options.versioned), options, REDUCE, name
        )

    @logged
    def aggregate(
        self,
        initializer: Initializer,
        adder: Aggregator,
        subtractor: Aggregator,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> TableT:
        """Fold the values of each group: `adder(key, value, aggregate)` and `subtractor(key, value, aggregate)`, from
        `initializer()`.

        Keyword arguments as for `count`; `value_serde=` is that of the aggregate (None = the application's default).

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> grouped = prices.group_by(lambda product, price: (product[:1], price))
            >>> total = grouped.aggregate(
            ...     lambda: 0.0, lambda key, price, total: total + price, lambda key, price, total: total - price, value_serde="double")
        """
        check_callable(initializer, "initializer", "aggregate")
        check_callable(adder, "adder", "aggregate")
        check_callable(subtractor, "subtractor", "aggregate")
        options = materialized(store, store_options) or Materialized()
        return self._table(
            lambda store_name: TableAggregate(store_name, initializer, adder, subtractor, versioned=options.versioned),
            options,
            AGGREGATE,
            name,
        )

    def _table(self, make: Callable[[str], Operator], options: Materialized, prefix: str, name: str | None) -> TableT:
        graph = self._graph
        # the store of every kind of aggregate has the prefix of aggregates
        store_name = options.name if options.name is not None else graph.new_store_name(AGGREGATE)
        sink = graph.suffix_or_generate(name, "-sink", "KSTREAM-SINK-")
        source = graph.suffix_or_generate(name, "-source", "KSTREAM-SOURCE-")
        node_name = graph.name_or_generate(name, prefix)
        if self._repartition_node is None or self._topic_name is None:
            self._repartition_node = RepartitionGraphNode(
                source,
                graph.here(),
                sink_name=sink,
                topic=validate_name((store_name if self._topic_name is None else self._topic_name) + REPARTITION_SUFFIX, "topic"),
                key_serde=self.key_serde,
                value_serde=change(self.value_serde),
            )
        repartition = self._repartition_node
        graph.add(self._node, repartition)
        key = first_known(options.key_serde, self.key_serde)
        operator = make(store_name)
        node = OperatorGraphNode(
            node_name, graph.here(), operator, store=table_store(options, store_name, key, options.value_serde)
        )
        node.output_versioned = options.versioned
        graph.add(repartition, node)
        state = AggregateState((operator,), stored(store_name, options.versioned))
        return self._table_type(self._log, node_name, key, options.value_serde, frozenset((repartition.name,)), node, state, options.name)
