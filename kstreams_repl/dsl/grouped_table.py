"""`KGroupedTable`: rows regrouped by another key. Aggregates need two functions, one to put a value in and one to take it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kstreams_repl import serdes
from kstreams_repl.dsl.build_log import BuildLog, logged
from kstreams_repl.dsl.graph_nodes import GraphNode, OperatorGraphNode, RepartitionGraphNode
from kstreams_repl.dsl.grouped_stream import table_options
from kstreams_repl.dsl.options import Materialized
from kstreams_repl.dsl.store_plans import table_store
from kstreams_repl.dsl.stream_base import AbstractStream, check_callable, first_known
from kstreams_repl.dsl.table_state import AggregateState, stored
from kstreams_repl.operators.table_aggregate import TableAggregate, TableReduce
from kstreams_repl.serdes.change import change
from kstreams_repl.topology.names import REPARTITION_SUFFIX, validate_name

if TYPE_CHECKING:
    from kstreams_repl.dsl.ktable import KTable

AGGREGATE = "KTABLE-AGGREGATE-"
REDUCE = "KTABLE-REDUCE-"


def _zero() -> int:
    return 0


def _add_one(key: Any, value: Any, count: int) -> int:
    return count + 1


def _take_one(key: Any, value: Any, count: int) -> int:
    return count - 1


class KGroupedTable(AbstractStream):
    """Rows by group; always behind a repartition topic that carries new and old values."""

    def __init__(
        self,
        log: BuildLog,
        name: str,
        key_serde: Any,
        value_serde: Any,
        sources: frozenset[str],
        node: GraphNode,
        *,
        topic_name: str | None,
    ) -> None:
        super().__init__(log, name, key_serde, value_serde, sources, node)
        self._topic_name = topic_name
        self._repartition_node: RepartitionGraphNode | None = None

    @logged
    def count(self, *, store: str | Materialized | None = None, name: str | None = None, **keep: Any) -> KTable:
        """How many rows each group has.

        Args:
            store: name of the store, to query it by; or a `Materialized`.
            name: of the node.
            **keep: any of `caching=`, `logging=`, `key_serde=`, `history=`, `persistent=`, `topic_config=`.
        """
        options = table_options(store, keep) or Materialized()
        options = options if options.value_serde is not None else options.with_(value_serde=serdes.long)

        def make(store_name: str) -> TableAggregate:
            return TableAggregate(store_name, _zero, _add_one, _take_one, versioned=options.versioned)

        return self._table(make, options, AGGREGATE, name)

    @logged
    def reduce(
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """Fold the values of each group: `adder(aggregate, value)` puts one in, `subtractor(aggregate, value)` takes one out.

        A group's first value is its first aggregate. Options as for `count`, and `value_serde=`.
        """
        check_callable(adder, "adder", "reduce")
        check_callable(subtractor, "subtractor", "reduce")
        options = table_options(store, keep) or Materialized()
        options = options if options.value_serde is not None else options.with_(value_serde=self.value_serde)
        return self._table(
            lambda store_name: TableReduce(store_name, adder, subtractor, versioned=options.versioned), options, REDUCE, name
        )

    @logged
    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """Fold the values of each group: `adder(key, value, aggregate)` and `subtractor(key, value, aggregate)`, from
        `initializer()`.

        Options as for `count`, and `value_serde=` of the aggregate (None = the application's default).
        """
        check_callable(initializer, "initializer", "aggregate")
        check_callable(adder, "adder", "aggregate")
        check_callable(subtractor, "subtractor", "aggregate")
        options = table_options(store, keep) or Materialized()
        return self._table(
            lambda store_name: TableAggregate(store_name, initializer, adder, subtractor, versioned=options.versioned),
            options,
            AGGREGATE,
            name,
        )

    def _table(self, make: Callable[[str], Any], options: Materialized, prefix: str, name: str | None) -> KTable:
        from kstreams_repl.dsl.ktable import KTable

        graph = self._graph
        # whatever the aggregate, its store is called after aggregates
        store_name = options.name if options.name is not None else graph.new_store_name(AGGREGATE)
        sink = graph.suffix_or_generate(name, "-sink", "KSTREAM-SINK-")
        source = graph.suffix_or_generate(name, "-source", "KSTREAM-SOURCE-")
        node_name = graph.name_or_generate(name, prefix)
        if self._repartition_node is None or self._topic_name is None:
            self._repartition_node = RepartitionGraphNode(
                graph.here(),
                source_name=source,
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
        return KTable(self._log, node_name, key, options.value_serde, frozenset((repartition.name,)), node, state, options.name)
