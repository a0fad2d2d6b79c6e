"""Aggregate with a SELECT ... GROUP BY of DuckDB, many records at once. Kafka Streams has no counterpart.

The query runs over each batch and returns one row per group, a *partial*: a tuple of the results for the group's records in this batch.
It leaves under the group's key, with time, coordinates and headers of the group's record with the largest timestamp. Behind it, after a
repartition if the key is another one than the record's, a `StreamSqlAggregate` merges the partials of a key into its row.
Invariant: merging the partials of any division into batches gives the result of the query over all records; sums of DOUBLE up to the
order of addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import le
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine import serdes
from kstreams_repl.engine.operators.batches.batch_database import Statement, literal, open_database, quoted
from kstreams_repl.engine.operators.batches.batch_operator import BatchOperator, BatchWork
from kstreams_repl.engine.operators.batches.record_columns import COORDINATES, VALUE, BatchResult, RecordColumns
from kstreams_repl.engine.operators.batches.sql_grouping import AT, ORDER, Grouping, Merge, group, key_name
from kstreams_repl.engine.operators.batches.sql_syntax import parsed
from kstreams_repl.engine.operators.batches.stream_sql import NO_RECORDS, BatchQuery, Kinds, braced
from kstreams_repl.engine.operators.batches.stream_sql_aggregate import MergePartials
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True)
class StreamSqlPartials(BatchOperator):
    """Run `query` over each batch; forward one partial per group.

    Attributes:
        query: a SELECT with GROUP BY.
    """

    rekeys = True

    query: str

    def work(self, node: str) -> BatchWork:
        """Return what one task's node does with a batch."""
        return _Partials(self, open_database())

    def table(self) -> SqlTable:
        """Return what the query makes of the stream.

        Raises:
            TopologyError: the query cannot run, or its result cannot be merged.
        """
        database = open_database()
        try:
            return _Partials(self, database).table()
        finally:
            database.close()


@dataclass(frozen=True, slots=True)
class SelectedColumns:
    """The mapper row -> value of a table whose rows have the sums and counts of averages, too.

    Attributes:
        names: of the selected columns.
    """

    names: tuple[str, ...]

    def __call__(self, row: Any) -> object:
        return row[VALUE] if self.names == (VALUE,) else {name: row[name] for name in self.names}


@dataclass(frozen=True, slots=True)
class SqlTable:
    """What a query with GROUP BY makes of a stream.

    Attributes:
        merge: merges partials into rows.
        key_serde: of the group key; None: it is the record's key.
    """

    merge: MergePartials
    key_serde: Serde | None


@dataclass(frozen=True, slots=True)
class _Plan:
    """The query for one type of keys and values.

    Attributes:
        names: of the selected columns.
        key_kinds: the types of the group keys.
        as_json: the numbers of the columns that are JSON.
    """

    statement: Statement
    names: tuple[str, ...]
    key_kinds: tuple[str, ...]
    as_json: Sequence[int]


class _Partials(BatchQuery[_Plan]):
    """`StreamSqlPartials` in one task."""

    grouping: Grouping

    def __init__(self, operator: StreamSqlPartials, database: object) -> None:
        self._columns = [name.lower() for name, _ in operator.fields] or [VALUE], operator.not_declared(COORDINATES)
        super().__init__(operator, database, parsed(database, operator.query))

    def complete(self, tree: JsonObject) -> None:
        self.grouping = group(self.database, tree, self.query, *self._columns)

    def table(self) -> SqlTable:
        """Return what the query makes of the stream."""
        by_key = self.grouping.by_key
        if not self.is_typed and not by_key:
            raise TopologyError(
                f"sql() cannot tell the types of the columns that it groups: {self.query}",
                hint="give the stream its serdes, or declare the fields of JSON objects with columns=",
            )
        plan, _ = self.planned(NO_RECORDS)
        serde = None if by_key else serdes.json if len(plan.key_kinds) > 1 else _KEY_SERDES[plan.key_kinds[0]]
        return SqlTable(MergePartials(plan.names, self.grouping.merges), serde)

    def more(self, rows: RecordColumns) -> dict[str, pa.Array]:
        pa, timestamps, numbers = self.pa, rows.timestamps, super().more(rows)
        if all(map(le, timestamps, timestamps[1:])):
            return numbers | {ORDER: rows.numbers()}
        return numbers | {ORDER: pa.compute.rank(pa.array(timestamps, pa.int64()), tiebreaker="first")}

    def plan(self, records: object, kinds: Kinds) -> _Plan:
        statement, names, types = self.statement(records, kinds)
        grouping = self.grouping
        of_key = {key_name(number) for number in range(len(grouping.keys))}
        stored = [_stored_kind(kind) for kind in types]
        same = [number for number, merge in enumerate(grouping.merges) if merge is Merge.SAME]
        as_json = [number for number in same if types[number] == "JSON"]
        for number in as_json:
            stored[number] = "VARCHAR"
        for name, kind, to in zip(names, types, stored, strict=True):
            if to is None and not (grouping.by_key and name in of_key):
                raise TopologyError(
                    f"sql() cannot keep a {kind} in a table, as the column {name}: {self.query}",
                    hint="CAST it to a number, a text, a time or a truth value (of JSON: ->> instead of ->)",
                )
        columns = ", ".join(_cast(name, to) for name, to in zip(names, stored, strict=True))
        statement.prepare(f"SELECT {braced(columns)} FROM ({{query}}) ORDER BY {AT}")
        key_kinds = tuple(to or "" for name, to in zip(names, stored, strict=True) if name in of_key)
        return _Plan(statement, tuple(names[: len(grouping.merges)]), key_kinds, as_json)

    def __call__(self, rows: RecordColumns) -> BatchResult:
        import numpy

        grouping, dropped = self.grouping, {}
        plan, records = self.planned(rows)
        has_value = rows.has_value()
        if has_value is not None:
            records = records.filter(self.pa.array(has_value))
            dropped["null value"] = has_value.count(False)
        columns = self.run(plan.statement.arrays, records)
        for number in plan.as_json:
            for index, text in enumerate(columns[number].tolist()):
                columns[number][index] = None if text is None else serdes.json.deserialize(text.encode())
        width = len(grouping.merges) + len(grouping.averages)
        keys = columns[width:-2]
        masked = numpy.ma.getmaskarray(keys[0])
        if len(keys) == 1 and masked.any():  # a table has no row for it
            dropped["null key"] = int(columns[-2][masked].sum())
            columns = [column[~masked] for column in columns]
            keys = columns[width:-2]
        whole: Sequence[object] | None = None
        if len(keys) > 1:
            whole = [dict(zip(grouping.keys, each, strict=True)) for each in zip(*(column.tolist() for column in keys), strict=True)]
        elif not grouping.by_key:
            whole = keys[0].tolist()
        return BatchResult(columns[-1].tolist(), columns=columns[:width], keys=whole, dropped=dropped)


_KEY_SERDES = {"BIGINT": serdes.long, "INTEGER": serdes.integer, "SMALLINT": serdes.short, "DOUBLE": serdes.double,
               "BOOLEAN": serdes.boolean, "VARCHAR": serdes.string}  # fmt: skip
_STORED = {
    "TINYINT": "SMALLINT", "UTINYINT": "SMALLINT", "SMALLINT": "SMALLINT", "USMALLINT": "INTEGER", "INTEGER": "INTEGER",
    "UINTEGER": "BIGINT", "BIGINT": "BIGINT", "UBIGINT": "BIGINT", "HUGEINT": "BIGINT", "UHUGEINT": "BIGINT", "FLOAT": "DOUBLE",
    "DOUBLE": "DOUBLE", "BOOLEAN": "BOOLEAN", "VARCHAR": "VARCHAR", "UUID": "VARCHAR", "DATE": "VARCHAR", '"NULL"': "INTEGER",
}  # fmt: skip
"""Types of results, and as what JSON keeps them. Times as texts are in their order."""


def _stored_kind(kind: str) -> str | None:
    if kind.startswith("DECIMAL"):
        return "DOUBLE"
    return "VARCHAR" if kind.startswith("TIME") else _STORED.get(kind)


def _cast(name: str, kind: str | None) -> str:
    """Return the column as it is kept. JSON has no infinity and no NaN."""
    column = quoted(name)
    if kind is None:
        return column
    if kind != "DOUBLE":
        return f"{column}::{kind} AS {column}"
    refused = literal(f"the column {name} is not a finite number")
    return f"CASE WHEN isfinite({column}::DOUBLE) OR {column} IS NULL THEN {column}::DOUBLE ELSE error({refused})::DOUBLE END AS {column}"
