"""From records to columns: Python values become Arrow record batches, many rows at a time.

A batch that does not convert is converted again row by row, to find the records that do not fit the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kstreams_repl.engine.operators.batches.exact_columns import exact_array, is_changed_by_arrow
from kstreams_repl.engine.operators.own_copy import own_copy
from kstreams_repl.engine.topology.table_files import TableFiles

BATCH_ROWS = 16_384
MISFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, KeyError)
Misfit = Callable[[object, object, object, Exception], None]
"""(key, value, context, cause): decides about a record that does not fit; returns to drop it, or raises."""


class RowBatches:
    """Collects records and converts them to record batches of the table's schema.

    Args:
        misfit: called for each record that does not fit.
        context: returns what `misfit` needs to know about the current record; None: nothing is kept per record.
    """

    def __init__(self, table: TableFiles, misfit: Misfit, context: Callable[[], object] | None = None) -> None:
        self._table = table
        self._misfit = misfit
        self._values: list[Any] = []
        self._keys: list[Any] = []
        self._times: list[int] = []
        self._contexts: list[Any] = []
        self.append = self._appending(context)
        self.batches: list[pa.RecordBatch] = []

    def _appending(self, context: Callable[[], object] | None) -> Callable[[object, object, int], None]:
        """Return the function that adds one record."""
        values, times = self._values, self._times
        add_value, add_time, add_key, convert = values.append, times.append, self._keys.append, self.convert
        takes_key, add_context = self._table.key_column is not None, self._contexts.append
        flat = not any(pa.types.is_nested(field.type) for field in self._table.schema)

        def append(key: object, value: object, timestamp: int) -> None:
            add_value(value.copy() if flat and type(value) is dict else own_copy(value))
            add_time(timestamp)
            if takes_key:
                add_key(own_copy(key))
            if context is not None:
                add_context(context())
            if len(values) >= BATCH_ROWS:
                convert()

        return append

    def convert(self) -> None:
        """Convert what was added since the last call."""
        if not self._values:
            return
        columns = (self._values, self._keys, self._times, self._contexts)
        values, keys, times, contexts = (list(column) for column in columns)
        for column in columns:
            column.clear()
        try:
            self.batches.append(record_batch(self._table, values, keys, times))
        except MISFIT:
            self._convert_one_by_one(values, keys, times, contexts)

    def take(self) -> list[pa.RecordBatch]:
        """Convert the rest; return all batches since the last call."""
        self.convert()
        taken, self.batches = self.batches, []
        return taken

    def _convert_one_by_one(self, values: list[object], keys: list[object], times: list[int], contexts: list[object]) -> None:
        fitting = []  # each converted on its own: two that fit, such as a datetime and a text, need not fit together
        for row, value in enumerate(values):
            try:
                fitting.append(record_batch(self._table, [value], keys[row : row + 1], times[row : row + 1]))
            except MISFIT as cause:
                self._misfit(keys[row] if keys else None, value, contexts[row] if contexts else None, cause)
        if fitting:
            self.batches.append(pa.concat_batches(fitting))


def record_batch(table: TableFiles, values: Sequence[object], keys: Sequence[object], times: Sequence[int]) -> pa.RecordBatch:
    """Return the rows of some records.

    Raises:
        Exception: one of `MISFIT`: a record does not fit the schema.
    """
    columns = []
    fields = _fields(table, values)
    for field in table.schema:
        if field.name == table.value_column:
            column = _array(values, field.type)
        elif field.name == table.key_column:
            column = _array(keys, field.type)
        elif field.name == table.timestamp_column:
            column = pa.array(times, pa.timestamp("ms", "UTC")).cast(field.type)
        elif field.name in table.derived:
            moments = pa.array(times, pa.timestamp("ms"))
            column = moments.cast(pa.date32()) if field.name == "event_day" else pc.strftime(moments, "%Y-%m-%d-%H")
        elif fields is not None:
            column = fields.field(field.name)
        else:
            column = _array(list(map(methodcaller("get", field.name), values)), field.type)
        if not field.nullable and column.null_count:
            raise ValueError(f"column {field.name!r} must not be null")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _fields(table: TableFiles, values: Sequence[object]) -> pa.StructArray | None:
    """Return the columns that are fields of the values, converted in one pass; None if some need a conversion of their own."""
    derived = table.derived
    own = [field for field in table.schema if field.name not in derived]
    if not own or any(is_changed_by_arrow(field.type) for field in own) or not set(map(type, values)) <= {dict}:
        return None
    for field in own:  # Arrow would cut the fraction of a number
        if pa.types.is_integer(field.type) and not set(map(type, map(methodcaller("get", field.name), values))) <= {int, NoneType}:
            return None
    try:
        return pa.array(values, pa.struct(own))
    except MISFIT:
        return None


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    try:
        return exact_array(values, kind)
    except MISFIT:
        if set(map(type, values)) <= {str, NoneType} and (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):  # text from JSON
            return pa.array(values).cast(kind)
        raise

