"""Filter and change records with a SELECT of DuckDB, many at once. Kafka Streams has no counterpart.

The query runs for each batch, in a database of its own that reads no files and whose settings are locked. Because a batch is an
accident of timing, only queries are taken whose result for a record depends on that record alone: no aggregates, window functions,
subqueries, ORDER BY, DISTINCT or LIMIT.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.errors import InvalidRecordError, TopologyError
from kstreams_repl.operators.batch_database import Statement, literal, open_database, quoted
from kstreams_repl.operators.batch_operator import BatchOperator, BatchWork, without_deleted
from kstreams_repl.operators.record_columns import COORDINATES, VALUE, BatchResult, RecordColumns, arrow, kind_of_values, typed

_ROW = "__row"
_ONE_SELECT = "write SELECT columns FROM this WHERE condition"
_NOT_BY_RECORD = "a batch is an arbitrary part of the stream: use group_by_key() and count(), reduce() or aggregate() behind it"


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


class _Sql:
    """`StreamSql` in one task."""

    def __init__(self, operator: StreamSql, database: Any) -> None:
        self._pa, self._database = arrow("sql()"), database
        self._query = operator.query
        self._key, self._value = operator.key, operator.value
        parsed = _parsed(self._database, operator.query)
        given = operator.not_declared(COORDINATES)
        self._text, names, everything = _with_row(self._database, parsed, given)
        self._schema = operator.schema(None if everything else names)
        self.reads_fields = bool(operator.fields)
        self._reads_value = not self.reads_fields and (everything or VALUE in names)
        self._given = [name for name in given if name in names]
        self._plans: dict[tuple[str | None, str | None], _Plan] = {}

    def close(self) -> None:
        self._database.close()

    def check(self) -> None:
        """Plan the query, if the types of the columns are known."""
        if ("key" in self._given and self._key is None) or (self._reads_value and self._value is None):
            return
        self._planned(RecordColumns(0, list, list, (), (), (), None, ()))

    def __call__(self, rows: RecordColumns) -> BatchResult:
        import duckdb

        plan, records = self._planned(rows)
        try:
            if not plan.is_text:
                found = plan.statement.table(records)
                return BatchResult(found.column(0).to_pylist(), found.column(1).to_pylist)
            indices, texts = plan.statement.columns(records)
        except duckdb.Error as cause:
            raise InvalidRecordError(f"the query failed: {cause}", hint="TRY_CAST returns NULL for what does not fit") from cause
        if plan.is_object:
            written = without_deleted(list(map(str.encode, texts)), indices, rows)
        else:
            written = [None if text is None else text.encode() for text in texts]
        return BatchResult(indices, texts=lambda: written)

    def _planned(self, rows: RecordColumns) -> tuple[_Plan, Any]:
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
        columns[_ROW] = rows.numbers()
        records = self._pa.table(columns)
        if (key, value) not in self._plans:
            self._plans[key, value] = self._plan(records, {"key": key, VALUE: value})
        return self._plans[key, value], records

    def _plan(self, records: Any, kinds: dict[str, str | None]) -> _Plan:
        import duckdb

        columns = records.column_names
        listed = [f"{quoted(name)}::JSON AS {name}" if kinds.get(name) == "json" else quoted(name) for name in columns]
        this = f"WITH this AS (SELECT {_braced(', '.join(listed))} FROM {{records}})"
        try:
            statement = Statement(self._database, len(self._plans), f"{this} {_braced(self._text)}", records)
            relation = statement.relation()
            names, types = relation.columns[:-1], relation.types[:-1]
        except duckdb.Error as cause:
            reason = str(cause).replace(f'"{_ROW}"', "the record").split("\n\nLINE")[0]
            if "GROUP BY" in reason or "aggregate" in reason:
                raise TopologyError(f"sql() cannot aggregate over a batch: {self._query}", hint=_NOT_BY_RECORD) from cause
            raise TopologyError(f"sql() cannot run {self._query!r}: {reason}", hint=self._columns_hint(columns)) from cause
        doubled = {name for name in names if names.count(name) > 1}
        if doubled:
            raise TopologyError(f"sql() selects two columns named {', '.join(sorted(doubled))}", hint="name one of them with AS")
        if names == [VALUE]:
            is_text = str(types[0]) == "JSON"
            statement.prepare(f"SELECT {_ROW}, {VALUE}{'::VARCHAR AS value' if is_text else ''} FROM ({{query}})")
            return _Plan(statement, is_text, is_object=False)
        pairs = ", ".join(f"{literal(name)}: {_written(name, str(kind))}" for name, kind in zip(names, types, strict=True))
        statement.prepare(f"SELECT {_ROW}, to_json({{{{{_braced(pairs)}}}}})::VARCHAR AS value FROM ({{query}})")
        return _Plan(statement, is_text=True, is_object=True)

    def _columns_hint(self, columns: Sequence[str]) -> str:
        if self.reads_fields:
            return "declare the fields that the query reads with columns=; also: key, timestamp, partition, offset, headers"
        return f'the columns are {VALUE}, {", ".join(COORDINATES)}; those of JSON objects are declared: columns={{"user": int}}'


def _parsed(database: Any, query: Any) -> dict[str, Any]:
    """Return the syntax tree of the SELECT.

    Raises:
        TopologyError: it does not parse, or its result for a record does not depend on that record alone.
    """
    if not isinstance(query, str):
        raise TopologyError(f"sql() expected a query as text, got {query!r}", hint=_ONE_SELECT)
    ((text,),) = database.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
    tree = json.loads(text)
    if tree["error"]:
        what = "is not a SELECT" if tree["error_type"] == "not implemented" else f"does not parse: {tree['error_message']}"
        raise TopologyError(f"sql() {what}: {query}", hint=_ONE_SELECT)
    statements = tree["statements"]
    if len(statements) != 1:
        raise TopologyError(f"sql() expected one SELECT, got {len(statements)} statements", hint=_ONE_SELECT)
    (node,) = (statement["node"] for statement in statements)
    source = node.get("from_table") or {}
    table = source.get("type"), source.get("table_name"), source.get("schema_name"), source.get("catalog_name")
    if node["type"] != "SELECT_NODE" or table != ("BASE_TABLE", "this", "", ""):
        raise TopologyError(f"sql() reads nothing but the stream, by the name this: {query}", hint=_ONE_SELECT)
    parts = list(_dicts(node))
    if node["cte_map"]["map"] or any(part.get("class") == "SUBQUERY" for part in parts):
        raise TopologyError(f"sql() takes no subquery and no WITH: {query}", hint=f"{_ONE_SELECT}; chain two calls of sql()")
    across = any(node.get(name) for name in ("modifiers", "group_expressions", "having", "sample", "qualify"))
    if across or source.get("sample") or any(part.get("class") == "WINDOW" for part in parts):
        raise TopologyError(
            f"sql() takes no GROUP BY, window function, ORDER BY, DISTINCT, LIMIT or sample: {query}", hint=_NOT_BY_RECORD
        )
    return tree  # type: ignore[no-any-return]


def _with_row(database: Any, tree: dict[str, Any], given: Sequence[str]) -> tuple[str, frozenset[str], bool]:
    """Return the query that also selects the row's number, the names of columns in it, and whether it selects all by ``*``."""
    node = tree["statements"][0]["node"]
    names: set[str] = set()
    everything = False
    for part in _dicts(node):
        if part.get("class") == "COLUMN_REF":
            names.update(map(str.lower, part["column_names"]))  # as DuckDB compares names
        elif part.get("class") == "STAR":
            everything = True
            part["exclude_list"] = [*part.get("exclude_list", ()), _ROW]
    if everything:  # `*` is what the values consist of
        hidden = [name for name in given if name in names]
        for part in _dicts(node):
            if part.get("class") == "STAR":
                part["exclude_list"] += [name for name in hidden if name not in part["exclude_list"]]
    node["select_list"].append({"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "query_location": 0, "column_names": [_ROW]})
    ((text,),) = database.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()
    return text, frozenset(names), everything


def _dicts(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _dicts(part)


def _written(name: str, kind: str) -> str:
    """Return the expression that JSON shows of a column: a decimal number as a number."""
    return f"{quoted(name)}::DOUBLE" if kind.startswith("DECIMAL") else quoted(name)


def _braced(text: str) -> str:
    """Return a text for `str.format`."""
    return text.replace("{", "{{").replace("}", "}}")


def _json_texts(data: Sequence[bytes | None]) -> Any:
    """Return JSON as an Arrow column of texts."""
    pa = arrow("sql()")
    return pa.array(data, pa.binary()).cast(pa.string())
