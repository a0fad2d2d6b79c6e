"""Call a function with many records at once, as an Arrow record batch. Kafka Streams has no counterpart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine import serdes
from kstreams_repl.engine.operators.batches.batch_database import JsonWriter
from kstreams_repl.engine.operators.batches.batch_operator import BatchOperator, BatchWork, without_deleted
from kstreams_repl.engine.operators.batches.record_columns import COORDINATES, VALUE, BatchResult, RecordColumns, arrow, typed
from kstreams_repl.system.errors import TopologyError

if TYPE_CHECKING:
    import pyarrow as pa

ROW = "row"
"""The column that tells the input record of an output record."""


@dataclass(slots=True)
class StreamMapBatches(BatchOperator):
    """Call `mapper` with each batch.

    Attributes:
        mapper: record batch -> record batch or table.
    """

    mapper: Callable[[Any], Any]

    def work(self, node: str) -> BatchWork:
        """Return what one task's node does with a batch."""
        return _MapBatches(self, node)


class _MapBatches:
    """`StreamMapBatches` in one task."""

    def __init__(self, operator: StreamMapBatches, node: str) -> None:
        self._pa = arrow("map_batches()")
        self._mapper, self._node = operator.mapper, node
        self._key, self._value = operator.key, operator.value
        self._schema = operator.schema()
        self.reads_fields = self._schema is not None
        self._writer = JsonWriter()
        self._given = operator.not_declared((*COORDINATES, ROW))

    def __call__(self, rows: RecordColumns) -> BatchResult:
        batch = self._batch(rows)
        return self._checked(self._mapper(batch), batch, rows)

    def close(self) -> None:
        self._writer.close()

    def _batch(self, rows: RecordColumns) -> pa.RecordBatch:
        if self._schema is not None:
            columns = {name: _one(column) for name, column in rows.fields(self._schema).items()}
        else:
            columns = {VALUE: typed(rows.values(), self._value, VALUE)}
        for name in self._given:
            columns[name] = rows.numbers() if name == ROW else rows.coordinate(name, self._key)
        return self._pa.RecordBatch.from_pydict(columns)

    def _checked(self, result: object, batch: pa.RecordBatch, rows: RecordColumns) -> BatchResult:
        table = self._table(result)
        indices = self._rows(table, rows.count)
        for name in ("key", "timestamp"):
            if name in self._given and name in table.column_names:
                self._check_unchanged(name, table.column(name), batch.column(name), indices)
        names = [name for name in table.column_names if name not in self._given]
        if not names:
            raise self._wrong("returned no column for the value", f"return a column {VALUE!r}, or the fields of the value")
        if len(set(names)) < len(names):
            raise self._wrong(f"returned two columns of one name: {', '.join(names)}", "rename one of them")
        if names == [VALUE]:
            return BatchResult(indices, table.column(VALUE).to_pylist)

        def values() -> list[object]:
            columns = [table.column(name).to_pylist() for name in names]
            return without_deleted(_dicts_of(tuple(names))(zip(*columns, strict=True)), indices, rows)

        def texts() -> Sequence[bytes | None]:
            written = self._writer.write(table, names)
            return list(map(serdes.json.serialize, values())) if written is None else without_deleted(written, indices, rows)

        return BatchResult(indices, values, texts)

    def _table(self, result: object) -> pa.Table:
        pa = self._pa
        if isinstance(result, pa.Table):
            return result
        if isinstance(result, pa.RecordBatch):
            return pa.Table.from_batches([result])
        if hasattr(result, "__arrow_c_stream__") or hasattr(result, "__arrow_c_array__"):
            return pa.table(result)
        raise self._wrong(
            f"expected an Arrow record batch or table, got {type(result).__name__}",
            "return the batch, batch.filter(...), a pyarrow.table(...) or another table with the Arrow interface",
        )

    def _rows(self, table: pa.Table, count: int) -> Sequence[int]:
        if ROW not in self._given or ROW not in table.column_names:
            if table.num_rows == count:
                return range(count)
            raise self._wrong(
                f"returned {table.num_rows} rows for {count} records, and no column {ROW!r}",
                f"return one row per record, or keep the column {ROW!r}, which says which record a row comes from",
            )
        column = table.column(ROW)
        if not self._pa.types.is_integer(column.type) or column.null_count:
            raise self._wrong(f"returned a column {ROW!r} of type {column.type} with {column.null_count} nulls", _KEEP)
        rows: list[int] = column.to_pylist()
        if rows and (rows[0] < 0 or rows[-1] >= count or rows != sorted(rows)):
            raise self._wrong(f"returned a column {ROW!r} that is not ascending from 0 to {count - 1}", _KEEP)
        return rows

    def _check_unchanged(self, name: str, column: pa.ChunkedArray, given: pa.Array, rows: Sequence[int]) -> None:
        pa = self._pa
        expected = given if isinstance(rows, range) else given.take(pa.array(rows, pa.int32()))
        try:
            same = _one(column.cast(given.type)).equals(expected)
        except pa.ArrowException:
            same = False
        if not same:
            hint = "change keys with select_key() before or after it" if name == "key" else "leave the column out: records keep their time"
            raise self._wrong(f"returned other {name}s than it was given", hint)

    def _wrong(self, what: str, hint: str) -> TopologyError:
        return TopologyError(f"the mapper of {self._node} {what}", hint=hint, node=self._node)


_KEEP = "keep the column as it is, in order: batch.filter(...), batch.take(...) with ascending indices"


@lru_cache(maxsize=64)
def _dicts_of(names: tuple[str, ...]) -> Callable[[Iterable[tuple[object, ...]]], list[object]]:
    """Return a function that makes dicts of rows; generated, which halves its cost per row."""
    variables = [f"v{number}" for number in range(len(names))]
    pairs = ", ".join(f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True))
    make: Callable[[Iterable[tuple[object, ...]]], list[object]] = eval(f"lambda rows: [{{{pairs}}} for {', '.join(variables)}, in rows]")
    return make


def _one(column: Any) -> pa.Array:
    """Return a chunked array as one array."""
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column
