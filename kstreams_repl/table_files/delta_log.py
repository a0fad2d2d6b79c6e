"""Delta tables, by the deltalake library: positions are the log's own `txn` actions, one application id for each writer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, Transaction, create_table_with_add_actions

from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.system.types import JsonObject
from kstreams_repl.table_files.file_system import TableDirectory
from kstreams_repl.table_files.table_log import Added, Advance, DataFile, TableCommit, TableCommitConflictError


class DeltaLog:
    """`TableLog` of a Delta table."""

    folder = ""
    columns_in_path_only = True

    def __init__(self, table: TableFiles) -> None:
        self.directory = TableDirectory(table.path, dict(table.storage_options))
        self._options = dict(table.storage_options) or None
        self._partition_by = list(table.partition_by)
        self._schema = Schema.from_arrow(table.schema)
        self._uri = self.directory.root if self.directory.is_local else self.directory.url
        self._table: Any = None

    def positions(self, writers: Sequence[str]) -> dict[str, int]:
        if self._table is None:
            self.directory.make("")
            if not DeltaTable.is_deltatable(self._uri, self._options):
                self._create()
            self._table = DeltaTable(self._uri, storage_options=self._options)
        else:
            self._table.update_incremental()
        return {writer: self._table.transaction_version(writer) or 0 for writer in writers}

    def _create(self) -> None:
        try:
            create_table_with_add_actions(
                self._uri, self._schema, [], mode="ignore", partition_by=self._partition_by, storage_options=self._options
            )
        except DeltaError:  # another task created it just now
            if not DeltaTable.is_deltatable(self._uri, self._options):
                raise

    def try_commit(self, files: Sequence[DataFile], advances: Mapping[str, Advance]) -> None:
        now = int(time.time() * 1000)
        actions = [
            AddAction(file.name, file.size, _texts(file.values), now, True, json.dumps({"numRecords": file.rows})) for file in files
        ]
        properties = CommitProperties(
            custom_metadata={"kstreams": json.dumps({writer: dict(advance.offsets) for writer, advance in advances.items()})},
            max_commit_retries=0,  # a retry of the library's would not look at the positions again
            app_transactions=[Transaction(writer, advance.after, now) for writer, advance in advances.items()],
        )
        try:
            self._table.create_write_transaction(actions, "append", self._schema, self._partition_by, commit_properties=properties)
        except CommitFailedError as error:
            raise TableCommitConflictError(str(error)) from error

    def commits(self) -> Iterator[TableCommit]:
        for version in range(self._table.version(), 0, -1):
            try:
                lines = self.directory.read(f"_delta_log/{version:020d}.json").splitlines()
            except FileNotFoundError:  # removed by the table's maintenance: older than its retention
                return
            actions = [json.loads(line) for line in lines]
            about: JsonObject = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
            files = [action["add"] for action in actions if "add" in action]
            if "kstreams" in about:
                rows = sum(json.loads(file["stats"])["numRecords"] for file in files)
                added = Added(len(files), rows, sum(file["size"] for file in files))
                yield TableCommit(about["timestamp"], json.loads(about["kstreams"]), added)

    def staged(self, name: str) -> str:
        return name

    def referenced(self) -> set[str]:
        self._table.update_incremental()
        return {uri.rpartition("/")[2] for uri in self._table.file_uris()}


def _texts(values: Mapping[str, object]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in values.items()}
