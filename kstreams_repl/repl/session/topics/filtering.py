"""Filter records that are not on a topic, such as values at a node, by a SQL condition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson
import pyarrow as pa

from kstreams_repl.pictures.columns import as_array, milliseconds
from kstreams_repl.repl.inspection import Limits, TableData, run_sql
from kstreams_repl.repl.session.topics.records import ReadRecord

_TABLE = "passed"
_ROW = "row number"


def records_where(records: Sequence[ReadRecord], condition: str) -> list[ReadRecord]:
    """Return the records for which a condition holds.

    The columns are those of a topic: ``key``, ``value`` and, when values are JSON objects, their fields, ``timestamp`` and
    ``partition``.

    Raises:
        SqlError: DuckDB rejects the condition.
    """
    if not records:
        return []
    found = run_sql(f'SELECT "{_ROW}" FROM {_TABLE} WHERE ({condition}\n)', _Passed(records))
    return [records[row] for row in sorted(row for (row,) in found.fetchall())]


class _Passed:
    """The only table of the query (`inspection.TableCatalog`)."""

    def __init__(self, records: Sequence[ReadRecord]) -> None:
        self._records = records

    def table(self, schema: str, name: str, limits: Limits) -> TableData | None:
        if schema or name != _TABLE:
            return None
        key, key_json = _column([record.key for record in self._records])
        value, value_json = _column([record.value for record in self._records])
        columns = {
            "key": key,
            "value": value,
            "partition": pa.array([record.partition for record in self._records], pa.int32()),
            "timestamp": milliseconds([record.timestamp for record in self._records]),
            _ROW: pa.array(range(len(self._records)), pa.int64()),
        }
        return TableData(columns, tuple(name for name, is_json in (("key", key_json), ("value", value_json)) if is_json))

    def names(self) -> Iterable[str]:
        return (_TABLE,)

    def expect(self, tables: Sequence[tuple[str, str]]) -> None:
        """Do nothing: there is one table."""


def _column(values: list[object]) -> tuple[pa.Array, bool]:
    """Return values as an Arrow array; objects and lists as JSON text."""
    if any(isinstance(value, dict | list) for value in values):
        return pa.array([None if value is None else orjson.dumps(value).decode() for value in values], pa.string()), True
    return as_array(values), False
