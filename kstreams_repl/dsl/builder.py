"""`StreamsBuilder`: where a topology begins. Streams and tables of topics, stores, and `build()`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kstreams_repl.dsl.build_log import BuildLog, Handle, Problem, logged
from kstreams_repl.dsl.global_ktable import GlobalKTable
from kstreams_repl.dsl.graph_nodes import (
    Consumed,
    GlobalStoreGraphNode,
    SourceGraphNode,
    StateStoreGraphNode,
    TableSourceGraphNode,
)
from kstreams_repl.dsl.grouped_stream import table_options
from kstreams_repl.dsl.kstream import KStream
from kstreams_repl.dsl.ktable import KTable
from kstreams_repl.dsl.optimizer import CONFIG_KEY, parse_optimizations
from kstreams_repl.dsl.options import Materialized
from kstreams_repl.dsl.store_plans import table_store
from kstreams_repl.dsl.stream_base import check_callable, first_known, serde_or_none
from kstreams_repl.dsl.table_state import SourceState
from kstreams_repl.errors import TopologyError, did_you_mean
from kstreams_repl.operators.processor_api import ProcessorOperator
from kstreams_repl.operators.table_source import TableSource
from kstreams_repl.topology.names import validate_name
from kstreams_repl.topology.origin import cell_started
from kstreams_repl.topology.stores import StoreBuilder
from kstreams_repl.topology.topology import Topology

TimestampExtractor = Callable[[Any, int], int]


class StreamsBuilder(Handle):
    """Builds a topology call by call.

    `build()` can be called any number of times; the builder can be extended afterwards. In a notebook each call remembers its
    cell: running a cell again replaces what it made (see `begin_cell`).

    Example:
        >>> builder = StreamsBuilder()
        >>> builder.stream("clicks").group_by_key().count(store="clicks-per-user").to_stream().to("counts")
        >>> print(builder.build().describe())
        Topologies:
           Sub-topology: 0
            Source: KSTREAM-SOURCE-0000000000 (topics: [clicks])
              --> KSTREAM-AGGREGATE-0000000001
            Processor: KSTREAM-AGGREGATE-0000000001 (stores: [clicks-per-user])
              --> KTABLE-TOSTREAM-0000000002
              <-- KSTREAM-SOURCE-0000000000
            Processor: KTABLE-TOSTREAM-0000000002 (stores: [])
              --> KSTREAM-SINK-0000000003
              <-- KSTREAM-AGGREGATE-0000000001
            Sink: KSTREAM-SINK-0000000003 (topic: counts)
              <-- KTABLE-TOSTREAM-0000000002
        <BLANKLINE>
        <BLANKLINE>
    """

    def __init__(self) -> None:
        self._log = BuildLog()

    @logged
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        name: str | None = None,
    ) -> KStream:
        """A stream of one topic, of several, or of all that a pattern matches in full.

        Args:
            topics: a name, several names, or a compiled pattern.
            pattern: a regular expression, instead of `topics`.
            key_serde, value_serde: a serde or its name; None = the application's defaults.
            timestamp_extractor: (record, partition time) -> ms; None = the record's own timestamp, negative ones are errors.
            offset_reset: "earliest", "latest" or "none", where no offset is committed; None = ``auto.offset.reset``.
            name: of the node.

        Raises:
            TopologyError, InvalidNameError: no topic, or names that Kafka refuses.
        """
        names, compiled = _topics(topics, pattern)
        consumed = _consumed(key_serde, value_serde, timestamp_extractor, offset_reset)
        graph = self._graph
        node = SourceGraphNode(graph.name_or_generate(name, "KSTREAM-SOURCE-"), graph.here(), names, compiled, consumed)
        graph.add(graph.root, node)
        return KStream(self._log, node.name, consumed.key_serde, consumed.value_serde, frozenset((node.name,)), node)

    @logged
    def table(
        self,
        topic: str,
        *,
        store: str | Materialized | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> KTable:
        """A topic as a table: each record is the new row of its key, None deletes it. Records with a None key are dropped and
        counted.

        Args:
            topic: its name.
            store: name of the store, to query it by; without one a store is made only if something needs it.
            key_serde, value_serde, timestamp_extractor, offset_reset, name: as for `stream`.
            **keep: any of `caching=`, `logging=`, `history=` (a versioned table that keeps so much), `persistent=`,
                `topic_config=`.
        """
        validate_name(topic, "topic")
        options = table_options(store, keep) or Materialized()
        graph = self._graph
        store_name = options.name if options.name is not None else graph.new_store_name(f"{topic}-")
        consumed = _consumed(
            first_known(key_serde, options.key_serde),
            first_known(value_serde, options.value_serde),
            timestamp_extractor,
            offset_reset,
        )
        source_name = graph.suffix_or_generate(name, "-source", "KSTREAM-SOURCE-")
        node_name = graph.name_or_generate(name, "KTABLE-SOURCE-")
        operator = TableSource(options.name, versioned=options.versioned)
        node = TableSourceGraphNode(
            node_name,
            graph.here(),
            source_name=source_name,
            topic=topic,
            consumed=consumed,
            operator=operator,
            store=table_store(options, store_name, consumed.key_serde, consumed.value_serde),
        )
        node.output_versioned = options.versioned
        graph.add(graph.root, node)
        return KTable(
            self._log,
            node_name,
            consumed.key_serde,
            consumed.value_serde,
            frozenset((source_name,)),
            node,
            SourceState(operator, store_name),
            options.name,
        )

    @logged
    def global_table(
        self,
        topic: str,
        *,
        store: str | Materialized | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
        **keep: Any,
    ) -> GlobalKTable:
        """A topic as a table that every instance reads in full before anything is processed; joins with it need no equal
        partitions.

        Args:
            topic: its name; it is the store's changelog, too.
            store: name of the store, to query it by.
            key_serde, value_serde, timestamp_extractor, name: as for `stream`.
            **keep: `caching=`, `persistent=`.
        """
        validate_name(topic, "topic")
        options = (table_options(store, keep) or Materialized()).with_(logging=False)
        if options.versioned:
            raise TopologyError(f"global table of {topic!r} cannot be versioned", hint="leave history= out", topic=topic)
        graph = self._graph
        store_name = options.name if options.name is not None else graph.new_store_name(f"{topic}-")
        consumed = _consumed(
            first_known(key_serde, options.key_serde), first_known(value_serde, options.value_serde), timestamp_extractor, None
        )
        source_name = graph.suffix_or_generate(name, "-source", "KSTREAM-SOURCE-")
        node_name = graph.name_or_generate(name, "KTABLE-SOURCE-")
        node = TableSourceGraphNode(
            node_name,
            graph.here(),
            source_name=source_name,
            topic=topic,
            consumed=consumed,
            operator=TableSource(store_name),
            store=table_store(options, store_name, consumed.key_serde, consumed.value_serde),
            is_global=True,
        )
        graph.add(graph.root, node)
        return GlobalKTable(
            self._log, node_name, consumed.key_serde, consumed.value_serde, store_name, queryable=options.name is not None
        )

    @logged
    def add_state_store(self, builder: StoreBuilder) -> StreamsBuilder:
        """Add a store (see `kstreams_repl.stores`) for processors that name it: `process(..., stores=["name"])`."""
        _check_store(builder)
        self._graph.add(self._graph.root, StateStoreGraphNode(builder, self._graph.here()))
        return self

    @logged
    def add_global_store(
        self,
        builder: StoreBuilder,
        topic: str,
        supplier: Callable[[], Any],
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a store that every instance fills from all of a topic through a processor of yours; all processors may read it.

        Args:
            builder: the store; it has no changelog but the topic.
            topic: read in full before anything is processed.
            supplier: returns the processor that writes the store; it also runs while the store is restored.
            key_serde, value_serde, timestamp_extractor: how the topic is read.
            name: of the processor's node.
        """
        _check_store(builder)
        check_callable(supplier, "supplier", "add_global_store")
        graph = self._graph
        source_name = graph.suffix_or_generate(name, "-source", "KSTREAM-SOURCE-")
        node_name = graph.name_or_generate(name, "KTABLE-SOURCE-")
        node = GlobalStoreGraphNode(
            node_name,
            graph.here(),
            builder=builder,
            source_name=source_name,
            topic=validate_name(topic, "topic"),
            consumed=_consumed(key_serde, value_serde, timestamp_extractor, None),
            supplier=ProcessorOperator(supplier),
        )
        graph.add(graph.root, node)
        return self

    def build(self, config: Mapping[str, Any] | None = None) -> Topology:
        """The topology of all calls so far; changing the builder later does not change it.

        Args:
            config: the application's settings; only ``topology.optimization`` matters here.

        Raises:
            TopologyError: names that clash, stores that are not there, versions or partitions that do not fit, or calls left
                behind by a removed cell.
            ConfigError: an unknown optimisation.
        """
        setting = None if config is None else config.get(CONFIG_KEY)
        try:
            return self._log.fresh_graph().build(parse_optimizations(setting))
        except RecursionError as cause:
            raise TopologyError(
                "a chain of operators is longer than Python's recursion limit allows",
                hint="break it with through(), or put several steps into one function",
            ) from cause

    # ------------------------------------------------------------------------------------------------- notebook cells
    @property
    def problems(self) -> tuple[Problem, ...]:
        """Calls that hang in the air because the cell that made what they were called on is gone; empty when it can be built."""
        self._log.replay()
        return tuple(self._log.problems)

    def preview(self) -> Topology:
        """What can be built as things stand, without the calls in `problems`; for pictures. Deploy takes `build()`."""
        return self._log.preview()

    def replace(self, node: str, function: Callable[..., Any] | None = None, **functions: Callable[..., Any]) -> StreamsBuilder:
        """Give the node that a call made other functions; everything else stays, numbers and downstream nodes too.

        Args:
            node: name of the stream or table that the call returned.
            function: in place of the call's first function.
            **functions: by parameter name, where a call has several: `aggregator=`, `joiner=`, ...

        Raises:
            TopologyError: no call made that node, or it takes no such function.

        Example:
            >>> builder = StreamsBuilder()
            >>> builder.stream("in").map_values(str.upper, name="shout").to("out")
            >>> _ = builder.replace("shout", str.title)
        """
        self._log.replace(node, ({} if function is None else {None: function}) | functions)
        return self

    def begin_cell(self, cell: str) -> None:
        """A cell runs (again): what it made before is replaced by what it makes now, in the same place and under the same
        numbers.

        The notebook extension calls `topology.origin.cell_started` before each cell; then this happens by itself with the cell's
        first call.
        """
        self._log.begin_cell(cell)

    def remove_cell(self, cell: str) -> int:
        """Take out what a cell made; returns how many calls that were. What later cells made of it is shown in `problems`."""
        return self._log.remove_cell(cell)

    @contextmanager
    def cell(self, cell: str) -> Iterator[StreamsBuilder]:
        """Calls inside the block belong to the given cell, as in a notebook."""
        cell_started(cell)
        try:
            yield self
        finally:
            cell_started(None)

    def _mark(self, alive: bool) -> None:
        """A builder is always there."""

    def __repr__(self) -> str:
        return f"StreamsBuilder({len(self._log.calls)} calls)"


def _topics(
    topics: str | Iterable[str] | re.Pattern[str] | None, pattern: str | re.Pattern[str] | None
) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    if isinstance(topics, re.Pattern):
        topics, pattern = None, topics
    if pattern is not None:
        if topics is not None:
            raise TopologyError("a stream reads topics or a pattern, not both", hint="use two streams and merge() them")
        try:
            return (), re.compile(pattern)
        except (re.error, TypeError) as cause:
            raise TopologyError(f"{pattern!r} is no regular expression: {cause}", hint="use Python's re syntax, matched in full") from cause
    if topics is None:
        raise TopologyError("a stream needs a topic", hint='stream("topic")')
    given: Any = topics
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise TopologyError(f"a stream reads topics, not {topics!r}", hint='stream("topic"), stream(["a", "b"]) or stream(pattern="a.*")')
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names:
        raise TopologyError("a stream needs at least one topic", hint='stream(["a", "b"])')
    return tuple(validate_name(name, "topic") for name in names), None


def _consumed(key_serde: Any, value_serde: Any, extractor: TimestampExtractor | None, offset_reset: str | None) -> Consumed:
    resets = ("earliest", "latest", "none")
    if offset_reset is not None and offset_reset not in resets:
        raise TopologyError(
            f"offset_reset={offset_reset!r} is unknown",
            hint=did_you_mean(str(offset_reset), resets) or f"use one of {', '.join(resets)}",
        )
    if extractor is not None:
        check_callable(extractor, "timestamp_extractor", "stream")
    return Consumed(serde_or_none(key_serde), serde_or_none(value_serde), extractor, offset_reset)


def _check_store(builder: Any) -> None:
    if not isinstance(builder, StoreBuilder):
        raise TopologyError(f"a store builder is needed, not {builder!r}", hint='StoreBuilder("name", StoreKind.KEY_VALUE)')
    validate_name(builder.name, "store")
