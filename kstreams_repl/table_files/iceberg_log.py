"""Iceberg tables, by the pyiceberg library. Positions are table properties, set in the same commit as the snapshot: they outlive the
snapshots that maintenance expires. The snapshot's summary has the input offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError

from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.table_files.file_system import TableDirectory, iceberg_properties
from kstreams_repl.table_files.table_log import Added, Advance, DataFile, TableCommit, TableCommitConflictError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction

_POSITION = "kstreams.position."


class IcebergLog:
    """`TableLog` of an Iceberg table. Without a catalog of its own, a SQLite file in the table's directory is the catalog."""

    folder = "data"
    columns_in_path_only = False

    def __init__(self, table: TableFiles) -> None:
        self.directory = TableDirectory(table.path, dict(table.storage_options))
        self._spec = table
        self.directory.make(self.folder)
        self.identifier = table.table or f"default.{self.directory.root.rpartition('/')[2]}"
        properties = dict(table.catalog) or {
            "type": "sql",
            "uri": f"sqlite:///{self.directory.root}/catalog.db",
            "warehouse": self.directory.url,
        }
        name = properties.pop("name", "kstreams")
        self.catalog: Catalog = load_catalog(name, **{**iceberg_properties(table.path, dict(table.storage_options)), **properties})
        self.table: Any = None

    def positions(self, writers: Sequence[str]) -> dict[str, int]:
        if self.table is None:
            self.table = self._open()
        self.table.refresh()
        known = self.table.properties
        return {writer: int(known.get(_POSITION + writer, 0)) for writer in writers}

    def _open(self) -> Table:
        try:
            return self.catalog.load_table(self.identifier)
        except NoSuchTableError:
            pass
        with suppress(NamespaceAlreadyExistsError):
            self.catalog.create_namespace(self.identifier.rpartition(".")[0])
        try:
            with self.catalog.create_table_transaction(
                self.identifier, self._spec.schema, location=self.directory.url
            ) as creation, creation.update_spec() as partitions:
                for name in self._spec.partition_by:
                    partitions.add_identity(name)
        except (TableAlreadyExistsError, CommitFailedException):  # another task created it just now
            pass
        return self.catalog.load_table(self.identifier)

    def try_commit(self, files: Sequence[DataFile], advances: Mapping[str, Advance]) -> None:
        offsets = {writer: dict(advance.offsets) for writer, advance in advances.items()}
        with self.transaction() as transaction:
            transaction.set_properties({_POSITION + writer: str(advance.after) for writer, advance in advances.items()})
            transaction.add_files(
                [f"{self.directory.url}/{file.name}" for file in files],
                snapshot_properties={"kstreams": json.dumps(offsets)},
                check_duplicate_files=False,
            )

    def commits(self) -> Iterator[TableCommit]:
        snapshot = self.table.current_snapshot()
        while snapshot is not None:
            about = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if "kstreams" in about:
                figures = (int(about.get(name, 0)) for name in ("added-data-files", "added-records", "added-files-size"))
                yield TableCommit(snapshot.timestamp_ms, json.loads(about["kstreams"]), Added(*figures))
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.table.snapshot_by_id(parent)

    def transaction(self) -> _Translated:
        """Return a transaction on the version that was loaded last, for a ``with`` block.

        Raises:
            TableCommitConflictError: there is a newer version; raised at the end of the block.
        """
        metadata = self.table.metadata  # retries of the library's would not look at the positions again
        self.table.metadata = metadata.model_copy(update={"properties": {**metadata.properties, "commit.retry.num-retries": "0"}})
        return _Translated(self.table.transaction())

    def staged(self, name: str) -> str:
        return name

    def referenced(self) -> set[str]:
        self.table.refresh()
        return {task.file.file_path.rpartition("/")[2] for task in self.table.scan().plan_files()}


class _Translated:
    """A transaction whose conflict is a `TableCommitConflictError`."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def __enter__(self) -> Transaction:
        return self._transaction.__enter__()

    def __exit__(self, *raised: Any) -> None:
        try:
            self._transaction.__exit__(*raised)
        except CommitFailedException as error:
            raise TableCommitConflictError(str(error)) from error
