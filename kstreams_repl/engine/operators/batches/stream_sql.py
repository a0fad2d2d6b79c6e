"""Filter and change records with a SELECT of DuckDB, many at once. Kafka Streams has no counterpart.

The query runs for each batch, in a database of its own that reads no files and whose settings are locked. Because a batch is an
accident of timing, only queries are taken whose result for a record depends on that record alone: no window functions, subqueries,
ORDER BY, DISTINCT or LIMIT; aggregates with GROUP BY only (`stream_sql_partials`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kstreams_repl.engine import serdes
from kstreams_repl.engine.operators.batches.batch_database import Statement, literal, open_database, quoted
from kstreams_repl.engine.operators.batches.batch_operator import BatchOperator, BatchWork, without_deleted
from kstreams_repl.engine.operators.batches.record_columns import (
    COORDINATES,
    VALUE,
    BatchResult,
    RecordColumns,
    arrow,
    kind_of_values,
    typed,
)
from kstreams_repl.engine.operators.batches.sql_syntax import (
    NOT_BY_RECORD,
    ROW,
    columns_of,
    groups,
    items_of,
    parsed,
    select_of,
    text_of,
)
from kstreams_repl.system.errors import InvalidRecordError, TopologyError
from kstreams_repl.system.types import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa

P = TypeVar("P")
T = TypeVar("T")
Kinds = dict[str, str | None]
"""The types of the columns `key` and `value`."""
NO_RECORDS = RecordColumns(0, list, list, (), (), (), None, ())


@dataclass(slots=True)
class StreamSql(BatchOperator):
    """Run `query` over each batch.

    Attributes:
        query: the SELECT.
    """

    query: str

    def work(self, node: str) -> BatchWork:
        """Return what one task's node does with a batch."""
        return _Sql(self, open_database())

    def check(self) -> None:
        """Raise if the query cannot run.

        Raises:
            TopologyError: it is not a SELECT by record, or names an unknown column.
        """
        database = open_database()
        try:
            _Sql(self, database).check()
        finally:
            database.close()


class BatchQuery(Generic[P]):
    """A query over batches in one task: the columns that it reads, and its plan for each type of keys and values.

    Args:
        tree: the syntax tree of the operator's query; items are added to its select list by `complete`.
    """

    def __init__(self, operator: Any, database: Any, tree: JsonObject) -> None:
        self.pa, self.database = arrow("sql()"), database
        self.query: str = operator.query
        self._key, self._value = operator.key, operator.value
        given = operator.not_declared(COORDINATES)
        names, everything = columns_of(tree, given)
        self._schema = operator.schema(None if everything else names)
        self.reads_fields = bool(operator.fields)
        self._reads_value = not self.reads_fields and (everything or VALUE in names)
        self._given = [name for name in given if name in names]
        self.complete(tree)
        self._text = text_of(database, tree)
        self._plans: dict[tuple[str | None, str | None], P] = {}

    def close(self) -> None:
        self.database.close()

    @abstractmethod
    def complete(self, tree: JsonObject) -> None:
        """Add what else the query returns to its select list."""

    @abstractmethod
    def plan(self, records: object, kinds: Kinds) -> P:
        """Return the plan for records of this schema."""

    def more(self, rows: RecordColumns) -> dict[str, pa.Array]:
        """Return further columns of the records."""
        return {ROW: rows.numbers()}

    @property
    def is_typed(self) -> bool:
        """Whether the types of the columns are known without a record."""
        return not (("key" in self._given and self._key is None) or (self._reads_value and self._value is None))

    def planned(self, rows: RecordColumns) -> tuple[P, pa.Table]:
        """Return the plan for the types of these records, and the records."""
        key, value = self._key, self._value
        columns = {} if self._schema is None else rows.fields(self._schema)
        if self._reads_value:
            if value is None:
                value = kind_of_values(rows.values())
            columns[VALUE] = _json_texts(rows.json()) if value == "json" else typed(rows.values(), value, VALUE)
        for name in self._given:
            if name == "key" and key is None:
                key = kind_of_values(rows.keys())
            if name == "key" and key == "json":
                columns[name] = _json_texts(list(map(serdes.json.serialize, rows.keys())))
            else:
                columns[name] = rows.coordinate(name, key)
        records = self.pa.table(columns | self.more(rows))
        if (key, value) not in self._plans:
            self._plans[key, value] = self.plan(records, {"key": key, VALUE: value})
        return self._plans[key, value], records

    def statement(self, records: pa.Table, kinds: Kinds) -> tuple[Statement, list[str], list[str]]:
        """Return the query as a statement that is not prepared, and the names and types of its columns.

        Raises:
            TopologyError: it does not fit the columns of the records, or selects two columns of one name.
        """
        import duckdb

        columns = records.column_names
        listed = [f"{quoted(name)}::JSON AS {name}" if kinds.get(name) == "json" else quoted(name) for name in columns]
        this = f"WITH this AS (SELECT {braced(', '.join(listed))} FROM {{records}})"
        try:
            statement = Statement(self.database, len(self._plans), f"{this} {braced(self._text)}", records)
            relation = statement.relation()
            names, types = list(relation.columns), [str(kind) for kind in relation.types]
        except duckdb.Error as cause:
            raise self.refused(str(cause).replace(f'"{ROW}"', "the record").split("\n\nLINE")[0], columns) from cause
        doubled = {name for name in names if names.count(name) > 1}
        if doubled:
            raise TopologyError(f"sql() selects two columns named {', '.join(sorted(doubled))}", hint="name one of them with AS")
        return statement, names, types

    def refused(self, reason: str, columns: Sequence[str]) -> TopologyError:
        """Return the error for a query that the database cannot bind."""
        if self.reads_fields:
            hint = "declare the fields that the query reads with columns=; also: key, timestamp, partition, offset, headers"
        else:
            hint = f'the columns are {VALUE}, {", ".join(COORDINATES)}; those of JSON objects are declared: columns={{"user": int}}'
        return TopologyError(f"sql() cannot run {self.query!r}: {reason}", hint=hint)

    def run(self, run: Callable[[object], T], records: object) -> T:
        """Return the result of a statement's `table`, `columns` or `arrays`.

        Raises:
            InvalidRecordError: it fails for these records.
        """
        import duckdb

        try:
            return run(records)
        except duckdb.Error as cause:
            raise InvalidRecordError(f"the query failed: {cause}", hint="TRY_CAST returns NULL for what does not fit") from cause


@dataclass(frozen=True, slots=True)
class _Plan:
    """The query for one type of keys and values.

    Attributes:
        statement: returns the row's number and the value.
        is_text: the value is JSON text.
        is_object: the value is a dict of the selected columns.
    """

    statement: Statement
    is_text: bool
    is_object: bool


class _Sql(BatchQuery[_Plan]):
    """`StreamSql` in one task."""

    def __init__(self, operator: StreamSql, database: object) -> None:
        super().__init__(operator, database, parsed(database, operator.query))

    def check(self) -> None:
        """Plan the query, if the types of the columns are known."""
        if self.is_typed:
            self.planned(NO_RECORDS)

    def __call__(self, rows: RecordColumns) -> BatchResult:
        plan, records = self.planned(rows)
        if not plan.is_text:
            result = self.run(plan.statement.table, records)
            return BatchResult(result.column(0).to_pylist(), result.column(1).to_pylist)
        indices, texts = self.run(plan.statement.columns, records)
        if plan.is_object:
            written = without_deleted(list(map(str.encode, texts)), indices, rows)
        else:
            written = [None if text is None else text.encode() for text in texts]
        return BatchResult(indices, texts=lambda: written)

    def complete(self, tree: JsonObject) -> None:
        if groups(tree):
            raise TopologyError(
                f"sql() got a GROUP BY, which makes a table, and no store for it: {self.query}",
                hint='name the store of the table: sql(..., store="totals")',
            )
        select_of(tree)["select_list"] += items_of(self.database, ROW)

    def plan(self, records: object, kinds: Kinds) -> _Plan:
        statement, names, types = self.statement(records, kinds)
        names, types = names[:-1], types[:-1]
        if names == [VALUE]:
            is_text = types[0] == "JSON"
            statement.prepare(f"SELECT {ROW}, {VALUE}{'::VARCHAR AS value' if is_text else ''} FROM ({{query}})")
            return _Plan(statement, is_text, is_object=False)
        pairs = ", ".join(f"{literal(name)}: {_written(name, kind)}" for name, kind in zip(names, types, strict=True))
        statement.prepare(f"SELECT {ROW}, to_json({{{{{braced(pairs)}}}}})::VARCHAR AS value FROM ({{query}})")
        return _Plan(statement, is_text=True, is_object=True)

    def refused(self, reason: str, columns: Sequence[str]) -> TopologyError:
        if "GROUP BY" in reason or "aggregate" in reason:
            return TopologyError(f"sql() cannot aggregate over a batch: {self.query}", hint=NOT_BY_RECORD)
        return super().refused(reason, columns)


def _written(name: str, kind: str) -> str:
    """Return the expression that JSON shows of a column: a decimal number as a number."""
    return f"{quoted(name)}::DOUBLE" if kind.startswith("DECIMAL") else quoted(name)


def braced(text: str) -> str:
    """Return a text for `str.format`."""
    return text.replace("{", "{{").replace("}", "}}")


def _json_texts(data: Sequence[bytes | None]) -> pa.Array:
    """Return JSON as an Arrow column of texts."""
    pa = arrow("sql()")
    return pa.array(data, pa.binary()).cast(pa.string())
