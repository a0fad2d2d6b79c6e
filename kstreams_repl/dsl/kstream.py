"""`KStream`: records one by one. Each operator returns a new stream; nothing runs until the topology is deployed or driven.

Functions take `(key, value)` unless said otherwise. `name=` names the node; without it names are generated as Kafka Streams does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstreams_repl.dsl import stream_joins
from kstreams_repl.dsl.branched import BranchedKStream
from kstreams_repl.dsl.build_log import BuildLog, logged
from kstreams_repl.dsl.global_ktable import GlobalKTable
from kstreams_repl.dsl.graph_nodes import (
    Consumed,
    GraphNode,
    OperatorGraphNode,
    RepartitionGraphNode,
    SinkGraphNode,
    SourceGraphNode,
)
from kstreams_repl.dsl.grouped_stream import KGroupedStream
from kstreams_repl.dsl.ktable import KTable
from kstreams_repl.dsl.options import Materialized, materialized
from kstreams_repl.dsl.store_plans import table_store
from kstreams_repl.dsl.stream_base import AbstractStream, check_callable, check_kind, first_known, serde_or_none
from kstreams_repl.dsl.table_state import SourceState
from kstreams_repl.dsl.windows import JoinWindows, Millis
from kstreams_repl.errors import TopologyError
from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.pass_through import PassThrough
from kstreams_repl.operators.processor_api import FixedKeyProcessorOperator, ProcessorOperator
from kstreams_repl.operators.stream_branch import StreamBranch
from kstreams_repl.operators.stream_filter import StreamFilter
from kstreams_repl.operators.stream_flat_map import StreamFlatMap
from kstreams_repl.operators.stream_flat_map_values import StreamFlatMapValues
from kstreams_repl.operators.stream_map import StreamMap
from kstreams_repl.operators.stream_map_values import StreamMapValues
from kstreams_repl.operators.stream_peek import StreamPeek, StreamPrint
from kstreams_repl.operators.stream_select_key import StreamSelectKey
from kstreams_repl.operators.table_source import TableSource
from kstreams_repl.topology.names import validate_name
from kstreams_repl.topology.suppliers import store_names, supplied_stores

if TYPE_CHECKING:
    from kstreams_repl.dsl.kip28 import KStreamWindowed

Predicate = Callable[[Any, Any], Any]


class KStream(AbstractStream):
    """A stream of records. Get one from `StreamsBuilder.stream` or another stream or table.

    Example:
        >>> from kstreams_repl.dsl import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("words").filter(lambda key, word: word).map_values(str.upper).to("loud-words")
        >>> builder.build()
        Topology(4 nodes, 0 stores, 1 sub-topologies)
    """

    def __init__(
        self,
        log: BuildLog,
        name: str,
        key_serde: Any,
        value_serde: Any,
        sources: frozenset[str],
        node: GraphNode,
        *,
        repartition_required: bool = False,
    ) -> None:
        super().__init__(log, name, key_serde, value_serde, sources, node)
        self._repartition_required = repartition_required
        self._repartition_node: RepartitionGraphNode | None = None

    def _put(
        self,
        operator: Operator,
        prefix: str,
        name: str | None,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        key_changing: bool = False,
        value_changing: bool = False,
    ) -> KStream:
        """Put a stateless operator behind this stream."""
        node = OperatorGraphNode(self._graph.name_or_generate(name, prefix), self._graph.here(), operator)
        node.key_changing = key_changing
        node.value_changing = value_changing
        self._graph.add(self._node, node)
        required = self._repartition_required or key_changing
        return KStream(self._log, node.name, key_serde, value_serde, self._sources, node, repartition_required=required)

    @logged
    def filter(self, predicate: Predicate, *, name: str | None = None) -> KStream:
        """Keep records for which `predicate(key, value)` is true."""
        check_callable(predicate, "predicate", "filter")
        return self._put(StreamFilter(predicate), "KSTREAM-FILTER-", name, key_serde=self.key_serde, value_serde=self.value_serde)

    @logged
    def filter_not(self, predicate: Predicate, *, name: str | None = None) -> KStream:
        """Keep records for which `predicate(key, value)` is false."""
        check_callable(predicate, "predicate", "filter_not")
        operator = StreamFilter(predicate, negate=True)
        return self._put(operator, "KSTREAM-FILTER-", name, key_serde=self.key_serde, value_serde=self.value_serde)

    @logged
    def map(self, mapper: Callable[[Any, Any], tuple[Any, Any]], *, name: str | None = None) -> KStream:
        """A new (key, value) for each record. The key may change: what needs keys in place repartitions first."""
        check_callable(mapper, "mapper", "map")
        return self._put(StreamMap(mapper), "KSTREAM-MAP-", name, key_changing=True)

    @logged
    def map_values(self, mapper: Callable[..., Any], *, with_key: bool = False, name: str | None = None) -> KStream:
        """A new value for each record: `mapper(value)`, or `mapper(key, value)` with `with_key=True`. None values are passed to
        it."""
        check_callable(mapper, "mapper", "map_values", "key, value" if with_key else "value")
        return self._put(
            StreamMapValues(mapper, with_key), "KSTREAM-MAPVALUES-", name, key_serde=self.key_serde, value_changing=True
        )

    @logged
    def flat_map(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]], *, name: str | None = None) -> KStream:
        """Any number of (key, value) pairs for each record, in the order of the iterable."""
        check_callable(mapper, "mapper", "flat_map")
        return self._put(StreamFlatMap(mapper), "KSTREAM-FLATMAP-", name, key_changing=True)

    @logged
    def flat_map_values(
        self, mapper: Callable[..., Iterable[Any]], *, with_key: bool = False, name: str | None = None
    ) -> KStream:
        """Any number of values under the same key for each record."""
        check_callable(mapper, "mapper", "flat_map_values", "key, value" if with_key else "value")
        return self._put(
            StreamFlatMapValues(mapper, with_key), "KSTREAM-FLATMAPVALUES-", name, key_serde=self.key_serde, value_changing=True
        )

    @logged
    def select_key(self, selector: Callable[[Any, Any], Any], *, name: str | None = None) -> KStream:
        """A new key for each record: `selector(key, value)`."""
        check_callable(selector, "selector", "select_key")
        return self._put(StreamSelectKey(selector), "KSTREAM-KEY-SELECT-", name, value_serde=self.value_serde, key_changing=True)

    @logged
    def peek(self, action: Callable[[Any, Any], Any], *, name: str | None = None) -> KStream:
        """Call `action(key, value)` for each record and pass it on unchanged."""
        check_callable(action, "action", "peek")
        return self._put(StreamPeek(action), "KSTREAM-PEEK-", name, key_serde=self.key_serde, value_serde=self.value_serde)

    @logged
    def foreach(self, action: Callable[[Any, Any], Any], *, name: str | None = None) -> None:
        """Call `action(key, value)` for each record; the stream ends here."""
        check_callable(action, "action", "foreach")
        self._put(StreamPeek(action, forward_down=False), "KSTREAM-FOREACH-", name)

    @logged
    def print(
        self,
        *,
        label: str | None = None,
        mapper: Callable[[Any, Any], str] | None = None,
        path: str | None = None,
        name: str | None = None,
    ) -> None:
        """Print each record as ``[label]: key, value`` to standard output, or append it to a file; the stream ends here."""
        if mapper is not None:
            check_callable(mapper, "mapper", "print")
        self._put(StreamPrint(label if label is not None else self.name, mapper, path), "KSTREAM-PRINTER-", name)

    @logged
    def split(self, *, name: str | None = None) -> BranchedKStream:
        """Send each record to the first branch whose predicate holds: `split().branch(p).branch(q).default_branch()`."""
        operator = StreamBranch([], [])
        node = OperatorGraphNode(self._graph.name_or_generate(name, "KSTREAM-BRANCH-"), self._graph.here(), operator)
        self._graph.add(self._node, node)
        return BranchedKStream(self._log, self, node, operator)

    @logged
    def branch(self, *predicates: Predicate, name: str | None = None) -> list[KStream]:
        """One stream per predicate, in order (KIP-28); records that match none are dropped. `split` is today's form."""
        if not predicates:
            raise TopologyError("branch() needs at least one predicate", hint="pass one (key, value) function per branch")
        splitter = self.split(name=name)
        for predicate in predicates:
            splitter.branch(predicate)
        return list(splitter.no_default_branch().values())

    @logged
    def merge(self, other: KStream, *, name: str | None = None) -> KStream:
        """The records of both streams; those of each stay in order, there is no order between them."""
        check_kind(other, KStream, "merge")
        node = OperatorGraphNode(self._graph.name_or_generate(name, "KSTREAM-MERGE-"), self._graph.here(), PassThrough())
        node.merges = True
        self._graph.add((self._node, other._node), node)
        return KStream(
            self._log,
            node.name,
            self.key_serde if self.key_serde is other.key_serde else None,
            self.value_serde if self.value_serde is other.value_serde else None,
            self._sources | other._sources,
            node,
            repartition_required=self._repartition_required or other._repartition_required,
        )

    @logged
    def to(
        self,
        topic: str | Callable[..., str],
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        partitioner: Callable[..., Any] | None = None,
    ) -> None:
        """Write the stream to a topic, or to the topic that `topic(key, value, record_metadata)` names for each record.

        Args:
            topic: a name or a function; its third argument has `topic`, `partition` and `offset` of the source record, and the
                `timestamp` and `headers` of the one to be written.
            name: of the node.
            key_serde, value_serde: None = the stream's, else the application's defaults.
            partitioner: (topic, key, value, partitions) -> a partition, a set of them (empty: drop the record) or None (by key).
        """
        if callable(topic):
            check_callable(topic, "topic", "to")
        else:
            validate_name(topic, "topic")
        if partitioner is not None:
            check_callable(partitioner, "partitioner", "to")
        node_name = self._graph.name_or_generate(name, "KSTREAM-SINK-")
        key, value = (
            first_known(serde_or_none(key_serde), self.key_serde),
            first_known(serde_or_none(value_serde), self.value_serde),
        )
        self._graph.add(self._node, SinkGraphNode(node_name, self._graph.here(), topic, key, value, partitioner))

    def send_to(self, topic: str | Callable[..., str], **options: Any) -> None:
        """KIP-28's name of `to`."""
        self.to(topic, **options)

    @logged
    def through(
        self,
        topic: str,
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        partitioner: Callable[..., Any] | None = None,
    ) -> KStream:
        """Write to a topic of yours and go on from there (KIP-28): `to(topic)`, then `stream(topic)`.

        The topic must exist. For a topic that the application makes and sizes itself use `repartition`.
        """
        key, value = (
            first_known(serde_or_none(key_serde), self.key_serde),
            first_known(serde_or_none(value_serde), self.value_serde),
        )
        self.to(topic, name=None if name is None else f"{name}-sink", key_serde=key, value_serde=value, partitioner=partitioner)
        source = self._graph.name_or_generate(name, "KSTREAM-SOURCE-")
        node = SourceGraphNode(source, self._graph.here(), (validate_name(topic, "topic"),), None, Consumed(key, value))
        self._graph.add(self._graph.root, node)
        return KStream(self._log, source, key, value, frozenset((source,)), node)

    @logged
    def repartition(
        self,
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        partitions: int | None = None,
        partitioner: Callable[..., Any] | None = None,
    ) -> KStream:
        """Write to a topic that the application makes (``<application.id>-<name>-repartition``) and go on from there.

        Records with a None key are dropped, uncounted, unless a left or outer join follows.

        Args:
            name: first part of the topic's name; unlike other names it uses no number up.
            key_serde, value_serde: None = the stream's, else the application's defaults.
            partitions: how many; None = as many as upstream has.
            partitioner: as for `to`.
        """
        if partitions is not None and (isinstance(partitions, bool) or not isinstance(partitions, int) or partitions <= 0):
            raise TopologyError(f"a topic cannot have {partitions!r} partitions", hint="give a number of 1 or more")
        if partitioner is not None:
            check_callable(partitioner, "partitioner", "repartition")
        prefix = self._graph.new_processor_name("KSTREAM-REPARTITION-") if name is None else validate_name(name, "node")
        node = self._graph.new_repartition(
            prefix,
            key_serde=first_known(serde_or_none(key_serde), self.key_serde),
            value_serde=first_known(serde_or_none(value_serde), self.value_serde),
            partitioner=partitioner,
            partitions=partitions,
            optimizable=False,
        )
        self._graph.add(self._node, node)
        return KStream(self._log, node.name, node.key_serde, node.value_serde, frozenset((node.name,)), node)

    @logged
    def to_table(
        self,
        *,
        name: str | None = None,
        store: str | Materialized | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        caching: bool | None = None,
        logging: bool | None = None,
        history: Millis | None = None,
        persistent: bool | None = None,
    ) -> KTable:
        """Read each record as the new row of its key; a None value deletes it, a None key is dropped and counted."""
        key, value = serde_or_none(key_serde), serde_or_none(value_serde)
        options = (
            materialized(
                store, key_serde=key, value_serde=value, caching=caching, logging=logging, history=history, persistent=persistent
            )
            or Materialized()
        )
        graph = self._graph
        node_name = graph.name_or_generate(name, "KSTREAM-TOTABLE-")
        store_name = options.name if options.name is not None else graph.new_store_name("KSTREAM-TOTABLE-")
        key, value = first_known(options.key_serde, self.key_serde), first_known(options.value_serde, self.value_serde)
        parent, sources = self._node, self._sources
        if self._repartition_required:
            repartition = graph.new_repartition(node_name, key_serde=key, value_serde=value)
            graph.add(self._node, repartition)
            parent, sources = repartition, frozenset((repartition.name,))
        operator = TableSource(options.name, versioned=options.versioned)
        node = OperatorGraphNode(node_name, graph.here(), operator, store=table_store(options, store_name, key, value))
        node.output_versioned = options.versioned
        graph.add(parent, node)
        return KTable(self._log, node_name, key, value, sources, node, SourceState(operator, store_name), options.name)

    @logged
    def group_by_key(self, *, name: str | None = None, key_serde: Any = None, value_serde: Any = None) -> KGroupedStream:
        """Group by the key the records have; `name=` names the repartition topic if one is needed."""
        key, value = (
            first_known(serde_or_none(key_serde), self.key_serde),
            first_known(serde_or_none(value_serde), self.value_serde),
        )
        if name is not None:
            validate_name(name, "node")
        return KGroupedStream(
            self._log,
            self.name,
            key,
            value,
            self._sources,
            self._node,
            repartition_required=self._repartition_required,
            topic_name=name,
        )

    @logged
    def group_by(
        self, selector: Callable[[Any, Any], Any], *, name: str | None = None, key_serde: Any = None, value_serde: Any = None
    ) -> KGroupedStream:
        """Group by `selector(key, value)`; the aggregate behind it repartitions by that key."""
        check_callable(selector, "selector", "group_by")
        keyed = self._put(StreamSelectKey(selector), "KSTREAM-KEY-SELECT-", name, key_changing=True)
        value = first_known(serde_or_none(value_serde), self.value_serde)
        return KGroupedStream(
            self._log,
            keyed.name,
            serde_or_none(key_serde),
            value,
            self._sources,
            keyed._node,
            repartition_required=True,
            topic_name=name,
        )

    @logged
    def process(self, supplier: Callable[[], Any], *, stores: Iterable[str] = (), name: str | None = None) -> KStream:
        """Run a `Processor` of your own; what it forwards goes on as a stream whose key may have changed.

        Args:
            supplier: returns a fresh processor for each task, usually its class.
            stores: names of the stores it uses, added with `StreamsBuilder.add_state_store`.
            name: of the node.
        """
        node = self._process(ProcessorOperator(self._checked(supplier)), supplier, "KSTREAM-PROCESSOR-", stores, name)
        return KStream(self._log, node.name, None, None, self._sources, node, repartition_required=True)

    @logged
    def process_values(self, supplier: Callable[[], Any], *, stores: Iterable[str] = (), name: str | None = None) -> KStream:
        """Run a `FixedKeyProcessor` of your own: it cannot change keys, so nothing is repartitioned behind it."""
        operator = FixedKeyProcessorOperator(self._checked(supplier))
        node = self._process(operator, supplier, "KSTREAM-PROCESSVALUES-", stores, name)
        return KStream(
            self._log, node.name, self.key_serde, None, self._sources, node, repartition_required=self._repartition_required
        )

    def _process(
        self, operator: Operator, supplier: Any, prefix: str, stores: Iterable[str], name: str | None
    ) -> OperatorGraphNode:
        node_name = self._graph.new_processor_name(prefix) if name is None else validate_name(name, "node")
        used = store_names(stores, node_name)
        node = OperatorGraphNode(node_name, self._graph.here(), operator, used_stores=used)
        node.supplied_stores = supplied_stores(supplier, node_name)
        self._graph.add(self._node, node)
        return node

    def _checked(self, supplier: Any) -> Callable[[], Any]:
        if not callable(supplier):
            raise TopologyError(
                f"a processor supplier must be callable, not {supplier!r}",
                hint="pass the processor's class, or a function that returns a fresh processor",
                node=self.name,
            )
        return supplier  # type: ignore[no-any-return]

    @logged
    def join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        **options: Any,
    ) -> KStream:
        """Inner join with a stream (give `windows`), a table, or a global table (give `key=`).

        `joiner(value, other value)` makes the result's value, `joiner(key, value, other value)` with `with_key=True`.

        - Stream: both records have the same key and lie within `windows`; both need a key and a value. Options: `store=` (prefix
          of the store names), `key_serde=`, `value_serde=`, `other_value_serde=`, `logging=`, `persistent=`, `name=`.
        - Table: the row of the record's key now, or with `grace=` as of the record's time (the table must be versioned). Options:
          `grace=`, `key_serde=`, `value_serde=`, `name=`.
        - Global table: the row of `key(key, value)`. Options: `key=`, `name=`.
        """
        return stream_joins.join(self, other, joiner, windows, "inner", options)

    @logged
    def left_join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        **options: Any,
    ) -> KStream:
        """As `join`, but a record without a match is joined with None; with a stream once the window has closed."""
        return stream_joins.join(self, other, joiner, windows, "left", options)

    @logged
    def outer_join(
        self,
        other: KStream,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        **options: Any,
    ) -> KStream:
        """As `join` with a stream, but unmatched records of either side are joined with None once their window has closed."""
        return stream_joins.join(self, other, joiner, windows, "outer", options)

    def with_(self, window: JoinWindows | Millis) -> KStreamWindowed:
        """KIP-28's windowed stream: `left.with_(window).join(right.with_(window), joiner)`."""
        from kstreams_repl.dsl.kip28 import KStreamWindowed

        return KStreamWindowed(self, window)
