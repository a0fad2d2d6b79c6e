"""`StreamsBuilder`: the entry point of the DSL: streams and tables of topics, stores, and `build()`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Unpack

from kstreams_repl.engine.dsl.graph.call_log import BuildLog, Handle, Problem, logged, remember_build
from kstreams_repl.engine.dsl.graph.graph_nodes import (
    Consumed,
    GlobalStoreGraphNode,
    SourceGraphNode,
    StateStoreGraphNode,
    TableSourceGraphNode,
)
from kstreams_repl.engine.dsl.graph.store_plans import table_store
from kstreams_repl.engine.dsl.graph.topology_writer import build_topology
from kstreams_repl.engine.dsl.kstream import KStream, KTable
from kstreams_repl.engine.dsl.options import Materialized, SourceOptions, materialized
from kstreams_repl.engine.dsl.streams.stream_base import check_callable, first_known, serde_or_none
from kstreams_repl.engine.dsl.tables.global_ktable import GlobalKTable
from kstreams_repl.engine.dsl.tables.table_sources import SourceState
from kstreams_repl.engine.operators.processor_api import ProcessorOperator
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.serdes import by_topic
from kstreams_repl.engine.topology.bounds.offset_reset import checked_of_source
from kstreams_repl.engine.topology.description.source_location import cell_started
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.engine.topology.optimizations import CONFIG_KEY, parse_optimizations
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import ProcessorSupplier, UserFunction

TimestampExtractor = Callable[[Any, int], int]


class StreamsBuilder(Handle):
    """Builds a topology call by call.

    `build()` can be called any number of times; the builder can be extended afterwards. In a notebook each call is recorded with
    its
    cell: running a cell again replaces the nodes that it made (see `begin_cell`).

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
        key_serde: object = None,
        value_serde: object = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        name: str | None = None,
    ) -> KStream:
        """Return a stream of one topic, of several topics, or of all topics whose full name a pattern matches.

        Args:
            topics: a name, several names, or a compiled pattern.
            pattern: a regular expression, instead of `topics`.
            key_serde, value_serde: a serde or its name; None = the application's defaults.
            timestamp_extractor: (record, partition time) -> ms; None = the record's own timestamp, and a negative one is an
                error.
            offset_reset: where to start without a committed offset: an `AutoOffsetReset` ("earliest", "latest", "none",
                "by_duration:PT1H"); None = ``auto.offset.reset``.
            name: name of the node.

        Raises:
            TopologyError, InvalidNameError: no topic is given, or Kafka does not accept a name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
        """
        names, compiled = _topics(topics, pattern)
        consumed = self._consumed(names, key_serde, value_serde, timestamp_extractor, offset_reset)
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
        key_serde: object = None,
        value_serde: object = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        name: str | None = None,
        **store_options: Unpack[SourceOptions],
    ) -> KTable:
        """Return a topic as a table: each record is the new row of its key, and a None value deletes it. Records with a None key
        are dropped and counted.

        Args:
            topic: name of the topic.
            store: name of the store, for queries; without a name a store is made only if an operator needs it.
            key_serde, value_serde, timestamp_extractor, offset_reset, name: as for `stream`.
            caching, logging, history, persistent, topic_config: options of the store, as in `Materialized`; None = its default.
                With `history=` (ms, timedelta or "30 s") the table is versioned.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", store="prices", key_serde="string", value_serde="double")
        """
        options = materialized(store, store_options) or Materialized()
        node = self._table_source(topic, options, key_serde, value_serde, timestamp_extractor, offset_reset, name)
        node.output_versioned = options.versioned
        key, value, state = node.store.key_serde, node.store.value_serde, SourceState(node.operator, node.store.name)
        return KTable(self._log, node.name, key, value, frozenset((node.source_name,)), node, state, options.name)

    def _table_source(
        self,
        topic: str,
        options: Materialized,
        key_serde: object,
        value_serde: object,
        timestamp_extractor: TimestampExtractor | None,
        offset_reset: str | None,
        name: str | None,
        *,
        is_global: bool = False,
    ) -> TableSourceGraphNode:
        """Add a node that reads a topic into a table; a global table always has its store."""
        validate_name(topic, "topic")
        graph = self._graph
        store_name = options.name if options.name is not None else graph.new_store_name(f"{topic}-")
        key, value = first_known(key_serde, options.key_serde), first_known(value_serde, options.value_serde)
        consumed = self._consumed((topic,), key, value, timestamp_extractor, offset_reset)
        source_name = graph.suffix_or_generate(name, "-source", "KSTREAM-SOURCE-")
        node = TableSourceGraphNode(
            graph.name_or_generate(name, "KTABLE-SOURCE-"),
            graph.here(),
            source_name=source_name,
            topic=topic,
            consumed=consumed,
            operator=TableSource(store_name if is_global else options.name, versioned=options.versioned),
            store=table_store(options, store_name, consumed.key_serde, consumed.value_serde),
            is_global=is_global,
        )
        graph.add(graph.root, node)
        return node

    @logged
    def global_table(
        self,
        topic: str,
        *,
        store: str | Materialized | None = None,
        key_serde: object = None,
        value_serde: object = None,
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
        caching: bool | None = None,
        persistent: bool | None = None,
    ) -> GlobalKTable:
        """Return a topic as a table that every instance reads in full before processing starts; joins with it need no
        co-partitioning.

        Args:
            topic: name of the topic, which is also the store's changelog.
            store: name of the store, for queries.
            key_serde, value_serde, timestamp_extractor, name: as for `stream`.
            caching, persistent: options of the store, as in `Materialized`; None = its default.

        Raises:
            TopologyError: the store has a history; InvalidNameError: Kafka does not accept a name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> airlines = builder.global_table("airlines", key_serde="string", value_serde="json")
        """
        options = replace(materialized(store, {"caching": caching, "persistent": persistent}) or Materialized(), logging=False)
        if options.versioned:
            raise TopologyError(
                f"expected a store without history for the global table of {topic!r}", hint="leave history= out", topic=topic
            )
        node = self._table_source(topic, options, key_serde, value_serde, timestamp_extractor, None, name, is_global=True)
        built = node.store
        return GlobalKTable(self._log, node.name, built.key_serde, built.value_serde, built.name, queryable=options.name is not None)

    @logged
    def add_state_store(self, builder: StoreBuilder) -> StreamsBuilder:
        """Add a store (see `kstreams_repl.engine.stores`) for processors that name it: `process(..., stores=["name"])`.

        Args:
            builder: the store; `Stores` makes builders, too.

        Raises:
            TopologyError: not a store builder, or a store of that name exists with other settings.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> _ = builder.add_state_store(ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE))
        """
        _check_store(builder)
        self._graph.add(self._graph.root, StateStoreGraphNode(builder, self._graph.here()))
        return self

    @logged
    def add_global_store(
        self,
        builder: StoreBuilder,
        topic: str,
        supplier: ProcessorSupplier,
        *,
        key_serde: object = None,
        value_serde: object = None,
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a store that every instance fills from all of a topic through the given processor; all processors may read it.

        Args:
            builder: the store; it has no changelog other than the topic.
            topic: read in full before processing starts.
            supplier: returns the processor that writes the store; it also runs while the store is restored.
            key_serde, value_serde, timestamp_extractor: deserialize the topic's records, as for `stream`.
            name: name of the processor's node.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> class Keep(ks.Processor):
            ...     def init(self, context):
            ...         self.store = context.get_state_store("limits")
            ...     def process(self, record):
            ...         self.store.put(record.key, record.value)
            ...
            >>> store = ks.StoreBuilder("limits", ks.StoreKind.KEY_VALUE, logging=False)
            >>> _ = builder.add_global_store(store, "limits", Keep, key_serde="string", value_serde="long")
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
            consumed=self._consumed((topic,), key_serde, value_serde, timestamp_extractor, None),
            supplier=ProcessorOperator(supplier),
        )
        graph.add(graph.root, node)
        return self

    def build(self, config: Mapping[str, Any] | None = None) -> Topology:
        """Return the topology of all calls so far; later calls on the builder do not change it.

        Args:
            config: the application's settings; only ``topology.optimization`` and ``repl.source.serdes`` are used here.

        Raises:
            TopologyError: names clash, stores are missing, versions or partitions do not fit, or a removed cell has left calls
                without their upstream.
            ConfigError: an unknown optimisation.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in").to("out")
            >>> builder.build()
            Topology(2 nodes, 0 stores, 1 sub-topology)
        """
        setting = None if config is None else config.get(CONFIG_KEY)
        self._log.source_serdes = by_topic.parse(None if config is None else config.get(by_topic.SETTING))
        try:
            topology = build_topology(self._log.fresh_graph(), parse_optimizations(setting))
        except RecursionError as cause:
            raise TopologyError(
                "a chain of operators is longer than Python's recursion limit allows",
                hint="break it with through(), or put several steps into one function",
            ) from cause
        remember_build(topology, self)
        return topology

    # ------------------------------------------------------------------------------------------------- notebook cells
    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the calls whose upstream stream or table was made by a removed cell; empty if the topology can be built.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in").to("out")
            >>> builder.problems
            ()
        """
        self._log.replay()
        return tuple(self._log.problems)

    def preview(self) -> Topology:
        """Return the topology without the calls in `problems`, for pictures. Deploy uses `build()`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in").to("out")
            >>> builder.preview()
            Topology(2 nodes, 0 stores, 1 sub-topology)
        """
        return self._log.preview()

    def replace(self, node: str, function: UserFunction | None = None, **functions: UserFunction) -> StreamsBuilder:
        """Replace the functions of the call that made a node; everything else stays, including numbers and downstream nodes.

        Args:
            node: name of the stream or table that the call returned.
            function: replaces the call's first function.
            **functions: functions by parameter name, if a call has several: `aggregator=`, `joiner=`, ...

        Raises:
            TopologyError: no call made that node, or the call has no such function.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.stream("in").map_values(str.upper, name="shout").to("out")
            >>> _ = builder.replace("shout", str.title)
        """
        self._log.replace(node, ({} if function is None else {None: function}) | functions)
        return self

    def begin_cell(self, cell: str) -> None:
        """Start a run of a cell: what the cell made in earlier runs is replaced by what it makes now, at the same position and
        with the same numbers.

        The notebook extension calls `topology.source_location.cell_started` before each cell; the cell's first call on the
        builder then does this implicitly.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> with builder.cell("first"):
            ...     builder.stream("in").to("out")
            >>> builder.begin_cell("first")
            >>> builder.stream("in").to("elsewhere")
            >>> builder.build().sink_topics()
            ('elsewhere',)
        """
        self._log.begin_cell(cell)

    def remove_cell(self, cell: str) -> int:
        """Remove the calls of a cell, and return their number. Later cells' calls that used their results appear in `problems`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> with builder.cell("first"):
            ...     builder.stream("in").to("out")
            >>> builder.remove_cell("first")
            2
        """
        return self._log.remove_cell(cell)

    @contextmanager
    def cell(self, cell: str) -> Iterator[StreamsBuilder]:
        """Assign the calls inside the block to the given cell, as in a notebook.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> with builder.cell("first"):
            ...     words = builder.stream("in", name="words")
            >>> builder.build().node("words").origin.cell
            'first'
        """
        cell_started(cell)
        try:
            yield self
        finally:
            cell_started(None)

    def _mark(self, alive: bool) -> None:
        """Do nothing: a builder itself is never removed."""

    def _consumed(self, topics: Sequence[str], key_serde: object, value_serde: object, *more: Any) -> Consumed:
        """Return how a source reads; serdes that are not given are those configured for its topics."""
        key, value = by_topic.common(self._log.source_serdes, topics)
        return _consumed(first_known(key_serde, key), first_known(value_serde, value), *more)

    def __repr__(self) -> str:
        return f"StreamsBuilder({len(self._log.calls)} calls)"


def _topics(
    topics: str | Iterable[str] | re.Pattern[str] | None, pattern: str | re.Pattern[str] | None
) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    if isinstance(topics, re.Pattern):
        topics, pattern = None, topics
    if pattern is not None:
        if topics is not None:
            raise TopologyError("expected topics or pattern=, got both", hint="use two streams and merge() them")
        try:
            return (), re.compile(pattern)
        except (re.error, TypeError) as cause:
            raise TopologyError(
                f"cannot parse pattern {pattern!r} as a regular expression: {cause}", hint="use Python's re syntax, matched in full"
            ) from cause
    if topics is None:
        raise TopologyError("expected a topic, several topics or pattern=, got none", hint='stream("topic")')
    given: object = topics
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise TopologyError(
            f"expected one or several names of topics, got {topics!r}", hint='stream("topic"), stream(["a", "b"]) or stream(pattern="a.*")'
        )
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names:
        raise TopologyError("expected at least one topic, got none", hint='stream(["a", "b"])')
    return tuple(validate_name(name, "topic") for name in names), None


def _consumed(key_serde: object, value_serde: object, extractor: TimestampExtractor | None, offset_reset: str | None) -> Consumed:
    """Return how a source reads, after checking the arguments."""
    offset_reset = checked_of_source(offset_reset)
    if extractor is not None:
        check_callable(extractor, "timestamp_extractor", "stream")
    return Consumed(serde_or_none(key_serde), serde_or_none(value_serde), extractor, offset_reset)


def _check_store(builder: object) -> None:
    if not isinstance(builder, StoreBuilder):
        raise TopologyError(f"expected a StoreBuilder, got {builder!r}", hint='StoreBuilder("name", StoreKind.KEY_VALUE)')
    validate_name(builder.name, "store")


def builder_of(handle: Handle) -> StreamsBuilder:
    """Return the builder of a stream or table."""
    builder = StreamsBuilder()
    builder._log = handle._log
    return builder
