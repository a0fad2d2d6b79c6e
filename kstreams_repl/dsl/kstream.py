"""`KStream`: a stream of records. Each operator returns a new stream; nothing runs until the topology is deployed or driven.

Functions take `(key, value)` unless stated otherwise. `name=` names the node; otherwise names are generated as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kstreams_repl.dsl.branched import BranchedKStream
from kstreams_repl.dsl.call_log import BuildLog, logged
from kstreams_repl.dsl.graph_nodes import (
    Consumed,
    GraphNode,
    OperatorGraphNode,
    RepartitionGraphNode,
    SinkGraphNode,
    SourceGraphNode,
)
from kstreams_repl.dsl.grouped_stream import KGroupedStream
from kstreams_repl.dsl.joinable_stream import JoinableStream
from kstreams_repl.dsl.ktable import KTable
from kstreams_repl.dsl.options import Materialized, materialized
from kstreams_repl.dsl.stateless_stream import Predicate, StatelessStream
from kstreams_repl.dsl.store_plans import table_store
from kstreams_repl.dsl.stream_base import check_callable, check_kind, first_known, serde_or_none
from kstreams_repl.dsl.table_sources import SourceState
from kstreams_repl.dsl.windows import Millis
from kstreams_repl.errors import TopologyError
from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.pass_through import PassThrough
from kstreams_repl.operators.processor_api import FixedKeyProcessorOperator, ProcessorOperator
from kstreams_repl.operators.stream_branch import StreamBranch
from kstreams_repl.operators.stream_select_key import StreamSelectKey
from kstreams_repl.operators.table_source import TableSource
from kstreams_repl.topology.connected_stores import store_names, supplied_stores
from kstreams_repl.topology.names import validate_name


class KStream(StatelessStream, JoinableStream):
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

    @logged
    def split(self, *, name: str | None = None) -> BranchedKStream:
        """Send each record to the first branch whose predicate is true: `split().branch(p).branch(q).default_branch()`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> branches = words.split(name="by-").branch(lambda key, word: len(word) > 3, name="long").default_branch(name="short")
            >>> sorted(branches)
            ['by-long', 'by-short']
        """
        operator = StreamBranch([], [])
        node = OperatorGraphNode(self._graph.name_or_generate(name, "KSTREAM-BRANCH-"), self._graph.here(), operator)
        self._graph.add(self._node, node)
        return BranchedKStream(self._log, self, node, operator)

    @logged
    def branch(self, *predicates: Predicate, name: str | None = None) -> list[KStream]:
        """Return one stream per predicate, in order (KIP-28); records that match none are dropped. `split` is its current form.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> long_words, others = words.branch(lambda key, word: len(word) > 3, lambda key, word: True)
        """
        if not predicates:
            raise TopologyError("branch() needs at least one predicate", hint="pass one (key, value) function per branch")
        splitter = self.split(name=name)
        for predicate in predicates:
            splitter.branch(predicate)
        return list(splitter.no_default_branch().values())

    @logged
    def merge(self, other: KStream, *, name: str | None = None) -> KStream:
        """Merge the records of both streams; each stream's order is kept, with no order between them.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> both = words.merge(builder.stream("more-words", key_serde="string", value_serde="string"))
        """
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
                `timestamp` and `headers` of the record to write.
            name: name of the node.
            key_serde, value_serde: None = the stream's, else the application's defaults.
            partitioner: (topic, key, value, partitions) -> a partition, a set of partitions (an empty set drops the record) or
                None (by key).

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> words.to("copy")
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

    def send_to(
        self,
        topic: str | Callable[..., str],
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        partitioner: Callable[..., Any] | None = None,
    ) -> None:
        """Write to a topic as `to` does, under KIP-28's name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> words.send_to("copy")
        """
        self.to(topic, name=name, key_serde=key_serde, value_serde=value_serde, partitioner=partitioner)

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
        """Write to an existing topic and continue from there (KIP-28): `to(topic)`, then `stream(topic)`.

        For a topic that the application creates and sizes itself use `repartition`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> copied = words.through("copy")
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
        """Write to a topic that the application creates (``<application.id>-<name>-repartition``) and continue from there.

        Records with a None key are dropped, uncounted, unless a left or outer join follows.

        Args:
            name: prefix of the topic's name; unlike other names it consumes no number.
            key_serde, value_serde: None = the stream's, else the application's defaults.
            partitions: number of partitions; None = as many as upstream has.
            partitioner: as for `to`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> moved = words.select_key(lambda key, word: word).repartition(name="by-word", partitions=4)
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
        topic_config: Mapping[str, str] | None = None,
    ) -> KTable:
        """Interpret each record as the new row of its key; a None value deletes the row, a None key is dropped and counted.

        Args:
            name: name of the node; None = generated.
            store: name of the store, for queries; or a `Materialized`.
            key_serde, value_serde, caching, logging, history, persistent, topic_config: options of the table's store, as in
                `Materialized`; None = its default.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> last = words.to_table(store="last-word")
        """
        options = materialized(
            store, key_serde=key_serde, value_serde=value_serde, caching=caching, logging=logging, history=history,
            persistent=persistent, topic_config=topic_config,
        ) or Materialized()
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
        """Group by the records' key; `name=` names the repartition topic if one is needed.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> counts = words.group_by_key().count(store="counts")
        """
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
        """Group by `selector(key, value)`; the following aggregate repartitions by that key.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> counts = words.group_by(lambda key, word: word, key_serde="string").count(store="counts")
        """
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
        """Run a user's `Processor`; what it forwards becomes a stream whose key may have changed.

        Args:
            supplier: returns a fresh processor for each task, usually its class.
            stores: names of the stores it uses, added with `StreamsBuilder.add_state_store`.
            name: name of the node.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> class Twice(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record)
            ...         self.context.forward(record)
            ...
            >>> doubled = words.process(Twice, name="twice")
        """
        node = self._process(ProcessorOperator(self._checked(supplier)), supplier, "KSTREAM-PROCESSOR-", stores, name)
        return KStream(self._log, node.name, None, None, self._sources, node, repartition_required=True)

    @logged
    def process_values(self, supplier: Callable[[], Any], *, stores: Iterable[str] = (), name: str | None = None) -> KStream:
        """Run a user's `FixedKeyProcessor`, which cannot change keys, so that no repartitioning follows.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> class Length(ks.FixedKeyProcessor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(len(record.value)))
            ...
            >>> lengths = words.process_values(Length, name="lengths")
        """
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
