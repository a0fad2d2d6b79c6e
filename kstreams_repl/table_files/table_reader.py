"""Read one version of a table in a fixed order, from any row on.

The order is that of the files' paths, and of the rows in each file, so that "the first n rows" are the same in every process. Delta and
Iceberg tables have versions; plain Parquet has none: its identity is the files' names, sizes and times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import dataset, fs

from kstreams_repl.engine.config import shown_address
from kstreams_repl.engine.topology.table_files import FORMATS, TableFiles
from kstreams_repl.system.errors import ConfigError, KStreamsError, UnknownTableError
from kstreams_repl.system.extras import extras
from kstreams_repl.table_files.file_system import TableDirectory

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask

_PART = tuple[int, Callable[[], Iterator[pa.RecordBatch]]]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table.

    Attributes:
        name: identifies it, for example ``delta:7``.
        parts: of each file the number of rows, and a function that reads them.
    """

    name: str
    parts: tuple[_PART, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(count for count, _ in self.parts)

    def batches(self, skip: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows after the first `skip`; whole files before them are not read."""
        for count, read in self.parts:
            if skip >= count:
                skip -= count
                continue
            for batch in read():
                if skip < batch.num_rows:
                    yield batch.slice(skip)
                skip = max(0, skip - batch.num_rows)


def open_version(
    path: str,
    format: str | None = None,
    *,
    version: str | None = None,
    table: str | None = None,
    catalog: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> TableVersion:
    """Open the present version of a table, or a named one.

    Args:
        format: None: what the directory contains.
        version: a `TableVersion.name`; of plain Parquet only the present one can be opened.

    Raises:
        KStreamsError: there is no such table or version, or the format's library is not installed.
    """
    files = TableFiles(
        path,
        format or "",
        None,
        table=table,
        catalog=tuple(sorted((catalog or {}).items())),
        storage_options=tuple(sorted((storage_options or {}).items())),
    )
    directory = TableDirectory(path, storage_options)
    kind = format or _format_of(files, directory)
    if kind not in FORMATS:
        raise ConfigError(f"expected the format {', '.join(FORMATS)} or None, got {format!r}")
    number = None if version is None or kind == "parquet" else int(version.partition(":")[2])
    if kind == "parquet":
        return _parquet(directory)
    with extras():
        return _delta(directory, files, number) if kind == "delta" else _iceberg(directory, files, number)


def _format_of(files: TableFiles, directory: TableDirectory) -> str:
    if files.table is not None or files.catalog or directory.exists("catalog.db"):
        return "iceberg"
    return "delta" if directory.names("_delta_log") else "parquet"


def _absent(directory: TableDirectory, what: str) -> KStreamsError:
    return UnknownTableError(
        f"no {what} at {shown_address(directory.url)}",
        hint="check the path, and format= ('parquet', 'delta' or 'iceberg')",
        path=shown_address(directory.url),
    )


def _fragments(source: Any) -> tuple[_PART, ...]:
    def part(fragment: Any) -> _PART:
        return fragment.count_rows(), lambda: fragment.to_batches(schema=source.schema)

    return tuple(part(fragment) for fragment in sorted(source.get_fragments(), key=lambda fragment: fragment.path))


def _parquet(directory: TableDirectory) -> TableVersion:
    about = directory.files.get_file_info(directory.root)
    if about.type == fs.FileType.File:
        found = [about]
    else:
        shown = [name for name in directory.names("", recursive=True) if not any(part[0] in "_." for part in name.split("/"))]
        found = directory.files.get_file_info([directory.at(name) for name in shown if name.endswith(".parquet")])
    if not found:
        raise _absent(directory, "Parquet file")
    source = dataset.dataset(
        [info.path for info in found], format="parquet", filesystem=directory.files, partitioning="hive", partition_base_dir=directory.root
    )
    identity = "\n".join(f"{info.path.removeprefix(directory.root)} {info.size} {info.mtime_ns}" for info in found)
    return TableVersion(f"parquet:{hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()}", _fragments(source))


def _delta(directory: TableDirectory, files: TableFiles, version: int | None) -> TableVersion:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    options = dict(files.storage_options) or None
    uri = directory.root if directory.is_local else directory.url
    try:
        opened = DeltaTable(uri, version=version, storage_options=options)
    except TableNotFoundError as error:
        raise _absent(directory, "Delta table") from error
    except DeltaError as error:
        raise UnknownTableError(f"cannot open version {version} of the Delta table {uri}: {error}", path=uri) from error
    return TableVersion(f"delta:{opened.version()}", _fragments(opened.to_pyarrow_dataset()))


def _iceberg(directory: TableDirectory, files: TableFiles, version: int | None) -> TableVersion:
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    from kstreams_repl.table_files.iceberg_log import IcebergLog

    if not files.catalog and not directory.exists("catalog.db"):
        raise _absent(directory, "Iceberg table with a catalog of its own")
    log = IcebergLog(files)
    try:
        opened = log.catalog.load_table(log.identifier)
    except NoSuchTableError as error:
        raise _absent(directory, f"Iceberg table {log.identifier}") from error
    snapshot = opened.current_snapshot() if version is None else opened.snapshot_by_id(version)
    if snapshot is None:
        if version is None:
            return TableVersion("iceberg:0", ())
        raise UnknownTableError(f"the Iceberg table {log.identifier} has no snapshot {version} any more", path=files.path)
    scan = opened.scan(snapshot_id=snapshot.snapshot_id)
    arrow = ArrowScan(opened.metadata, opened.io, scan.projection(), AlwaysTrue())

    def part(task: FileScanTask) -> _PART:
        count = sum(batch.num_rows for batch in arrow.to_record_batches([task])) if task.delete_files else task.file.record_count
        return count, lambda: arrow.to_record_batches([task])

    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    return TableVersion(f"iceberg:{snapshot.snapshot_id}", tuple(map(part, tasks)))
