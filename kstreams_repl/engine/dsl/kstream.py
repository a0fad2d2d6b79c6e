"""`KStream`, `KTable` and their groupings, and how each leads to the others: `group_by`, `windowed_by`, `cogroup`, `split`, `to_table`,
`to_stream`.

As in Kafka Streams' package `kstream`, these classes refer to each other, so they stand in one module. Every other operator of a class is
inherited from a group of methods, in a module that knows neither streams nor tables by name: it returns the caller's class (`Self`) or the
table's (`TableT`). The groups stand side by side; each derives from `AbstractStream` alone.
Each operator returns a new stream or table; nothing runs until the topology is deployed or driven. Functions take `(key, value)` unless
stated otherwise. `name=` names the node; otherwise names are generated as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack, overload

from kstreams_repl.engine.dsl.graph.call_log import Handle, logged
from kstreams_repl.engine.dsl.graph.graph_nodes import OperatorGraphNode
from kstreams_repl.engine.dsl.graph.store_plans import table_store
from kstreams_repl.engine.dsl.groupings.cogrouped import (
    CogroupedStream,
    SessionWindowedCogroupedStream,
    TimeWindowedCogroupedStream,
)
from kstreams_repl.engine.dsl.groupings.grouped_stream import GroupedStream
from kstreams_repl.engine.dsl.groupings.grouped_table import GroupedTable
from kstreams_repl.engine.dsl.groupings.windowed_stream import SessionWindowedStream, TimeWindowedStream
from kstreams_repl.engine.dsl.groupings.windows import AnyWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from kstreams_repl.engine.dsl.options import Materialized, TableOptions, materialized
from kstreams_repl.engine.dsl.streams.async_operators import AsyncOperators
from kstreams_repl.engine.dsl.streams.batch_operators import BatchOperators
from kstreams_repl.engine.dsl.streams.branched import BranchedStream
from kstreams_repl.engine.dsl.streams.join_operators import JoinOperators
from kstreams_repl.engine.dsl.streams.sql_operators import SqlOperators
from kstreams_repl.engine.dsl.streams.stream_base import check_callable, check_kind, first_known, serde_or_none
from kstreams_repl.engine.dsl.streams.stream_operators import Predicate, StreamOperators
from kstreams_repl.engine.dsl.streams.stream_topics import TopicOperators
from kstreams_repl.engine.dsl.streams.table_file_operators import TableFileOperators
from kstreams_repl.engine.dsl.tables import foreign_key_joins, table_joins
from kstreams_repl.engine.dsl.tables.table_operators import TableOperators
from kstreams_repl.engine.dsl.tables.table_sources import SourceState
from kstreams_repl.engine.operators.streams.stream_branch import StreamBranch
from kstreams_repl.engine.operators.streams.stream_select_key import StreamSelectKey
from kstreams_repl.engine.operators.tables.table_repartition_map import TableRepartitionMap
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.operators.tables.table_to_stream import TableToStream
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import Aggregator, Joiner, KeyValueMapper, StreamPartitioner, UserFunction


class KStream(
    StreamOperators, TopicOperators, JoinOperators, AsyncOperators, BatchOperators, SqlOperators["KTable"], TableFileOperators, Handle
):
    """A stream of records. Get one from `StreamsBuilder.stream` or another stream or table.

    Example:
        >>> from kstreams_repl.engine.dsl import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("words").filter(lambda key, word: word).map_values(str.upper).to("loud-words")
        >>> builder.build()
        Topology(4 nodes, 0 stores, 1 sub-topology)
    """

    @logged
    def split(self, *, name: str | None = None) -> BranchedKStream:
        """Send each record to the first branch whose predicate is true: `split().branch(p).branch(q).default_branch()`.

        Args:
            name: prefix of the names of the branches, and name of the splitting node; None = generated.

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

        Args:
            *predicates: (key, value) -> truth value, one per branch.
            name: as for `split`.

        Raises:
            TopologyError: no predicate is given.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> long_words, others = words.branch(lambda key, word: len(word) > 3, lambda key, word: True)
        """
        if not predicates:
            raise TopologyError("branch() expected at least one predicate, got none", hint="pass one (key, value) function per branch")
        splitter = self.split(name=name)
        for predicate in predicates:
            splitter.branch(predicate)
        return list(splitter.no_default_branch().values())

    @logged
    def to_table(
        self,
        *,
        name: str | None = None,
        store: str | Materialized | None = None,
        **store_options: Unpack[TableOptions],
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
        options = materialized(store, store_options) or Materialized()
        graph = self._graph
        node_name = graph.name_or_generate(name, "KSTREAM-TOTABLE-")
        store_name = options.name if options.name is not None else graph.new_store_name("KSTREAM-TOTABLE-")
        key, value = first_known(options.key_serde, self.key_serde), first_known(options.value_serde, self.value_serde)
        operator = TableSource(options.name, versioned=options.versioned)
        builder = table_store(options, store_name, key, value)
        node, sources = self._put_with_store(operator, node_name, builder, key_serde=key, value_serde=value)
        node.output_versioned = options.versioned
        return KTable(self._log, node_name, key, value, sources, node, SourceState(operator, store_name), options.name)

    @logged
    def group_by_key(self, *, name: str | None = None, key_serde: object = None, value_serde: object = None) -> KGroupedStream:
        """Group by the records' key; `name=` names the repartition topic if one is needed.

        Args:
            name: name of the repartition topic, if one is needed; None = that of the store.
            key_serde, value_serde: None = the stream's, else the application's defaults.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> counts = words.group_by_key().count(store="counts")
        """
        if name is not None:
            validate_name(name, "node")
        return self._grouped(key_serde, value_serde, name)

    def _grouped(self, key_serde: object, value_serde: object, topic_name: str | None = None) -> KGroupedStream:
        return KGroupedStream(
            self._log,
            self.name,
            *self._serdes(key_serde, value_serde),
            self._sources,
            self._node,
            repartition_required=self._repartition_required,
            topic_name=topic_name,
        )

    @logged
    def group_by(
        self, selector: KeyValueMapper, *, name: str | None = None, key_serde: object = None, value_serde: object = None
    ) -> KGroupedStream:
        """Group by `selector(key, value)`; the following aggregate repartitions by that key.

        Args:
            selector: (key, value) -> the key to group by.
            name: name of the node, and of the repartition topic; None = generated.
            key_serde, value_serde: serdes of the grouped records; None = the application's default for keys, the stream's for values.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> counts = words.group_by(lambda key, word: word, key_serde="string").count(store="counts")
        """
        check_callable(selector, "selector", "group_by")
        keyed = self._put(StreamSelectKey(selector), "KSTREAM-KEY-SELECT-", name, key_changing=True)
        return keyed._grouped(key_serde, first_known(value_serde, self.value_serde), name)


class KTable(TableOperators, Handle):
    """The latest value per key, updated by every record; a None value means that the row does not exist (a tombstone). Get one from
    `StreamsBuilder.table`, an aggregate, `KStream.to_table`, or another table.

    Example:
        >>> from kstreams_repl.engine.dsl import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> counts = builder.stream("words").group_by(lambda key, word: word).count(store="counts")
        >>> counts.queryable_store_name
        'counts'
    """

    @logged
    def to_stream(self, selector: KeyValueMapper | None = None, *, name: str | None = None) -> KStream:
        """Return the table's changes as a stream of records; tombstones have a None value.

        Args:
            selector: (key, value) -> a new key for each record (as `to_stream().select_key(selector)`).
            name: name of the node.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> prices.to_stream().to("price-changes")
        """
        graph = self._graph
        node = OperatorGraphNode(graph.name_or_generate(name, "KTABLE-TOSTREAM-"), graph.here(), TableToStream())
        graph.add(self._node, node)
        stream = KStream(self._log, node.name, self.key_serde, self.value_serde, self._sources, node)
        return stream if selector is None else stream.select_key(selector)

    def to(
        self,
        topic: str | Callable[..., str],
        *,
        name: str | None = None,
        key_serde: object = None,
        value_serde: object = None,
        partitioner: StreamPartitioner | None = None,
    ) -> None:
        """Write the changes to a topic (KIP-67): `to_stream().to(topic)`, with the arguments of `KStream.to`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> prices.to("price-changes")
        """
        self.to_stream().to(topic, name=name, key_serde=key_serde, value_serde=value_serde, partitioner=partitioner)

    @logged
    def group_by(
        self,
        selector: Callable[[Any, Any], tuple[Any, Any]],
        *,
        name: str | None = None,
        key_serde: object = None,
        value_serde: object = None,
    ) -> KGroupedTable:
        """Group rows by another key: `selector(key, value)` returns the pair (group key, value to aggregate).

        A change subtracts the old value from its group and adds the new one to its group. If the group key or value is None, that
        half is omitted.

        Args:
            selector: (key, value) -> (group key, value to aggregate).
            name: name of the node, and of the repartition topic; None = generated.
            key_serde, value_serde: serdes of the grouped rows; None = the application's defaults.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> by_letter = prices.group_by(lambda product, price: (product[:1], price))
        """
        check_callable(selector, "selector", "group_by")
        graph = self._graph
        operator = TableRepartitionMap(selector, key_serde=serde_or_none(key_serde))
        node = OperatorGraphNode(graph.name_or_generate(name, "KTABLE-SELECT-"), graph.here(), operator)
        graph.add(self._node, node, reads_versions=True)
        self._state.enable_sending_old_values(force=True)
        return KGroupedTable(
            self._log, node.name, serde_or_none(key_serde), serde_or_none(value_serde), self._sources, node, topic_name=name
        )

    @logged
    def join(
        self,
        other: KTable,
        joiner: Joiner,
        *,
        with_key: bool = False,
        foreign_key: UserFunction | None = None,
        foreign_key_with_key: bool = False,
        partitioner: StreamPartitioner | None = None,
        other_partitioner: StreamPartitioner | None = None,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> KTable:
        """Inner join of rows by key, or by a foreign key: `joiner(value, other value)` returns the result's value.

        Args:
            other: the other table.
            joiner: (value, other value) -> value, or (key, value, other value) -> value with `with_key=True`.
            with_key: whether `joiner` takes the key too.
            foreign_key: (value) -> the other table's key, or (key, value) with `foreign_key_with_key=True`; None joins by key.
            foreign_key_with_key: whether `foreign_key` takes the key too.
            partitioner, other_partitioner: foreign-key joins only: `(topic, key, None, partitions) -> partition` of this and of
                the other table; None = by key.
            store: name of a store for the result; or a `Materialized`.
            name: name of the node; in a foreign-key join the prefix of all its nodes' and topics' names.
            key_serde, value_serde, caching, logging, history, persistent, topic_config: options of the result's store, as in
                `Materialized`; None = its default.

        Raises:
            TopologyError: the other side is not a table, or an argument of foreign-key joins is given without `foreign_key=`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> stock = builder.table("stock", key_serde="string", value_serde="long")
            >>> worth = prices.join(stock, lambda price, pieces: price * pieces)
        """
        options = materialized(store, store_options)
        return self._join(
            "inner", other, joiner, options, name, with_key=with_key, foreign_key=foreign_key, foreign_key_with_key=foreign_key_with_key,
            partitioner=partitioner, other_partitioner=other_partitioner,
        )

    @logged
    def left_join(
        self,
        other: KTable,
        joiner: Joiner,
        *,
        with_key: bool = False,
        foreign_key: UserFunction | None = None,
        foreign_key_with_key: bool = False,
        partitioner: StreamPartitioner | None = None,
        other_partitioner: StreamPartitioner | None = None,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> KTable:
        """Join as `join` does, with a row for each row of this table; the other value is None if there is no match.

        Args and errors as for `join`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> stock = builder.table("stock", key_serde="string", value_serde="long")
            >>> worth = prices.left_join(stock, lambda price, pieces: price * (pieces or 0))
        """
        options = materialized(store, store_options)
        return self._join(
            "left", other, joiner, options, name, with_key=with_key, foreign_key=foreign_key, foreign_key_with_key=foreign_key_with_key,
            partitioner=partitioner, other_partitioner=other_partitioner,
        )

    @logged
    def outer_join(
        self,
        other: KTable,
        joiner: Joiner,
        *,
        with_key: bool = False,
        store: str | Materialized | None = None,
        name: str | None = None,
        **store_options: Unpack[TableOptions],
    ) -> KTable:
        """Join by key as `join` does, with a row for each key of either table; a missing value is None.

        Args and errors as for `join`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> stock = builder.table("stock", key_serde="string", value_serde="long")
            >>> both = prices.outer_join(stock, lambda price, pieces: (price, pieces))
        """
        options = materialized(store, store_options)
        return self._join("outer", other, joiner, options, name, with_key=with_key)

    def _join(
        self,
        how: str,
        other: KTable,
        joiner: Joiner,
        options: Materialized | None,
        name: str | None,
        *,
        with_key: bool,
        foreign_key: UserFunction | None = None,
        foreign_key_with_key: bool = False,
        partitioner: StreamPartitioner | None = None,
        other_partitioner: StreamPartitioner | None = None,
    ) -> KTable:
        check_kind(other, type(self), f"{how} join of tables")
        check_callable(joiner, "joiner", "join", "key, value, other" if with_key else "value, other")
        if foreign_key is None:
            if foreign_key_with_key or partitioner is not None or other_partitioner is not None:
                raise TopologyError(
                    "foreign_key_with_key=, partitioner= and other_partitioner= need foreign_key=",
                    hint="foreign_key=lambda value: ... gives the other table's key",
                )
            return table_joins.join_tables(self, other, joiner, how, with_key, options, name)
        check_callable(foreign_key, "foreign_key", "join", "key, value" if foreign_key_with_key else "value")
        plan = foreign_key_joins.ForeignKeyPlan(
            foreign_key,
            joiner,
            left_join=how == "left",
            with_key=with_key,
            extractor_with_key=foreign_key_with_key,
            partitioner=partitioner,
            other_partitioner=other_partitioner,
            name=name,
        )
        return foreign_key_joins.join_by_foreign_key(self, other, plan, options or Materialized())


class BranchedKStream(BranchedStream[KStream]):
    """Branches under construction; end with `default_branch()` or `no_default_branch()`, which return the streams by node name."""


class KGroupedTable(GroupedTable[KTable], Handle):
    """Rows by group; always downstream of a repartition topic that carries new and old values."""

    _table_type = KTable


class KGroupedStream(GroupedStream[KTable], Handle):
    """Records by key, ready to be counted, reduced, aggregated, windowed or cogrouped."""

    _table_type = KTable

    @overload
    def windowed_by(self, windows: TimeWindows | UnlimitedWindows) -> TimeWindowedKStream: ...
    @overload
    def windowed_by(self, windows: SlidingWindows) -> SlidingWindowedKStream: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream: ...
    @logged
    def windowed_by(self, windows: AnyWindows) -> TimeWindowedKStream | SlidingWindowedKStream | SessionWindowedKStream:
        """Aggregate per key and window instead of per key.

        Args:
            windows: which windows a record is in; see `TimeWindows`, `SlidingWindows`, `SessionWindows`, `UnlimitedWindows`.

        Raises:
            TopologyError: `windows` is of no such class.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> per_minute = grouped.windowed_by(ks.TimeWindows.of_size(60_000)).count()
        """
        if isinstance(windows, (TimeWindows, UnlimitedWindows)):
            return TimeWindowedKStream(self, windows)
        if isinstance(windows, SlidingWindows):
            return SlidingWindowedKStream(self, windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows)
        raise TopologyError(
            f"windowed_by() expected TimeWindows, SlidingWindows, SessionWindows or UnlimitedWindows, got {windows!r}",
            hint="for example TimeWindows.of_size(60_000, grace=10_000)",
        )

    @logged
    def cogroup(self, aggregator: Aggregator) -> CogroupedKStream:
        """Aggregate several grouped streams into one table: `a.cogroup(f).cogroup(b, g).aggregate(initializer)`.

        Args:
            aggregator: (key, value, aggregate) -> new aggregate, for the values of this grouping.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> totals = grouped.cogroup(lambda key, word, total: total + len(word))
        """
        check_callable(aggregator, "aggregator", "cogroup")
        return CogroupedKStream(self._log, self, aggregator)


class TimeWindowedKStream(TimeWindowedStream[KTable]):
    """A grouping in tumbling, hopping or unlimited windows."""


class SlidingWindowedKStream(TimeWindowedKStream):
    """A grouping in sliding windows; None values are dropped."""


class SessionWindowedKStream(SessionWindowedStream[KTable]):
    """A grouping in sessions."""


class CogroupedKStream(CogroupedStream[KTable]):
    """Grouped streams with one aggregator each; a grouping that is given twice keeps its last aggregator."""

    @logged
    def cogroup(self, grouped: KGroupedStream, aggregator: Aggregator) -> CogroupedKStream:
        """Add a grouping whose values are added to the same aggregates by `aggregator(key, value, aggregate)`.

        Args:
            grouped: a grouping with keys of the same type.
            aggregator: (key, value, aggregate) -> new aggregate, for the values of `grouped`.

        Raises:
            TopologyError: `grouped` is not a `KGroupedStream`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> totals = grouped.cogroup(lambda key, word, total: total + len(word))
            >>> others = builder.stream("others", key_serde="string", value_serde="string").group_by_key()
            >>> both = totals.cogroup(others, lambda key, other, total: total - len(other))
        """
        check_kind(grouped, KGroupedStream, "cogroup")
        check_callable(aggregator, "aggregator", "cogroup")
        self._groups[grouped] = aggregator
        return self

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream: ...
    @overload
    def windowed_by(self, windows: TimeWindows | UnlimitedWindows | SlidingWindows) -> TimeWindowedCogroupedKStream: ...
    @logged
    def windowed_by(self, windows: AnyWindows) -> TimeWindowedCogroupedKStream | SessionWindowedCogroupedKStream:
        """Aggregate per key and window instead of per key.

        Args:
            windows: which windows a record is in; see `TimeWindows`, `SlidingWindows`, `SessionWindows`, `UnlimitedWindows`.

        Raises:
            TopologyError: `windows` is of no such class.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> grouped = words.group_by_key()
            >>> totals = grouped.cogroup(lambda key, word, total: total + len(word))
            >>> windowed = totals.windowed_by(ks.TimeWindows.of_size(60_000))
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self, windows)
        if isinstance(windows, (TimeWindows, UnlimitedWindows, SlidingWindows)):
            return TimeWindowedCogroupedKStream(self, windows)
        raise TopologyError(
            f"windowed_by() expected TimeWindows, SlidingWindows, SessionWindows or UnlimitedWindows, got {windows!r}",
            hint="for example TimeWindows.of_size(60_000, grace=10_000)",
        )


class TimeWindowedCogroupedKStream(TimeWindowedCogroupedStream[KTable]):
    """Cogrouped streams in tumbling, hopping, unlimited or sliding windows."""


class SessionWindowedCogroupedKStream(SessionWindowedCogroupedStream[KTable]):
    """Cogrouped streams in sessions."""
