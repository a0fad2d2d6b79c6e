"""Read a topic or a store in pieces, each read and decoded separately, possibly on different workers: for data too large for one machine.

The plan is made once, from a sample: columns, types, the fields of JSON values, and the offsets of every piece. Therefore all pieces have
the same columns, and reading the same plan twice returns the same rows. The columns are those of `session.sql`; that reads every row to
find the fields of JSON values, while a plan reads only its sample: a field that no sampled record has is missing, and a value that does
not fit is NULL. A piece of a topic is a range of one partition; a piece of a store is a complete partition of its changelog, reduced to
the last record of each key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.pictures.columns import TableData
from kstreams_repl.repl.inspection.json_values import JsonColumn, lenient, read_json
from kstreams_repl.repl.inspection.query import selection
from kstreams_repl.repl.inspection.sandbox import open_sandbox, quote_identifier
from kstreams_repl.repl.inspection.stores import LogRows, store_table
from kstreams_repl.repl.inspection.topics import records_table, serdes_of
from kstreams_repl.system.types import RecordBatch, TopicPartition

Batch = tuple[TopicPartition, RecordBatch]
_RAW = "rows"


@dataclass(frozen=True)
class Pieces:
    """How to convert each piece to a table. Pickled to the workers.

    Attributes:
        store: the store whose changelog is read; None for a topic.
        structures: DuckDB's structure of each JSON column, empty if it stays text.
        schema: the columns of every piece.
    """

    settings: ClientSettings
    ranges: tuple[OffsetRange, ...]
    key_serde: Serde | None
    value_serde: Serde | None
    store: StoreBuilder | None = None
    structures: Mapping[str, str] = field(default_factory=dict)
    schema: pa.Schema | None = None

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one piece."""
        here = self.ranges[number]
        if self.store is not None:
            rows = LogRows(self.store, here.partition.partition)
            for _, batch in read_ranges(self.settings, [here]):
                rows.add(batch)
            yield from self._typed(self._table([], rows))
            return
        for found in read_ranges(self.settings, [here]):
            yield from self._typed(self._table([found]))

    def _table(self, batches: Sequence[Batch], rows: LogRows | None = None) -> TableData:
        if self.store is not None:
            assert self.key_serde is not None and self.value_serde is not None
            parts = [] if rows is None else [rows.rows()]
            return store_table(self.store, parts, key_serde=self.key_serde, value_serde=self.value_serde)
        return records_table(batches, key_serde=self.key_serde, value_serde=self.value_serde, bound="")

    def _typed(self, table: TableData) -> Iterator[pa.RecordBatch]:
        json = {name: lenient(quote_identifier(name), self.structures.get(name, "")) for name in table.json_columns}
        found = _select(table, json)
        if self.schema is not None:
            found = _fit(found, self.schema)
        yield from found.to_batches(max_chunksize=20_000)


def planned(
    settings: ClientSettings,
    ranges: Iterable[OffsetRange],
    sample: Sequence[Batch],
    *,
    key_serde: Serde | None,
    value_serde: Serde | None,
    store: StoreBuilder | None = None,
) -> Pieces:
    """Return the plan, based on records of each partition.

    Args:
        ranges: the offsets of each piece.
        sample: the records from which the columns are determined.
        key_serde, value_serde: None = determined from the sample; required for a store.
    """
    if store is None:
        key_serde, value_serde = serdes_of([batch for _, batch in sample], key_serde, value_serde)
    pieces = Pieces(settings, tuple(ranges), key_serde, value_serde, store)
    if store is None:
        table = pieces._table(sample)
    else:
        logs: dict[int, LogRows] = {}
        for partition, batch in sample:
            logs.setdefault(partition.partition, LogRows(store, partition.partition)).add(batch)
        assert key_serde is not None and value_serde is not None
        table = store_table(store, [log.rows() for log in logs.values()], key_serde=key_serde, value_serde=value_serde)
    structures = _structures(table)
    json = {name: lenient(quote_identifier(name), structures.get(name, "")) for name in table.json_columns}
    return replace(pieces, structures=structures, schema=_plain_schema(_select(table, json).schema))


def _structures(table: TableData) -> dict[str, str]:
    database = open_sandbox()
    try:
        database.register(_RAW, pa.table(table.columns))
        return {
            name: read_json(database, _RAW, quote_identifier(name), label=name).structure
            for name in (table.json_columns if table.rows else ())
        }
    finally:
        database.close()


def _select(table: TableData, json: Mapping[str, JsonColumn]) -> pa.Table:
    database = open_sandbox()
    try:
        database.register(_RAW, pa.table(table.columns))
        columns = ", ".join(selection(tuple(table.columns), json, with_value=False))
        return database.sql(f"SELECT {columns} FROM {_RAW}").to_arrow_table()
    finally:
        database.close()


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema without types that only DuckDB knows: JSON text and columns of only NULLs become text."""
    return pa.schema([pa.field(column.name, _plain(column.type)) for column in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(inner.name, _plain(inner.type)) for inner in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind


def _fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for wanted in schema:
        if wanted.name not in table.column_names:  # window bounds, when all keys are None
            columns.append(pa.nulls(table.num_rows, wanted.type))
            continue
        column = table.column(wanted.name)
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        columns.append(column.cast(wanted.type))
    return pa.table(columns, schema=schema)
