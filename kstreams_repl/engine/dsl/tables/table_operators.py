"""Operators of a table that return a table: `filter`, `map_values`, `transform_values`, `suppress`.

A table is kept in a store only if it has a name (`store=`) or a downstream operator reads it; otherwise its rows are computed
from its parent's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self, TypeVar, Unpack

from kstreams_repl.engine.dsl.graph.call_log import BuildLog, logged
from kstreams_repl.engine.dsl.graph.graph_nodes import GraphNode, OperatorGraphNode, SuppressGraphNode
from kstreams_repl.engine.dsl.graph.store_plans import table_store
from kstreams_repl.engine.dsl.options import Materialized, Suppressed, TableOptions, materialized
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, check_callable, check_kind, first_known
from kstreams_repl.engine.dsl.tables.table_sources import (
    Derived,
    SuppressState,
    TableState,
    filter_state,
    map_values_state,
    transform_values_state,
)
from kstreams_repl.engine.operators.aggregates.stream_session_window_aggregate import StreamSessionWindowAggregate
from kstreams_repl.engine.operators.aggregates.stream_sliding_window_aggregate import StreamSlidingWindowAggregate
from kstreams_repl.engine.operators.aggregates.stream_window_aggregate import StreamWindowAggregate
from kstreams_repl.engine.operators.tables.table_filter import TableFilter
from kstreams_repl.engine.operators.tables.table_map_values import TableMapValues
from kstreams_repl.engine.operators.tables.table_suppress import TableSuppress
from kstreams_repl.engine.operators.tables.table_transform_values import TableTransformValues
from kstreams_repl.engine.topology.connected_stores import store_names, supplied_stores
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import Predicate, ProcessorSupplier, ValueMapper

TableT = TypeVar("TableT", bound="TableOperators")


class TableOperators(AbstractStream):
    """The operators of `KTable` that need no other kind of stream or table."""

    def __init__(
        self,
        log: BuildLog,
        name: str,
        key_serde: object,
        value_serde: object,
        sources: frozenset[str],
        node: GraphNode,
        state: TableState,
        queryable: str | None,
    ) -> None:
        super().__init__(log, name, key_serde, value_serde, sources, node)
        self._state = state
        self._queryable = queryable

    @property
    def queryable_store_name(self) -> str | None:
        """Return the name of the store to query; None unless the table has a store that was given a name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> builder.table("rates", store="rates").queryable_store_name
            'rates'
        """
        return self._queryable

    @logged
    def filter(
        self,
        predicate: Predicate,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> Self:
        """Keep rows for which `predicate(key, value)` is true; a row that stops matching gets a tombstone.

        Args:
            predicate: never called for None values.
            store: name of a store for the result.
            name: name of the node.
            key_serde, value_serde, caching, logging, history, persistent, topic_config: options of the result's store, as in
                `Materialized`; None = its default.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> dear = prices.filter(lambda product, price: price > 100)
        """
        options = materialized(store, store_options)
        return self._filter(predicate, False, options, name)

    @logged
    def filter_not(
        self,
        predicate: Predicate,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> Self:
        """Keep rows for which `predicate(key, value)` is false; otherwise as `filter`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> cheap = prices.filter_not(lambda product, price: price > 100)
        """
        options = materialized(store, store_options)
        return self._filter(predicate, True, options, name)

    def _filter(
        self,
        predicate: Predicate,
        negate: bool,
        options: Materialized | None,
        name: str | None,
    ) -> Self:
        check_callable(predicate, "predicate", "filter")
        node_name, key, value = self._derived_options("KTABLE-FILTER-", options, name)
        operator = TableFilter(
            predicate,
            negate,
            options.name if options is not None else None,
            send_old_values=self._state.enable_sending_old_values(force=False),  # avoids tombstones for rows that never matched
            store_versioned=options is not None and options.versioned,
        )
        return self._derive(
            operator, filter_state(operator, self._state), node_name, options, key, first_known(value, self.value_serde)
        )

    @logged
    def map_values(
        self,
        mapper: ValueMapper,
        *,
        with_key: bool = False,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> Self:
        """Replace each row's value: `mapper(value)`, or `mapper(key, value)` with `with_key=True`; never called for None.

        Other arguments as for `filter`.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> cents = prices.map_values(lambda price: round(price * 100), store="cents", value_serde="long")
        """
        check_callable(mapper, "mapper", "map_values", "key, value" if with_key else "value")
        options = materialized(store, store_options)
        node_name, key, value = self._derived_options("KTABLE-MAPVALUES-", options, name)
        operator = TableMapValues(
            mapper,
            with_key,
            options.name if options is not None else None,
            store_versioned=options is not None and options.versioned,
        )
        return self._derive(operator, map_values_state(operator, self._state), node_name, options, key, value)

    @logged
    def transform_values(
        self,
        supplier: ProcessorSupplier,
        *,
        stores: Iterable[str] = (),
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> Self:
        """Replace each row's value by means of a user's stateful transformer.

        Args:
            supplier: returns a fresh transformer for each task: `init(context)`, `transform(key, value)`, `close()`. Called for
                None values too. If it has a `stores()` method, the store builders that it returns are added and connected.
            stores: names of the stores it uses.
            store: name of a store for the result; without one a row is transformed again each time it is read.
            name: name of the node.
            key_serde, value_serde, caching, logging, history, persistent, topic_config: options of the result's store, as in
                `Materialized`; None = its default.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> class Rounded:
            ...     def init(self, context): pass
            ...     def transform(self, product, price): return None if price is None else round(price)
            ...     def close(self): pass
            ...
            >>> rounded = prices.transform_values(Rounded)
        """
        check_callable(supplier, "supplier", "transform_values")
        options = materialized(store, store_options)
        node_name = self._graph.name_or_generate(name, "KTABLE-TRANSFORMVALUES-")
        used, supplied = store_names(stores, node_name), supplied_stores(supplier, node_name)
        operator = TableTransformValues(
            supplier,
            stores=(*used, *(builder.name for builder in supplied)),
            store=options.name if options is not None else None,
            store_versioned=options is not None and options.versioned,
        )
        state = transform_values_state(operator, self._state)
        key = self.key_serde if options is None else first_known(options.key_serde, self.key_serde)
        value = None if options is None else options.value_serde
        return self._derive(operator, state, node_name, options, key, value, used, supplied)

    def _derived_options(
        self, prefix: str, options: Materialized | None, name: str | None
    ) -> tuple[str, object, object]:
        if options is not None and options.name is None:
            self._graph.new_store_name(prefix)  # not materialized, but consumes a number
        key = self.key_serde if options is None else first_known(options.key_serde, self.key_serde)
        return self._graph.name_or_generate(name, prefix), key, None if options is None else options.value_serde

    def _derive(
        self,
        operator: Derived,
        state: TableState,
        node_name: str,
        options: Materialized | None,
        key_serde: object,
        value_serde: object,
        used_stores: tuple[str, ...] = (),
        supplied_stores: tuple[StoreBuilder, ...] = (),
    ) -> Self:
        graph = self._graph
        store: StoreBuilder | None = None
        if options is not None and options.name is not None:
            store = table_store(options, options.name, key_serde, value_serde)
        node = OperatorGraphNode(node_name, graph.here(), operator, store=store, used_stores=used_stores)
        node.supplied_stores = supplied_stores
        if options is not None:
            node.output_versioned = options.versioned
        graph.add(self._node, node, reads_versions=isinstance(operator, TableFilter))
        queryable = None if options is None else options.name
        return type(self)(self._log, node_name, key_serde, value_serde, self._sources, node, state, queryable)

    @logged
    def suppress(self, suppressed: Suppressed) -> Self:
        """Hold changes back: `Suppressed.until_window_closes()` or `Suppressed.until_time_limit(ms)`.

        Timers follow stream time, so nothing is emitted while no records arrive.

        Args:
            suppressed: how long changes are held back, and how many.

        Raises:
            TopologyError: `until_window_closes` without a windowed aggregate upstream, or the table is versioned.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> slower = prices.suppress(ks.Suppressed.until_time_limit(5_000))
        """
        check_kind(suppressed, Suppressed, "suppress")
        graph = self._graph
        if self._node.output_versioned:
            raise TopologyError(
                "suppress() expected a table without history, got a versioned one",
                hint="call suppress() before the operator with history=", node=self.name,
            )
        prefix = "KTABLE-SUPPRESS-"
        name = suppressed.name if suppressed.name is not None else graph.new_processor_name(prefix)
        wait = suppressed.wait_ms if suppressed.wait_ms is not None else window_grace(self._node, self.name)
        store_name = f"{suppressed.name}-store" if suppressed.name is not None else graph.new_store_name(prefix)
        until_close = suppressed.wait_ms is None
        operator = TableSuppress(
            store_name,
            wait,
            window_end_time=until_close,
            max_records=suppressed.max_records,
            max_bytes=suppressed.max_bytes,
            shut_down_when_full=suppressed.shut_down_when_full,
            drop_tombstones=until_close,
        )
        store = StoreBuilder(
            store_name,
            StoreKind.SUPPRESS_BUFFER,
            self.key_serde,
            self.value_serde,
            logging=suppressed.logging,
            persistent=False,
            topic_config=dict(suppressed.topic_config),
            headers=None,
        )
        node = SuppressGraphNode(name, graph.here(), operator, store=store)
        node.output_versioned = False
        graph.add(self._node, node)
        state = SuppressState(operator, self._state)
        return type(self)(self._log, name, self.key_serde, self.value_serde, self._sources, node, state, None)


def window_grace(node: GraphNode, chain: str) -> int:
    """Return how long after their end upstream windows can change (ms): the largest value over all paths upstream.

    Raises:
        TopologyError: a path has no windowed aggregate.
    """
    operator = node.operator if isinstance(node, OperatorGraphNode) else None
    if isinstance(operator, (StreamWindowAggregate, StreamSlidingWindowAggregate)):
        return operator.grace_ms
    if isinstance(operator, StreamSessionWindowAggregate):
        return operator.grace_ms + operator.gap_ms
    if not node.parents:
        raise TopologyError(
            f"until_window_closes needs a windowed aggregate upstream of {chain}",
            hint="use windowed_by(...) before the aggregate, or Suppressed.until_time_limit(...)",
            node=chain,
        )
    return max(window_grace(parent, chain) for parent in node.parents)
