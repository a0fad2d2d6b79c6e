"""What the sink needs of a table format: positions that stand in the table's own commits, and a commit that fails if they changed.

A *writer* is one partition of one sink node of one application; its position is the number of its last staged segment whose rows are
in the table. Invariant: a commit advances positions only from the values that its files were written for, so rows of a segment enter
the table once, whatever the number of processes that try.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.table_files.file_system import TableDirectory

ATTEMPTS = 50
"""Commits of other writers that one commit may meet before it gives up."""


class TableCommitConflictError(KStreamsError):
    """Another process committed to the table in between; try again on its newest version."""


class StalePositionError(KStreamsError):
    """The table holds another position than the files were written for: another process has committed these rows."""

    @property
    def positions(self) -> dict[str, int]:
        """Return the table's position of each writer that it differs for."""
        return dict(self.fields["positions"])


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that is complete but not part of the table.

    Attributes:
        name: relative to the table's path: its final name.
        values: the values of the partition columns.
    """

    name: str
    rows: int
    size: int
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Advance:
    """What a commit records for one writer.

    Attributes:
        before, after: its position before and after the commit.
        offsets: by input partition: the next offset after the rows of the commit.
    """

    before: int
    after: int
    offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Added:
    """What one commit of a table, or several, added to it."""

    files: int = 0
    rows: int = 0
    bytes: int = 0

    def __add__(self, other: Added) -> Added:
        return Added(self.files + other.files, self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit of a sink, as the table's log has it.

    Attributes:
        at_ms: its time, by the clock of its process.
        offsets: by writer and input partition: the next offset after its rows.
    """

    at_ms: int
    offsets: Mapping[str, Mapping[str, int]]
    added: Added


class TableLog(Protocol):
    """One table of one format."""

    directory: TableDirectory
    folder: str
    """Where data files are written, relative to the table's path; "" for the path itself."""
    columns_in_path_only: bool
    """Whether data files leave the partition columns out."""

    def positions(self, writers: Sequence[str]) -> dict[str, int]:
        """Return the positions of writers, 0 for unknown ones, from the table's newest version; creates the table."""

    def try_commit(self, files: Sequence[DataFile], advances: Mapping[str, Advance]) -> None:
        """Add files to the version that `positions` returned last.

        Raises:
            TableCommitConflictError: there is a newer version.
        """

    def commits(self) -> Iterator[TableCommit]:
        """Return the commits of sinks, the newest first."""

    def staged(self, name: str) -> str:
        """Return where a data file is written before the commit."""

    def referenced(self) -> set[str]:
        """Return the base names of the data files of the newest version."""


def commit(log: TableLog, files: Sequence[DataFile], advances: Mapping[str, Advance]) -> None:
    """Add files to the table and advance positions, in one commit of the table.

    Raises:
        StalePositionError: another process has advanced one of them; nothing was added.
        TableCommitConflictError: too many commits of others came in between.
    """
    conflict: Exception | None = None
    for _ in range(ATTEMPTS):
        found = log.positions(list(advances))
        stale = {writer: found[writer] for writer, advance in advances.items() if found[writer] != advance.before}
        if stale:
            raise StalePositionError(f"the table is at {stale}", positions=stale) from conflict
        try:
            log.try_commit(files, advances)
            return
        except TableCommitConflictError as error:
            conflict = error
    raise TableCommitConflictError(
        f"other writers committed {ATTEMPTS} times in between", hint="write to the table from fewer applications at a time"
    ) from conflict


_SKEW_MS = 60_000
"""Largest difference between the clocks of a driver and its instances for which `added_since` looks at every commit."""


def added_since(log: TableLog, sink: str, starts: Mapping[str, int], at_ms: int) -> Added:
    """Return what one sink has added since a commit on Kafka.

    Args:
        sink: application and node: its writers without their partitions.
        starts: the offsets of that commit by input partition; the table's commits are counted by the offsets that stand in them.
        at_ms: the time of that commit, from which on the log is read.
    """
    total = Added()
    later: dict[str, int] = {}
    log.positions([])
    for commit in log.commits():
        if commit.at_ms < at_ms - _SKEW_MS:
            break
        mine = {at: to for writer, offsets in commit.offsets.items() if writer.rpartition("/")[0] == sink for at, to in offsets.items()}
        if any(to > later.get(at, to) for at, to in mine.items()):
            break  # the application was reset in between
        later |= mine
        if any(to > starts.get(at, 0) for at, to in mine.items()):
            total += commit.added
    return total
