"""The operator of a stream that runs a SELECT of DuckDB over many records at once: `sql`. Kafka Streams has no counterpart."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Generic, Self, TypeVar, Unpack, overload

from kstreams_repl.engine import serdes
from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.dsl.groupings.grouped_stream import AGGREGATE, GroupedStream
from kstreams_repl.engine.dsl.options import Materialized, TableOptions, materialized, with_value_serde
from kstreams_repl.engine.dsl.streams.batch_operators import column_types
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream
from kstreams_repl.engine.dsl.tables.table_operators import TableOperators
from kstreams_repl.engine.operators.aggregates.aggregators import nothing
from kstreams_repl.engine.operators.batches.stream_sql import StreamSql
from kstreams_repl.engine.operators.batches.stream_sql_aggregate import StreamSqlAggregate
from kstreams_repl.engine.operators.batches.stream_sql_partials import SelectedColumns, StreamSqlPartials

T = TypeVar("T", bound=TableOperators)
_PREFIX = "KSTREAM-SQL-"


class SqlOperators(AbstractStream, Generic[T]):
    """`KStream.sql`."""

    @overload
    def sql(self, query: str, *, columns: Mapping[str, object] | None = None, name: str | None = None) -> Self: ...
    @overload
    def sql(
        self, query: str, *, columns: Mapping[str, object] | None = None, name: str | None = None, store: str | Materialized,
        **store_options: Unpack[TableOptions],
    ) -> T: ...
    @logged
    def sql(
        self,
        query: str,
        *,
        columns: Mapping[str, object] | None = None,
        name: str | None = None,
        store: str | Materialized | None = None,
        **store_options: Unpack[TableOptions],
    ) -> Self | T:
        """Filter records and change their values with a SELECT of DuckDB, or aggregate them by GROUP BY into a table.

        The stream is the table `this`. Its columns are `value`, or the declared fields of JSON objects, and key, timestamp, partition,
        offset and headers, which `*` leaves out. A selected column `value` alone is the new value; otherwise it is a dict of the columns.

        Without `store` records keep key, time, headers and order. With it the result is a table, one row per group: each batch is
        aggregated on its own, and the results are merged in the store. The table's key is the group key, and a dict of them if there
        are several; unless it is `key`, the results are repartitioned.

        Args:
            query: SELECT ... FROM this WHERE ... GROUP BY ..., without window functions, subqueries, ORDER BY, DISTINCT and LIMIT. With
                GROUP BY it selects group keys and count, count_if, sum, min, max, avg, bool_and and bool_or.
            columns: field of the JSON object -> int, float, str, bool, an Arrow or SQL name of a type, or an Arrow type; None = the
                table has a column `value`.
            name: name of the node, with GROUP BY of the one that has the store; None = generated.
            store: GROUP BY only, and needed there: name of the store, for queries; or a `Materialized`.
            key_serde: of the table, and of the repartition topic if one is needed; None = the stream's, or that of the group key's type.
            value_serde, caching, logging, history, persistent, topic_config: options of the table's store, as in `Materialized`; None =
                its default, for values JSON.

        Raises:
            TopologyError: the query does not parse, is not such a SELECT or names an unknown column, or a type is unknown; GROUP BY
                without a store, or a store without GROUP BY.
            KStreamsError: duckdb is not installed.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> orders = builder.stream("orders", key_serde="string", value_serde="json")
            >>> query = "SELECT user, amount * 2 AS double FROM this WHERE amount > 100"
            >>> orders.sql(query, columns={"user": int, "amount": int}).to("large", value_serde="json")
            >>> words = ks.StreamsBuilder().stream("words", key_serde="string", value_serde="string")
            >>> totals = words.sql("SELECT count(*) AS n, max(length(value)) AS longest FROM this GROUP BY key", store="totals")
        """
        options = materialized(store, store_options)
        types = column_types(self, columns, "sql")
        if options is not None:
            return self._sql_table(StreamSqlPartials(*types, query), with_value_serde(options, serdes.json), name)
        operator = StreamSql(*types, query)
        operator.check()
        return self._put(operator, _PREFIX, name, key_serde=self.key_serde, value_changing=True)

    def _sql_table(self, operator: StreamSqlPartials, options: Materialized, name: str | None) -> T:
        """Aggregate each batch, and merge the results in the store of a table."""
        made = operator.table()
        changes_key = made.key_serde is not None
        partials_name = None if name is None else f"{name}-partials"
        key = made.key_serde if changes_key else self.key_serde
        partials = self._put(
            operator, _PREFIX, partials_name, key_serde=key, value_serde=serdes.json, key_changing=changes_key, value_changing=True
        )

        def merge(store: str) -> StreamSqlAggregate:
            return StreamSqlAggregate(store, nothing, made.merge, versioned=options.versioned)

        table = partials._grouped(options.key_serde, None)._table(merge, options, AGGREGATE, name)
        if not made.merge.averages:
            return table
        selected = table.map_values(SelectedColumns(made.merge.names), value_serde=options.value_serde)
        selected._queryable = options.name
        return selected

    @abstractmethod
    def _grouped(self, key_serde: object, value_serde: object, topic_name: str | None = None) -> GroupedStream[T]:
        """Return the stream grouped by its key; None: the stream's serdes."""
