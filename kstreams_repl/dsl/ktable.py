"""`KTable`: the latest value per key, changing with every record. A None value is the absence of the row (a tombstone).

A table is kept in a store only if it has a name (`store=`) or something downstream has to read it; else its rows are computed
through its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstreams_repl.dsl import foreign_key_joins, table_joins
from kstreams_repl.dsl.build_log import BuildLog, logged
from kstreams_repl.dsl.graph_nodes import GraphNode, OperatorGraphNode, SuppressGraphNode
from kstreams_repl.dsl.grouped_stream import table_options
from kstreams_repl.dsl.grouped_table import KGroupedTable
from kstreams_repl.dsl.options import Materialized, Suppressed
from kstreams_repl.dsl.store_plans import table_store
from kstreams_repl.dsl.stream_base import AbstractStream, check_callable, check_kind, first_known, serde_or_none
from kstreams_repl.dsl.table_state import (
    Derived,
    SuppressState,
    TableState,
    filter_state,
    map_values_state,
    transform_values_state,
)
from kstreams_repl.errors import TopologyError
from kstreams_repl.operators.stream_session_window_aggregate import StreamSessionWindowAggregate
from kstreams_repl.operators.stream_sliding_window_aggregate import StreamSlidingWindowAggregate
from kstreams_repl.operators.stream_window_aggregate import StreamWindowAggregate
from kstreams_repl.operators.table_filter import TableFilter
from kstreams_repl.operators.table_map_values import TableMapValues
from kstreams_repl.operators.table_repartition_map import TableRepartitionMap
from kstreams_repl.operators.table_suppress import TableSuppress
from kstreams_repl.operators.table_to_stream import TableToStream
from kstreams_repl.operators.table_transform_values import TableTransformValues
from kstreams_repl.topology.stores import StoreBuilder, StoreKind
from kstreams_repl.topology.suppliers import store_names, supplied_stores

if TYPE_CHECKING:
    from kstreams_repl.dsl.kstream import KStream


class KTable(AbstractStream):
    """A changing table. Get one from `StreamsBuilder.table`, an aggregate, `KStream.to_table`, or another table.

    Example:
        >>> from kstreams_repl.dsl import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> counts = builder.stream("words").group_by(lambda key, word: word).count(store="counts")
        >>> counts.queryable_store_name
        'counts'
    """

    def __init__(
        self,
        log: BuildLog,
        name: str,
        key_serde: Any,
        value_serde: Any,
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
        """Name of the store to query, if the table has one with a name of its own."""
        return self._queryable

    @logged
    def filter(
        self,
        predicate: Callable[[Any, Any], Any],
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """Rows for which `predicate(key, value)` is true; a row that stops matching gets a tombstone.

        Args:
            predicate: never called for None values.
            store: name of a store to keep the result in.
            name: of the node.
            **keep: any of `caching=`, `logging=`, `key_serde=`, `value_serde=`, `history=`, `persistent=`, `topic_config=`.
        """
        return self._filter(predicate, False, store, name, keep)

    @logged
    def filter_not(
        self,
        predicate: Callable[[Any, Any], Any],
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """Rows for which `predicate(key, value)` is false; otherwise as `filter`."""
        return self._filter(predicate, True, store, name, keep)

    def _filter(
        self,
        predicate: Callable[[Any, Any], Any],
        negate: bool,
        store: str | Materialized | None,
        name: str | None,
        keep: dict[str, Any],
    ) -> KTable:
        check_callable(predicate, "predicate", "filter")
        options, node_name, key, value = self._derived_options("KTABLE-FILTER-", store, name, keep)
        operator = TableFilter(
            predicate,
            negate,
            options.name if options is not None else None,
            send_old_values=self._state.enable_sending_old_values(force=False),  # spares tombstones for rows never shown
            store_versioned=options is not None and options.versioned,
        )
        return self._derive(
            operator, filter_state(operator, self._state), node_name, options, key, first_known(value, self.value_serde)
        )

    @logged
    def map_values(
        self,
        mapper: Callable[..., Any],
        *,
        with_key: bool = False,
        store: str | Materialized | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """A new value for each row: `mapper(value)`, or `mapper(key, value)` with `with_key=True`; never called for None.
        `**keep` as for
        `filter`."""
        check_callable(mapper, "mapper", "map_values", "key, value" if with_key else "value")
        options, node_name, key, value = self._derived_options("KTABLE-MAPVALUES-", store, name, keep)
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
        supplier: Callable[[], Any],
        *,
        stores: Iterable[str] = (),
        store: str | Materialized | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """A new value for each row by a stateful transformer of your own.

        Args:
            supplier: returns a fresh transformer for each task: `init(context)`, `transform(key, value)`, `close()`. Called for
                None values too. When it has a `stores()`, the store builders that it returns are added and connected.
            stores: names of the stores it uses.
            store: name of a store to keep the result in; without one a row is transformed again each time it is read.
            name: of the node.
            **keep: as for `filter`.
        """
        check_callable(supplier, "supplier", "transform_values")
        options = table_options(store, keep)
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
        self, prefix: str, store: str | Materialized | None, name: str | None, keep: dict[str, Any]
    ) -> tuple[Materialized | None, str, Any, Any]:
        options = table_options(store, keep)
        if options is not None and options.name is None:
            self._graph.new_store_name(prefix)  # not materialized, but a number is used up
        key = self.key_serde if options is None else first_known(options.key_serde, self.key_serde)
        return options, self._graph.name_or_generate(name, prefix), key, None if options is None else options.value_serde

    def _derive(
        self,
        operator: Derived,
        state: TableState,
        node_name: str,
        options: Materialized | None,
        key_serde: Any,
        value_serde: Any,
        used_stores: tuple[str, ...] = (),
        supplied_stores: tuple[StoreBuilder, ...] = (),
    ) -> KTable:
        graph = self._graph
        store: StoreBuilder | None = None
        if options is not None and options.name is not None:
            store = table_store(options, options.name, key_serde, value_serde)
        node = OperatorGraphNode(node_name, graph.here(), operator, store=store, used_stores=used_stores)
        node.supplied_stores = supplied_stores
        if options is not None:
            node.output_versioned = options.versioned
        if isinstance(operator, TableFilter):
            filter_ = operator

            def use_versions() -> None:
                filter_.versioned = True

            node.on_versioned = use_versions
        graph.add(self._node, node, reads_versions=node.on_versioned is not None)
        queryable = None if options is None else options.name
        return KTable(self._log, node_name, key_serde, value_serde, self._sources, node, state, queryable)

    @logged
    def to_stream(self, selector: Callable[[Any, Any], Any] | None = None, *, name: str | None = None) -> KStream:
        """The table's changes as records; tombstones have a None value.

        Args:
            selector: (key, value) -> a new key for each record (as `to_stream().select_key(selector)`).
            name: of the node.
        """
        from kstreams_repl.dsl.kstream import KStream

        graph = self._graph
        node = OperatorGraphNode(graph.name_or_generate(name, "KTABLE-TOSTREAM-"), graph.here(), TableToStream())
        graph.add(self._node, node)
        stream = KStream(self._log, node.name, self.key_serde, self.value_serde, self._sources, node)
        return stream if selector is None else stream.select_key(selector)

    def to(self, topic: str | Callable[..., str], **options: Any) -> None:
        """Write the changes to a topic (KIP-67): `to_stream().to(topic)`."""
        self.to_stream().to(topic, **options)

    @logged
    def group_by(
        self,
        selector: Callable[[Any, Any], tuple[Any, Any]],
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> KGroupedTable:
        """Group rows by another key: `selector(key, value)` returns the pair (group key, value to aggregate).

        A change takes the old value out of its group and puts the new one into its group. A None group key or value leaves that
        half out.
        """
        check_callable(selector, "selector", "group_by")
        graph = self._graph
        operator = TableRepartitionMap(selector, key_serde=serde_or_none(key_serde))
        node = OperatorGraphNode(graph.name_or_generate(name, "KTABLE-SELECT-"), graph.here(), operator)

        def use_versions() -> None:
            operator.versioned = True

        node.on_versioned = use_versions
        graph.add(self._node, node, reads_versions=True)
        self._state.enable_sending_old_values(force=True)
        return KGroupedTable(
            self._log, node.name, serde_or_none(key_serde), serde_or_none(value_serde), self._sources, node, topic_name=name
        )

    @logged
    def suppress(self, suppressed: Suppressed) -> KTable:
        """Hold changes back: `Suppressed.until_window_closes()` or `Suppressed.until_time_limit(ms)`.

        Stream time decides, so nothing is emitted while no records come.

        Raises:
            TopologyError: until a window closes without a windowed aggregate upstream, or on a versioned table.
        """
        check_kind(suppressed, Suppressed, "suppress")
        graph = self._graph
        if self._node.output_versioned:
            raise TopologyError(
                "suppress works on tables without versions only", hint="suppress before making versions", node=self.name
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
        )
        node = SuppressGraphNode(name, graph.here(), operator, store=store)
        node.output_versioned = False
        graph.add(self._node, node)
        state = SuppressState(operator, self._state)
        return KTable(self._log, name, self.key_serde, self.value_serde, self._sources, node, state, None)

    @logged
    def join(
        self,
        other: KTable,
        joiner: Callable[..., Any],
        *,
        foreign_key: Callable[..., Any] | None = None,
        store: str | Materialized | None = None,
        name: str | None = None,
        **options: Any,
    ) -> KTable:
        """Inner join of rows by key, or by a foreign key: `joiner(value, other value)` makes the result's value.

        Args:
            other: the other table.
            joiner: (value, other value) -> value, or (key, value, other value) -> value with `with_key=True`.
            foreign_key: (value) -> the other table's key, or (key, value) with `foreign_key_with_key=True`; None joins by key.
            store: name of a store to keep the result in.
            name: of the node; in a foreign-key join the first part of all its nodes' and topics' names.
            **options: `with_key=`, `foreign_key_with_key=`, `partitioner=` and `other_partitioner=` (foreign-key joins: `(topic,
                key, None, partitions) -> partition`), and what keeps the result: as for `filter`.
        """
        return self._join("inner", other, joiner, foreign_key, store, name, options)

    @logged
    def left_join(
        self,
        other: KTable,
        joiner: Callable[..., Any],
        *,
        foreign_key: Callable[..., Any] | None = None,
        store: str | Materialized | None = None,
        name: str | None = None,
        **options: Any,
    ) -> KTable:
        """As `join`, with a row for each row of this table; the other value is None where there is none."""
        return self._join("left", other, joiner, foreign_key, store, name, options)

    @logged
    def outer_join(
        self,
        other: KTable,
        joiner: Callable[..., Any],
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **options: Any,
    ) -> KTable:
        """As `join` by key, with a row for each key of either table; a missing value is None."""
        return self._join("outer", other, joiner, None, store, name, options)

    def _join(
        self,
        how: str,
        other: KTable,
        joiner: Callable[..., Any],
        foreign_key: Callable[..., Any] | None,
        store: str | Materialized | None,
        name: str | None,
        options: dict[str, Any],
    ) -> KTable:
        check_kind(other, KTable, f"{how} join of tables")
        with_key = bool(options.pop("with_key", False))
        check_callable(joiner, "joiner", "join", "key, value, other" if with_key else "value, other")
        if foreign_key is None:
            return table_joins.join_tables(self, other, joiner, how, with_key, table_options(store, options), name)
        extractor_with_key = bool(options.pop("foreign_key_with_key", False))
        check_callable(foreign_key, "foreign_key", "join", "key, value" if extractor_with_key else "value")
        plan = foreign_key_joins.ForeignKeyPlan(
            foreign_key,
            joiner,
            left_join=how == "left",
            with_key=with_key,
            extractor_with_key=extractor_with_key,
            partitioner=options.pop("partitioner", None),
            other_partitioner=options.pop("other_partitioner", None),
            name=name,
        )
        return foreign_key_joins.join_by_foreign_key(self, other, plan, table_options(store, options) or Materialized())


def window_grace(node: GraphNode, chain: str) -> int:
    """How long after their end windows upstream still change: the largest over all ways up.

    Raises:
        TopologyError: a way up has no windowed aggregate.
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
