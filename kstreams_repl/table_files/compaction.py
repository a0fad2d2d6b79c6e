"""Compaction: many small data files of a table become few large ones, in one commit of the table, while applications write to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kstreams_repl.engine.topology.table_files import TARGET_FILE_BYTES, TableFiles
from kstreams_repl.system.errors import UnknownTableError
from kstreams_repl.table_files.data_files import DataFileWriter
from kstreams_repl.table_files.file_system import STAGING, TableDirectory
from kstreams_repl.table_files.formats import open_log
from kstreams_repl.table_files.table_log import ATTEMPTS, DataFile, TableCommitConflictError


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result: data files that were removed, and those that replace them."""

    removed: int
    added: int


def compact(
    path: str,
    *,
    target_file_bytes: int = TARGET_FILE_BYTES,
    table: str | None = None,
    catalog: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Compacted:
    """Rewrite data files that are smaller than half of the target size. Readers of plain Parquet files may miss rows for a moment;
    readers of Delta and Iceberg never do, and older versions keep their files.

    Args:
        target_file_bytes: the size of the new files, at most.
        table, catalog: Iceberg: see `KStream.to_table_files`.
        storage_options: options of the file system.

    Raises:
        UnknownTableError: there is no table at the path.
    """
    directory = TableDirectory(path, storage_options)
    files = TableFiles(
        path, "", pa.schema([]), table=table, catalog=tuple((catalog or {}).items()), storage_options=tuple((storage_options or {}).items())
    )
    if directory.names("_delta_log"):
        return _delta(directory, files, target_file_bytes)
    if catalog is not None or directory.exists("catalog.db"):
        return _iceberg(_in_format(files, "iceberg"), target_file_bytes)
    if directory.names(f"{STAGING}/commits"):
        return _parquet(_in_format(files, "parquet"), target_file_bytes)
    raise UnknownTableError(f"there is no table at {path}", hint="give the path of to_table_files, and --catalog for Iceberg", path=path)


def _in_format(files: TableFiles, format: str) -> Any:
    return open_log(replace(files, format=format))


def _delta(directory: TableDirectory, files: TableFiles, target: int) -> Compacted:
    from deltalake import DeltaTable

    uri = directory.root if directory.is_local else directory.url
    done = DeltaTable(uri, storage_options=dict(files.storage_options) or None).optimize.compact(target_size=target)
    return Compacted(int(done["numFilesRemoved"]), int(done["numFilesAdded"]))


def _parquet(log: Any, target: int) -> Compacted:
    log.load()
    small: dict[str, list[str]] = {}
    for name in log.directory.names("", recursive=True):
        if name.endswith(".parquet") and not name.startswith(STAGING) and log.directory.size(name) < target // 2:
            small.setdefault(name.rpartition("/")[0], []).append(name)
    groups = {folder: names for folder, names in small.items() if len(names) > 1}
    removed = [name for names in groups.values() for name in names]
    added: list[DataFile] = []
    for folder, names in groups.items():
        added += _rewrite(log, folder, [log.directory.at(name) for name in names], target)
    if removed:
        _retried(log, lambda: log.try_replace(added, removed))
    return Compacted(len(removed), len(added))


def _iceberg(log: Any, target: int) -> Compacted:
    from pyiceberg.exceptions import ValidationException
    from pyiceberg.io.pyarrow import parquet_files_to_data_files

    log.positions([])
    small: dict[str, list[Any]] = {}
    for task in log.table.scan().plan_files():
        if task.file.file_size_in_bytes < target // 2 and not task.delete_files:
            small.setdefault(task.file.file_path.rpartition("/")[0], []).append(task.file)
    groups = {folder: found for folder, found in small.items() if len(found) > 1}
    added: list[DataFile] = []
    for folder, found in groups.items():
        paths = [log.directory.at(file.file_path.removeprefix(f"{log.directory.url}/")) for file in found]
        added += _rewrite(log, folder.removeprefix(f"{log.directory.url}/"), paths, target)
    removed = [file for found in groups.values() for file in found]

    def rewrite() -> None:
        try:
            with log.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
                for file in removed:
                    snapshot.delete_data_file(file)
                paths = iter([f"{log.directory.url}/{file.name}" for file in added])
                for file in parquet_files_to_data_files(log.table.io, transaction.table_metadata, paths):
                    snapshot.append_data_file(file)
        except ValidationException as error:  # gone; or not seen: PyIceberg's threads share the state of one test of manifests
            raise TableCommitConflictError(f"files to replace are not in the table: {error}") from error

    if removed:
        _retried(log, rewrite)
    return Compacted(len(removed), len(added))


def _rewrite(log: Any, folder: str, paths: list[str], target: int) -> list[DataFile]:
    """Write the rows of some files of one partition to new ones."""
    schema = pq.read_schema(paths[0], filesystem=log.directory.files)
    done: list[DataFile] = []
    writer: DataFileWriter | None = None
    for path in paths:
        with pq.ParquetFile(path, filesystem=log.directory.files) as source:
            for batch in source.iter_batches():
                if writer is None:
                    name = f"compacted-{uuid.uuid4().hex}.parquet"
                    writer = DataFileWriter(log, f"{folder}/{name}" if folder else name, schema, {})
                if writer.write(batch.cast(schema)) >= target:
                    done.append(writer.close())
                    writer = None
    return done if writer is None else [*done, writer.close()]


def _retried(log: Any, work: Callable[[], object]) -> None:
    """Commit on the newest version, again after commits of others: they only add files."""
    for _ in range(ATTEMPTS):
        try:
            work()
            return
        except TableCommitConflictError:
            log.positions([])
    raise TableCommitConflictError("other writers committed too often in between", hint="run it again")
