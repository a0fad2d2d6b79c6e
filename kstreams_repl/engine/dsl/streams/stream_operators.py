"""Operators of a stream that return a stream of the same kind or end it: `filter`, `map`, ..., `process`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.dsl.graph.graph_nodes import OperatorGraphNode
from kstreams_repl.engine.dsl.kip28_processor import adapted
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, check_callable, check_kind
from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.operators.processor_api import FixedKeyProcessorOperator, ProcessorOperator
from kstreams_repl.engine.operators.streams.pass_through import PassThrough
from kstreams_repl.engine.operators.streams.stream_filter import StreamFilter
from kstreams_repl.engine.operators.streams.stream_flat_map import StreamFlatMap
from kstreams_repl.engine.operators.streams.stream_flat_map_values import StreamFlatMapValues
from kstreams_repl.engine.operators.streams.stream_map import StreamMap
from kstreams_repl.engine.operators.streams.stream_map_values import StreamMapValues
from kstreams_repl.engine.operators.streams.stream_peek import StreamPeek, StreamPrint
from kstreams_repl.engine.operators.streams.stream_select_key import StreamSelectKey
from kstreams_repl.engine.topology.checks import refuse_async
from kstreams_repl.engine.topology.connected_stores import store_names, supplied_stores
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import KeyValueMapper, ProcessorSupplier, ValueMapper

Predicate = Callable[[Any, Any], Any]


class StreamOperators(AbstractStream):
    """The operators of `KStream` that need no other kind of stream or table."""

    @logged
    def filter(self, predicate: Predicate, *, name: str | None = None) -> Self:
        """Keep records for which `predicate(key, value)` is true.

        Args:
            predicate: (key, value) -> truth value.
            name: name of the node; None = generated.

        Raises:
            TopologyError: a function is not callable.

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

        Raises:
            TopologyError: a function is not callable.

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

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> by_letter = words.map(lambda key, word: (word[:1], word))
        """
        check_callable(mapper, "mapper", "map")
        return self._put(StreamMap(mapper), "KSTREAM-MAP-", name, key_changing=True)

    @logged
    def map_values(self, mapper: ValueMapper, *, with_key: bool = False, name: str | None = None) -> Self:
        """Replace each record's value: `mapper(value)`, or `mapper(key, value)` with `with_key=True`. None values are passed too.

        Args:
            mapper: (value) -> new value, or (key, value) -> new value with `with_key=True`.
            with_key: whether `mapper` takes the key too.
            name: name of the node; None = generated.

        Raises:
            TopologyError: a function is not callable.

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

        Raises:
            TopologyError: a function is not callable.

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

        Raises:
            TopologyError: a function is not callable.

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
    def select_key(self, selector: KeyValueMapper, *, name: str | None = None) -> Self:
        """Replace each record's key by `selector(key, value)`.

        Args:
            selector: (key, value) -> new key.
            name: name of the node; None = generated.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> by_word = words.select_key(lambda key, word: word)
        """
        check_callable(selector, "selector", "select_key")
        return self._put(StreamSelectKey(selector), "KSTREAM-KEY-SELECT-", name, value_serde=self.value_serde, key_changing=True)

    @logged
    def peek(self, action: Callable[[Any, Any], object], *, name: str | None = None) -> Self:
        """Call `action(key, value)` for each record and pass it on unchanged.

        Args:
            action: (key, value) -> anything; the result is ignored.
            name: name of the node; None = generated.

        Raises:
            TopologyError: a function is not callable.

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
    def foreach(self, action: Callable[[Any, Any], object], *, name: str | None = None) -> None:
        """Call `action(key, value)` for each record; the stream ends here.

        Args:
            action: (key, value) -> anything; the result is ignored.
            name: name of the node; None = generated.

        Raises:
            TopologyError: a function is not callable.

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

        Raises:
            TopologyError: a function is not callable.

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
    def process(self, supplier: ProcessorSupplier, *, stores: Iterable[str] = (), name: str | None = None) -> Self:
        """Run a user's `Processor`; what it forwards becomes a stream whose key may have changed.

        Args:
            supplier: returns a fresh processor for each task, usually its class. Also a `ProcessorDef` or class of KIP-28
                (`engine.dsl.kip28`).
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
        supplier = adapted(supplier)
        node = self._process(ProcessorOperator(self._checked(supplier, "process")), supplier, "KSTREAM-PROCESSOR-", stores, name)
        return self._after(node, None, None, key_changing=True)

    @logged
    def process_values(self, supplier: ProcessorSupplier, *, stores: Iterable[str] = (), name: str | None = None) -> Self:
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
        operator = FixedKeyProcessorOperator(self._checked(supplier, "process_values"))
        node = self._process(operator, supplier, "KSTREAM-PROCESSVALUES-", stores, name)
        return self._after(node, self.key_serde, None)

    def _process(self, operator: Operator, supplier: object, prefix: str, stores: Iterable[str], name: str | None) -> OperatorGraphNode:
        node_name = self._graph.new_processor_name(prefix) if name is None else validate_name(name, "node")
        used = store_names(stores, node_name)
        node = OperatorGraphNode(node_name, self._graph.here(), operator, used_stores=used)
        node.supplied_stores = supplied_stores(supplier, node_name)
        self._graph.add(self._node, node)
        return node

    def _checked(self, supplier: object, operator: str) -> Callable[[], Any]:
        if not callable(supplier):
            raise TopologyError(
                f"expected a callable that returns a processor, got {supplier!r}",
                hint="pass the processor's class, or a function that returns a fresh processor",
                node=self.name,
            )
        refuse_async(supplier, "supplier", operator)
        return supplier
