"""Operators of a stream that return a stream of the same kind or end it: `filter`, `map`, ..., `to`, `repartition`, `process`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

from kstreams_repl.dsl.call_log import BuildLog, logged
from kstreams_repl.dsl.graph_nodes import (
    Consumed,
    GraphNode,
    OperatorGraphNode,
    RepartitionGraphNode,
    SinkGraphNode,
    SourceGraphNode,
)
from kstreams_repl.dsl.stream_base import AbstractStream, check_callable, check_kind
from kstreams_repl.errors import TopologyError
from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.pass_through import PassThrough
from kstreams_repl.operators.processor_api import FixedKeyProcessorOperator, ProcessorOperator
from kstreams_repl.operators.stream_filter import StreamFilter
from kstreams_repl.operators.stream_flat_map import StreamFlatMap
from kstreams_repl.operators.stream_flat_map_values import StreamFlatMapValues
from kstreams_repl.operators.stream_map import StreamMap
from kstreams_repl.operators.stream_map_values import StreamMapValues
from kstreams_repl.operators.stream_peek import StreamPeek, StreamPrint
from kstreams_repl.operators.stream_select_key import StreamSelectKey
from kstreams_repl.topology.connected_stores import store_names, supplied_stores
from kstreams_repl.topology.names import validate_name

Predicate = Callable[[Any, Any], Any]


class StreamOperators(AbstractStream):
    """The operators of `KStream` that need no other kind of stream or table."""

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
    def filter(self, predicate: Predicate, *, name: str | None = None) -> Self:
        """Keep records for which `predicate(key, value)` is true.

        Args:
            predicate: (key, value) -> truth value.
            name: name of the node; None = generated.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> long_words = words.filter(lambda key, word: len(word) > 3)
        """
        check_callable(predicate, "predicate", "filter")
        return self._put(StreamFilter(predicate), "KSTREAM-FILTER-", name, key_serde=self.key_serde, value_serde=self.value_serde)

    @logged
    def filter_not(self, predicate: Predicate, *, name: str | None = None) -> Self:
        """Keep records for which `predicate(key, value)` is false.

        Args:
            predicate: (key, value) -> truth value.
            name: name of the node; None = generated.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> kept = words.filter_not(lambda key, word: word.startswith("#"))
        """
        check_callable(predicate, "predicate", "filter_not")
        operator = StreamFilter(predicate, negate=True)
        return self._put(operator, "KSTREAM-FILTER-", name, key_serde=self.key_serde, value_serde=self.value_serde)

    @logged
    def map(self, mapper: Callable[[Any, Any], tuple[Any, Any]], *, name: str | None = None) -> Self:
        """Replace each record by a new (key, value). The key may change, so operators that need it repartition first.

        Args:
            mapper: (key, value) -> (new key, new value).
            name: name of the node; None = generated.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> by_letter = words.map(lambda key, word: (word[:1], word))
        """
        check_callable(mapper, "mapper", "map")
        return self._put(StreamMap(mapper), "KSTREAM-MAP-", name, key_changing=True)

    @logged
    def map_values(self, mapper: Callable[..., Any], *, with_key: bool = False, name: str | None = None) -> Self:
        """Replace each record's value: `mapper(value)`, or `mapper(key, value)` with `with_key=True`. None values are passed too.

        Args:
            mapper: (value) -> new value, or (key, value) -> new value with `with_key=True`.
            with_key: whether `mapper` takes the key too.
            name: name of the node; None = generated.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> loud = words.map_values(str.upper)
            >>> with_key = words.map_values(lambda key, word: f"{key}: {word}", with_key=True)
        """
        check_callable(mapper, "mapper", "map_values", "key, value" if with_key else "value")
        return self._put(
            StreamMapValues(mapper, with_key), "KSTREAM-MAPVALUES-", name, key_serde=self.key_serde, value_changing=True
        )

    @logged
    def flat_map(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]], *, name: str | None = None) -> Self:
        """Replace each record by any number of (key, value) pairs, in the order of the iterable.

        Args:
            mapper: (key, value) -> an iterable of (key, value) pairs.
            name: name of the node; None = generated.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> letters = words.flat_map(lambda key, word: [(letter, 1) for letter in word])
        """
        check_callable(mapper, "mapper", "flat_map")
        return self._put(StreamFlatMap(mapper), "KSTREAM-FLATMAP-", name, key_changing=True)

    @logged
    def flat_map_values(self, mapper: Callable[..., Iterable[Any]], *, with_key: bool = False, name: str | None = None) -> Self:
        """Replace each record by any number of values with the same key.

        Args:
            mapper: (value) -> an iterable of values, or (key, value) -> the same with `with_key=True`.
            with_key: whether `mapper` takes the key too.
            name: name of the node; None = generated.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> parts = words.flat_map_values(str.split)
        """
        check_callable(mapper, "mapper", "flat_map_values", "key, value" if with_key else "value")
        return self._put(
            StreamFlatMapValues(mapper, with_key), "KSTREAM-FLATMAPVALUES-", name, key_serde=self.key_serde, value_changing=True
        )

    @logged
    def select_key(self, selector: Callable[[Any, Any], Any], *, name: str | None = None) -> Self:
        """Replace each record's key by `selector(key, value)`.

        Args:
            selector: (key, value) -> new key.
            name: name of the node; None = generated.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> by_word = words.select_key(lambda key, word: word)
        """
        check_callable(selector, "selector", "select_key")
        return self._put(StreamSelectKey(selector), "KSTREAM-KEY-SELECT-", name, value_serde=self.value_serde, key_changing=True)

    @logged
    def peek(self, action: Callable[[Any, Any], Any], *, name: str | None = None) -> Self:
        """Call `action(key, value)` for each record and pass it on unchanged.

        Args:
            action: (key, value) -> anything; the result is ignored.
            name: name of the node; None = generated.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> seen = []
            >>> same = words.peek(lambda key, word: seen.append(word))
        """
        check_callable(action, "action", "peek")
        return self._put(StreamPeek(action), "KSTREAM-PEEK-", name, key_serde=self.key_serde, value_serde=self.value_serde)

    @logged
    def foreach(self, action: Callable[[Any, Any], Any], *, name: str | None = None) -> None:
        """Call `action(key, value)` for each record; the stream ends here.

        Args:
            action: (key, value) -> anything; the result is ignored.
            name: name of the node; None = generated.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> seen = []
            >>> words.foreach(lambda key, word: seen.append(word))
        """
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
        """Print each record as ``[label]: key, value`` to standard output, or append it to a file; the stream ends here.

        Args:
            label: what stands in brackets before each record; None = the stream's name.
            mapper: (key, value) -> the text after the label; None = ``key, value``.
            path: file to append to, on the machine that runs the task; None = standard output.
            name: name of the node; None = generated.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> words.print(label="words")
        """
        if mapper is not None:
            check_callable(mapper, "mapper", "print")
        self._put(StreamPrint(label if label is not None else self.name, mapper, path), "KSTREAM-PRINTER-", name)

    @logged
    def merge(self, other: Self, *, name: str | None = None) -> Self:
        """Merge the records of both streams; each stream's order is kept, with no order between them.

        Args:
            other: a stream of the same builder.
            name: name of the node; None = generated.

        Raises:
            TopologyError: `other` is not a stream, or belongs to another builder.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> both = words.merge(builder.stream("more-words", key_serde="string", value_serde="string"))
        """
        check_kind(other, type(self), "merge")
        node = OperatorGraphNode(self._graph.name_or_generate(name, "KSTREAM-MERGE-"), self._graph.here(), PassThrough())
        node.merges = True
        self._graph.add((self._node, other._node), node)
        key_serde = self.key_serde if self.key_serde is other.key_serde else None
        value_serde = self.value_serde if self.value_serde is other.value_serde else None
        required = self._repartition_required or other._repartition_required
        sources = self._sources | other._sources
        return type(self)(self._log, node.name, key_serde, value_serde, sources, node, repartition_required=required)

    @logged
    def repartition(
        self,
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        partitions: int | None = None,
        partitioner: Callable[..., Any] | None = None,
    ) -> Self:
        """Write to a topic that the application creates (``<application.id>-<name>-repartition``) and continue from there.

        Records with a None key are dropped, uncounted, unless a left or outer join follows.

        Args:
            name: prefix of the topic's name; unlike other names it consumes no number.
            key_serde, value_serde: None = the stream's, else the application's defaults.
            partitions: number of partitions; None = as many as upstream has.
            partitioner: as for `to`.

        Raises:
            TopologyError: `partitions` is not a number of 1 or more.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> moved = words.select_key(lambda key, word: word).repartition(name="by-word", partitions=4)
        """
        if partitions is not None and (isinstance(partitions, bool) or not isinstance(partitions, int) or partitions <= 0):
            raise TopologyError(
                f"partitions must be a whole number >= 1, got {partitions!r}", hint="leave it out for as many as upstream has"
            )
        if partitioner is not None:
            check_callable(partitioner, "partitioner", "repartition")
        prefix = self._graph.new_processor_name("KSTREAM-REPARTITION-") if name is None else validate_name(name, "node")
        key, value = self._serdes(key_serde, value_serde)
        node = self._graph.new_repartition(
            prefix,
            key_serde=key,
            value_serde=value,
            partitioner=partitioner,
            partitions=partitions,
            optimizable=False,
        )
        self._graph.add(self._node, node)
        return type(self)(self._log, node.name, node.key_serde, node.value_serde, frozenset((node.name,)), node)

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

        Raises:
            InvalidNameError: Kafka does not accept the name of the topic.

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
        key, value = self._serdes(key_serde, value_serde)
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
    ) -> Self:
        """Write to an existing topic and continue from there (KIP-28): `to(topic)`, then `stream(topic)`.

        For a topic that the application creates and sizes itself use `repartition`.

        Args:
            topic: name of the topic; it must exist.
            name: name of the source node, and prefix of the sink's; None = generated.
            key_serde, value_serde: serdes of the topic; None = the stream's, else the application's defaults.
            partitioner: as for `to`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> copied = words.through("copy")
        """
        key, value = self._serdes(key_serde, value_serde)
        self.to(topic, name=None if name is None else f"{name}-sink", key_serde=key, value_serde=value, partitioner=partitioner)
        source = self._graph.name_or_generate(name, "KSTREAM-SOURCE-")
        node = SourceGraphNode(source, self._graph.here(), (validate_name(topic, "topic"),), None, Consumed(key, value))
        self._graph.add(self._graph.root, node)
        return type(self)(self._log, source, key, value, frozenset((source,)), node)

    @logged
    def process(self, supplier: Callable[[], Any], *, stores: Iterable[str] = (), name: str | None = None) -> Self:
        """Run a user's `Processor`; what it forwards becomes a stream whose key may have changed.

        Args:
            supplier: returns a fresh processor for each task, usually its class.
            stores: names of the stores it uses, added with `StreamsBuilder.add_state_store`.
            name: name of the node.

        Raises:
            TopologyError: `supplier` is not callable.

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
        return type(self)(self._log, node.name, None, None, self._sources, node, repartition_required=True)

    @logged
    def process_values(self, supplier: Callable[[], Any], *, stores: Iterable[str] = (), name: str | None = None) -> Self:
        """Run a user's `FixedKeyProcessor`, which cannot change keys, so that no repartitioning follows.

        Args:
            supplier: returns a fresh processor for each task, usually its class.
            stores: names of the stores it uses, added with `StreamsBuilder.add_state_store`.
            name: name of the node; None = generated.

        Raises:
            TopologyError: `supplier` is not callable.

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
        return type(self)(
            self._log, node.name, self.key_serde, None, self._sources, node, repartition_required=self._repartition_required
        )

    def _process(self, operator: Operator, supplier: Any, prefix: str, stores: Iterable[str], name: str | None) -> OperatorGraphNode:
        node_name = self._graph.new_processor_name(prefix) if name is None else validate_name(name, "node")
        used = store_names(stores, node_name)
        node = OperatorGraphNode(node_name, self._graph.here(), operator, used_stores=used)
        node.supplied_stores = supplied_stores(supplier, node_name)
        self._graph.add(self._node, node)
        return node

    def _checked(self, supplier: Any) -> Callable[[], Any]:
        if not callable(supplier):
            raise TopologyError(
                f"expected a callable that returns a processor, got {supplier!r}",
                hint="pass the processor's class, or a function that returns a fresh processor",
                node=self.name,
            )
        return supplier  # type: ignore[no-any-return]

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
    ) -> Self:
        """Add a stateless operator downstream of this stream."""
        node = OperatorGraphNode(self._graph.name_or_generate(name, prefix), self._graph.here(), operator)
        node.key_changing = key_changing
        node.value_changing = value_changing
        self._graph.add(self._node, node)
        required = self._repartition_required or key_changing
        return type(self)(self._log, node.name, key_serde, value_serde, self._sources, node, repartition_required=required)
