"""`KGroupedStream`: a stream grouped by key, ready to be counted, reduced, aggregated, windowed or cogrouped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from kstreams_repl import serdes
from kstreams_repl.dsl.build_log import BuildLog, logged
from kstreams_repl.dsl.graph_nodes import GraphNode, OperatorGraphNode, RepartitionGraphNode
from kstreams_repl.dsl.options import Materialized, materialized
from kstreams_repl.dsl.store_plans import table_store
from kstreams_repl.dsl.stream_base import AbstractStream, check_callable, first_known, serde_or_none
from kstreams_repl.dsl.table_state import AggregateState, stored
from kstreams_repl.dsl.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from kstreams_repl.errors import TopologyError
from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.getters import StoreGetter
from kstreams_repl.operators.stream_aggregate import StreamAggregate, StreamCount, StreamReduce
from kstreams_repl.topology.stores import StoreBuilder

if TYPE_CHECKING:
    from kstreams_repl.dsl.cogrouped import CogroupedKStream
    from kstreams_repl.dsl.ktable import KTable
    from kstreams_repl.dsl.windowed_stream import SessionWindowedKStream, SlidingWindowedKStream, TimeWindowedKStream

AGGREGATE = "KSTREAM-AGGREGATE-"
REDUCE = "KSTREAM-REDUCE-"


class KGroupedStream(AbstractStream):
    """Records by key. If the key may have changed since the source, the aggregate repartitions first."""

    def __init__(
        self,
        log: BuildLog,
        name: str,
        key_serde: Any,
        value_serde: Any,
        sources: frozenset[str],
        node: GraphNode,
        *,
        repartition_required: bool,
        topic_name: str | None,
    ) -> None:
        super().__init__(log, name, key_serde, value_serde, sources, node)
        self._repartition_required = repartition_required
        self._topic_name = topic_name
        self._repartition_node: RepartitionGraphNode | None = None

    @logged
    def count(self, *, store: str | Materialized | None = None, name: str | None = None, **keep: Any) -> KTable:
        """How many records each key has had; records with a None key or value are dropped and counted as dropped.

        Args:
            store: name of the store, to query it by; or a `Materialized`.
            name: of the node.
            **keep: any of `caching=`, `logging=`, `key_serde=`, `history=`, `persistent=`, `topic_config=`.
        """
        options = self._options(store, keep)
        if options is not None and options.name is None:
            self._graph.new_store_name(AGGREGATE)  # Kafka Streams burns a number in this form of count
        options = options or Materialized()
        options = options if options.value_serde is not None else options.with_(value_serde=serdes.long)

        def operator(store_name: str) -> StreamCount:
            return StreamCount(store_name, versioned=options.versioned)

        return self._table(operator, options, AGGREGATE, name)

    @logged
    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """Fold the values of each key: `reducer(aggregate, value)`; the first value is the first aggregate.

        Records with a None key or value are dropped and counted. `**keep` as for `count`, and `value_serde=`.
        """
        check_callable(reducer, "reducer", "reduce")
        options = self._options(store, keep) or Materialized()
        options = options if options.value_serde is not None else options.with_(value_serde=self.value_serde)
        return self._table(
            lambda store_name: StreamReduce(store_name, reducer, versioned=options.versioned), options, REDUCE, name
        )

    @logged
    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """Fold the values of each key: `aggregator(key, value, aggregate)`, starting from `initializer()`.

        An aggregate of None deletes the row. Records with a None key or value are dropped and counted. `**keep` as for `count`,
        and `value_serde=` of the aggregate (None = the application's default).
        """
        check_callable(initializer, "initializer", "aggregate")
        check_callable(aggregator, "aggregator", "aggregate")
        options = self._options(store, keep) or Materialized()
        return self._table(
            lambda store_name: StreamAggregate(store_name, initializer, aggregator, versioned=options.versioned),
            options,
            AGGREGATE,
            name,
        )

    @overload
    def windowed_by(self, windows: TimeWindows | UnlimitedWindows) -> TimeWindowedKStream: ...
    @overload
    def windowed_by(self, windows: SlidingWindows) -> SlidingWindowedKStream: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream: ...
    def windowed_by(
        self, windows: TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows
    ) -> TimeWindowedKStream | SlidingWindowedKStream | SessionWindowedKStream:
        """Aggregate per key and window instead of per key."""
        return self._windowed_by(windows)

    @logged
    def _windowed_by(
        self, windows: TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows
    ) -> TimeWindowedKStream | SlidingWindowedKStream | SessionWindowedKStream:
        from kstreams_repl.dsl.windowed_stream import windowed

        return windowed(self, windows)

    @logged
    def cogroup(self, aggregator: Callable[[Any, Any, Any], Any]) -> CogroupedKStream:
        """Aggregate several grouped streams into one table: `a.cogroup(f).cogroup(b, g).aggregate(initializer)`."""
        from kstreams_repl.dsl.cogrouped import CogroupedKStream

        check_callable(aggregator, "aggregator", "cogroup")
        return CogroupedKStream(self._log, self, aggregator)

    def _options(self, store: str | Materialized | None, keep: dict[str, Any]) -> Materialized | None:
        return table_options(store, keep)

    def _table(self, make: Callable[[str], Any], options: Materialized, prefix: str, name: str | None) -> KTable:
        """An aggregate whose store is a key-value store."""
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
        table_key_serde: Any,
        options: Materialized,
    ) -> KTable:
        """Put an aggregate behind this grouping, repartitioning first where keys may have changed."""
        from kstreams_repl.dsl.ktable import KTable

        graph, parent, sources = self._graph, self._node, self._sources
        if self._repartition_required:
            # a new one each time uses numbers up even where the first one is shared
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
        return KTable(
            self._log,
            node_name,
            table_key_serde,
            options.value_serde,
            sources,
            node,
            AggregateState((operator,), getter),
            options.name,
        )


def table_options(store: str | Materialized | None, keep: dict[str, Any]) -> Materialized | None:
    """The keyword arguments of a table operator; None when there are none.

    Raises:
        TopologyError: an argument that no table operator has.
    """
    known = {"key_serde", "value_serde", "caching", "logging", "retention", "history", "persistent", "topic_config"}
    unknown: set[str] = set(keep) - known
    if unknown:
        raise TopologyError(
            f"there is no option {sorted(unknown)[0]!r} for a table",
            hint=f"the options are: store, name, {', '.join(sorted(known))}",
        )
    return materialized(
        store,
        key_serde=serde_or_none(keep.get("key_serde")),
        value_serde=serde_or_none(keep.get("value_serde")),
        caching=keep.get("caching"),
        logging=keep.get("logging"),
        retention=keep.get("retention"),
        history=keep.get("history"),
        persistent=keep.get("persistent"),
        topic_config=keep.get("topic_config"),
    )
