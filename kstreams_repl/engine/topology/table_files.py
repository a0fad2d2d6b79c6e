"""The description of a table that a sink writes: files of one format below a path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("parquet", "delta", "iceberg")
EVENT_TIMES = ("event_day", "event_hour")
"""Columns that follow from a record's timestamp; a sink has them if it partitions by them."""
TARGET_FILE_BYTES = 128 * 1024 * 1024
COMMIT_INTERVAL_MS = 10_000


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table and how its sink writes it.

    Attributes:
        path: directory or URL of the table.
        format: "parquet", "delta" or "iceberg".
        schema: the `pyarrow.Schema` of the rows, with all columns.
        partition_by: columns whose values separate the files.
        key_column, timestamp_column, value_column: columns for the record's key, its timestamp, and its whole value; None: no such
            column. Without a value column, the fields of the value are the columns.
        target_file_bytes: a data file is closed at this size.
        commit_interval_ms: rows appear in the table at the latest this long after their Kafka commit.
        table, catalog: the table's identifier and the properties of its catalog (Iceberg).
        storage_options: options of the file system; both as pairs, and neither is shown.
    """

    path: str
    format: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    key_column: str | None = None
    timestamp_column: str | None = None
    value_column: str | None = None
    target_file_bytes: int = TARGET_FILE_BYTES
    commit_interval_ms: int = COMMIT_INTERVAL_MS
    table: str | None = None
    catalog: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def derived(self) -> frozenset[str]:
        """Columns that do not come from the record's value."""
        own = (self.key_column, self.timestamp_column, self.value_column)
        return frozenset(name for name in own if name is not None) | (set(EVENT_TIMES) & set(self.partition_by))
