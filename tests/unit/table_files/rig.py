"""One table sink as an instance runs it, without Kafka: a "commit" is `stage`, and `committed` for its success."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.table_files.instance_tables import InstanceTables, TaskRows

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
DAY_MS = 86_400_000


def table(path: Path, format: str, **settings: Any) -> TableFiles:
    by = settings.pop("partition_by", ())
    columns = SCHEMA
    if "event_day" in by:
        columns = columns.append(pa.field("event_day", pa.date32()))
    return TableFiles(str(path), format, columns, by, **settings)


class Sink:
    """The tasks of one instance; a commit covers one offset. `heads` is what Kafka's offset metadata would hold, for the next instance."""

    def __init__(self, files: TableFiles, heads: dict[int, int] | None = None, partitions: int = 1) -> None:
        self.table = files
        self.heads = dict(heads or {})
        self.offsets: dict[int, int] = {}
        self.tables = InstanceTables("app")
        self.rows: list[TaskRows] = []
        for partition in range(partitions):
            self.rows.append(self.tables.rows("sink", files, partition, self._misfit))
            self.rows[-1].recover(self.heads.get(partition, 0))

    @staticmethod
    def _misfit(key: Any, value: Any, context: Any, cause: Exception) -> None:
        raise cause

    def put(self, *numbers: int, partition: int = 0, timestamp: int = 0) -> None:
        for number in numbers:
            self.rows[partition].append(None, {"n": number, "text": f"t{number}"}, timestamp)

    def stage(self, partition: int = 0) -> int | None:
        self.rows[partition].convert()
        self.offsets[partition] = self.offsets.get(partition, 0) + 1
        return self.rows[partition].stage({f"in-{partition}": self.offsets[partition]})

    def commit(self, partition: int = 0) -> None:
        head = self.stage(partition)
        if head is not None:
            self.heads[partition] = head
        self.rows[partition].committed()

    def write(self, *numbers: int, partition: int = 0, timestamp: int = 0) -> None:
        self.put(*numbers, partition=partition, timestamp=timestamp)
        self.commit(partition)


def read(files: TableFiles) -> list[tuple[Any, ...]]:
    """All rows as DuckDB reads them from the files that the format names."""
    return duckdb.sql(f"SELECT * FROM {source(files)} ORDER BY ALL").fetchall()


def numbers(files: TableFiles) -> list[int]:
    return [row[0] for row in duckdb.sql(f"SELECT n FROM {source(files)} ORDER BY n").fetchall()]


def source(files: TableFiles) -> str:
    if files.format == "parquet":
        return f"read_parquet('{files.path}/**/*.parquet', hive_partitioning = {bool(files.partition_by)})"
    return f"read_parquet({file_names(files)!r}, hive_partitioning = {bool(files.partition_by)})"


def file_names(files: TableFiles) -> list[str]:
    """The data files that the format names."""
    if files.format == "parquet":
        return [str(path) for path in sorted(Path(files.path).rglob("*.parquet")) if "_kstreams" not in path.parts]
    if files.format == "delta":
        from deltalake import DeltaTable

        return list(DeltaTable(files.path).file_uris())
    from kstreams_repl.table_files.iceberg_log import IcebergLog

    log = IcebergLog(files)
    log.positions([])
    return [task.file.file_path.removeprefix("file://") for task in log.table.scan().plan_files()]


def strays(files: TableFiles) -> list[str]:
    """Data files and staged segments that belong to no table."""
    root = Path(files.path)
    found = [str(path.relative_to(root)) for path in root.rglob("*") if path.suffix in (".arrow", ".staged", ".open", ".tmp")]
    if files.format != "parquet":
        named = source(files)
        data = [path for path in root.rglob("*.parquet") if "_delta_log" not in path.parts]
        found += [str(path.relative_to(root)) for path in data if path.name not in named]
    return found
