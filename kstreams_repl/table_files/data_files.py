"""Data files in the making: rows by partition values, written as Parquet row groups, closed at the target size."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.table_files.table_log import DataFile, TableLog

ROW_GROUP_ROWS = 131_072
_MOST_OPEN = 64
"""Open files of one node: each holds up to a row group in memory."""

Values = tuple[object, ...]


class DataFileWriter:
    """One open Parquet file."""

    def __init__(self, log: TableLog, name: str, schema: pa.Schema, values: Mapping[str, object]) -> None:
        self.name = name
        self.values = values
        self.rows = 0
        self.path = log.staged(name)
        self._directory = log.directory
        log.directory.make(self.path.rpartition("/")[0])
        self._stream = log.directory.files.open_output_stream(log.directory.at(self.path))
        self._writer = pq.ParquetWriter(self._stream, schema)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def write(self, batch: pa.RecordBatch) -> int:
        """Add rows; return the file's size on disk."""
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self._flush()
            failpoint("T1")
        return int(self._stream.tell())

    def close(self) -> DataFile:
        """Finish the file."""
        self._flush()
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        return DataFile(self.name, self.rows, size, self.values)

    def discard(self) -> None:
        """Close and remove the file."""
        with suppress(Exception):  # half written: only its removal matters
            self._writer.close()
            self._stream.close()
        self._directory.remove(self.path)

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=ROW_GROUP_ROWS)
            self._waiting, self._waiting_rows = [], 0


class DataFiles:
    """The data files of one node that are not in the table yet."""

    def __init__(self, table: TableFiles, log: TableLog) -> None:
        self._table = table
        self._log = log
        self._open: dict[tuple[str, Values], DataFileWriter] = {}
        self._closed: list[DataFile] = []
        names = [name for name in table.schema.names if not (log.columns_in_path_only and name in table.partition_by)]
        self._schema = pa.schema([table.schema.field(name) for name in names])
        self.size = 0
        """Bytes on disk, open files included."""

    def write(self, prefix: str, batch: pa.RecordBatch) -> None:
        """Add the rows of one writer.

        Args:
            prefix: begins the names of its files.
        """
        for values, rows in self._split(batch):
            writer = self._open.get((prefix, values))
            if writer is None:
                if len(self._open) >= _MOST_OPEN:
                    self._close_open()
                named = dict(zip(self._table.partition_by, values, strict=True))
                folder = "/".join([*filter(None, [self._log.folder]), *(f"{name}={_text(value)}" for name, value in named.items())])
                name = f"{prefix}{uuid.uuid4().hex[:12]}.parquet"
                writer = DataFileWriter(self._log, f"{folder}/{name}" if folder else name, self._schema, named)
                self._open[prefix, values] = writer
            if writer.write(rows) >= self._table.target_file_bytes:
                self._closed.append(self._open.pop((prefix, values)).close())

    def take(self) -> list[DataFile]:
        """Close all files and return them; they belong to the caller."""
        self._close_open()
        taken, self._closed = self._closed, []
        return taken

    def discard(self) -> None:
        """Remove all files."""
        for writer in self._open.values():
            writer.discard()
        self._open.clear()
        for file in self.take():
            self._log.directory.remove(self._log.staged(file.name))

    @property
    def bytes(self) -> int:
        """The size on disk of the files that are complete."""
        return sum(file.size for file in self._closed)

    def _close_open(self) -> None:
        self._closed += [writer.close() for writer in self._open.values()]
        self._open.clear()

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        by = self._table.partition_by
        if not by:
            yield (), batch
            return
        columns = [batch.column(name) for name in by]
        kinds = pa.Table.from_arrays(columns, list(by)).group_by(list(by)).aggregate([])
        for values in zip(*(column.to_pylist() for column in kinds.columns), strict=True):
            rows = batch if len(kinds) == 1 else batch.filter(_equal(columns, values))
            yield values, rows.select(self._schema.names)


def _equal(columns: Sequence[pa.Array], values: Values) -> pa.Array:
    mask = None
    for column, value in zip(columns, values, strict=True):
        here = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
        mask = here if mask is None else pc.and_(mask, here)
    return mask


def _text(value: object) -> str:
    """Return a value as Hive's directories have it."""
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(str(value), safe=" ")
