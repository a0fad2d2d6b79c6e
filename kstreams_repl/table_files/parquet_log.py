"""Plain Parquet files with a log of manifests.

A manifest ``_kstreams/commits/N.json`` lists the files that commit N adds and removes and the positions of all writers; creating it is
the commit. Only then are its files moved from their staged names to their final ones, which plain readers see. Each process that opens the
table finishes the moves of the last manifest, so a reader may miss rows of a commit for a moment, and never sees uncommitted ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.system.types import JsonObject
from kstreams_repl.table_files.file_system import STAGING, TableDirectory
from kstreams_repl.table_files.table_log import Added, Advance, DataFile, TableCommit, TableCommitConflictError

_COMMITS = f"{STAGING}/commits"
_STAGED = f"{STAGING}/files"


class ParquetLog:
    """`TableLog` of plain Parquet files."""

    folder = ""
    columns_in_path_only = True

    def __init__(self, table: TableFiles) -> None:
        self.directory = TableDirectory(table.path, dict(table.storage_options))
        self._number = 0
        self._manifest: JsonObject = {"positions": {}}

    def positions(self, writers: Sequence[str]) -> dict[str, int]:
        self.load()
        known = self._manifest["positions"]
        return {writer: known.get(writer, 0) for writer in writers}

    def load(self) -> None:
        """Read the last manifest and finish its moves."""
        self.directory.make(_COMMITS)
        while self._number == 0 or self.directory.exists(_name(self._number + 1)):
            names = self.directory.names(_COMMITS)
            numbers = [int(name[-15:-5]) for name in names if name.endswith(".json")]
            if not numbers:
                return
            self._number = max(numbers)
            self._manifest = json.loads(self.directory.read(_name(self._number)))
        self._publish()

    def try_commit(self, files: Sequence[DataFile], advances: Mapping[str, Advance]) -> None:
        positions = self._manifest["positions"] | {writer: advance.after for writer, advance in advances.items()}
        self.try_replace(files, (), positions, {writer: dict(advance.offsets) for writer, advance in advances.items()})

    def try_replace(
        self,
        added: Sequence[DataFile],
        removed: Sequence[str],
        positions: Mapping[str, int] | None = None,
        offsets: Mapping[str, object] | None = None,
    ) -> None:
        """Commit added and removed files.

        Raises:
            TableCommitConflictError: there is a newer manifest.
        """
        manifest = {
            "version": self._number + 1,
            "at_ms": int(time.time() * 1000),
            "positions": dict(self._manifest["positions"] if positions is None else positions),
            "offsets": dict(offsets or {}),
            "add": [{"name": file.name, "rows": file.rows, "bytes": file.size} for file in added],
            "remove": list(removed),
        }
        if not self.directory.create(_name(self._number + 1), json.dumps(manifest).encode()):
            raise TableCommitConflictError(f"manifest {self._number + 1} exists")
        self._number, self._manifest = self._number + 1, manifest
        failpoint("T3")
        self._publish()

    def _publish(self) -> None:
        for name in self._manifest.get("remove", ()):
            self.directory.remove(name)
        for file in self._manifest.get("add", ()):
            staged = self.staged(file["name"])
            try:
                if self.directory.exists(staged):
                    self.directory.move(staged, file["name"])
            except FileNotFoundError:  # another process moved it just now
                continue

    def commits(self) -> Iterator[TableCommit]:
        for number in range(self._number, 0, -1):
            manifest = json.loads(self.directory.read(_name(number)))
            added = Added(
                len(manifest["add"]), sum(file["rows"] for file in manifest["add"]), sum(file["bytes"] for file in manifest["add"])
            )
            if manifest["offsets"]:
                yield TableCommit(manifest.get("at_ms", 0), manifest["offsets"], added)

    def staged(self, name: str) -> str:
        return f"{_STAGED}/{name.rpartition('/')[2]}.staged"

    def referenced(self) -> set[str]:
        self.load()
        published = {name.rpartition("/")[2] for name in self.directory.names("", recursive=True) if name.endswith(".parquet")}
        return published | {file["name"].rpartition("/")[2] for file in self._manifest.get("add", ())}


def _name(number: int) -> str:
    return f"{_COMMITS}/{number:010d}.json"
