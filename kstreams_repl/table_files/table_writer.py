"""One table sink of one instance: brings committed segments of all its tasks into the table.

Numbered as in docs/design/018-tables.md: 6. the rows of committed segments go to data files, which no reader sees; 7. at the target
size, the interval or the end, one commit of the table adds the files and the position of every writer; 8. the segments are removed.
All of it runs on the thread of `InstanceTables`, while records are processed. A commit that finds another position (an instance that
lost its tasks was faster) discards the files and begins again from the segments that the table does not have.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.system.errors import TaskMigratedError
from kstreams_repl.table_files.data_files import DataFiles
from kstreams_repl.table_files.file_system import STAGING
from kstreams_repl.table_files.formats import open_log
from kstreams_repl.table_files.segments import Segment, Segments, number_of
from kstreams_repl.table_files.table_log import Advance, DataFile, StalePositionError, commit

_LOG = logging.getLogger("kstreams_repl.table_files")
_REBASES = 5


@dataclass(slots=True)
class _Pending:
    """What one writer has committed on Kafka and not in the table.

    Attributes:
        position: the writer's position in the table that its files were written for.
        opened: the position at which this process began, for which data files of an earlier process may exist; None: they are swept.
            It is marked from the first data file until the sweep, because a process may die in between.
    """

    segments: Segments
    position: int
    heads: list[int] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    opened: int | None = None


class TableWriter:
    """See the module. Everything but `segments`, `position` and `is_full` runs on one thread.

    Attributes:
        rows, files, commits: totals of what was added to the table.
    """

    def __init__(self, application_id: str, node: str, table: TableFiles) -> None:
        self.node = node
        self.table = table
        self._application = application_id
        self._base = f"{application_id}/{node}"
        self.log = open_log(table)
        self._files = DataFiles(table, self.log)
        self._pending: dict[str, _Pending] = {}
        self.rows = self.files = self.commits = 0

    def segments(self, partition: int) -> Segments:
        """Return the segments of one task."""
        return Segments(self.log.directory, f"{STAGING}/{_plain(self._application)}/{_plain(self.node)}/{partition}")

    def open(self, partition: int, head: int) -> tuple[int, list[Segment]]:
        """Begin with a task: read the table first, then the staged segments that it lacks; remove those that never were committed.

        Args:
            head: the task's committed head; 0 if there is none.

        Returns:
            The number to continue from, and the segments to `add`.

        Raises:
            TaskCorruptedError: committed rows are missing.
        """
        writer, segments = f"{self._base}/{partition}", self.segments(partition)
        position = self.log.positions([writer])[writer]
        try:
            chain = segments.chain(head, position)
        except FileNotFoundError:  # an instance that lost the task has just brought them into the table
            position = self.log.positions([writer])[writer]
            try:
                chain = segments.chain(head, position)
            except FileNotFoundError:
                raise segments.missing(head, position) from None
        committed = {segment.head for segment in chain}
        for other in segments.heads():
            if other not in committed:
                segments.remove(other)
        self._pending[writer] = _Pending(segments, position, opened=position)
        for mark in segments.marks():
            if mark < position:
                self._sweep(segments, self._prefix(writer, mark), mark)
        return max(position, number_of(head)), chain

    def add(self, partition: int, segment: Segment) -> None:
        """Write the rows of a committed segment to data files."""
        writer = f"{self._base}/{partition}"
        pending = self._pending[writer]
        if segment.number <= pending.position:
            return
        if pending.opened is not None and not pending.heads:
            pending.segments.mark(pending.opened)
        pending.heads.append(segment.head)
        pending.offsets |= segment.offsets
        for batch in segment.batches:
            self._files.write(self._prefix(writer, pending.position), batch)

    def position(self, partition: int) -> int:
        """Return the number of the last commit of a task whose rows are in the table."""
        return self._pending[f"{self._base}/{partition}"].position

    @property
    def is_full(self) -> bool:
        """Whether complete data files wait for a commit of the table."""
        return self._files.bytes > 0

    def commit(self) -> None:
        """Add all data files to the table.

        Raises:
            TaskMigratedError: another instance has written rows that this one does not know.
        """
        for _ in range(_REBASES):
            pending = {writer: found for writer, found in self._pending.items() if found.heads}
            if not pending:
                return
            files = self._files.take()
            advances = {
                writer: Advance(found.position, number_of(found.heads[-1]), dict(found.offsets)) for writer, found in pending.items()
            }
            failpoint("T2")
            try:
                commit(self.log, files, advances)
            except StalePositionError as stale:
                self._begin_again(files, stale.positions)
                continue
            failpoint("T4")
            self._committed(files, pending)
            return
        raise TaskMigratedError(f"another instance writes the same rows to {self.table.path}", node=self.node, path=self.table.path)

    def _committed(self, files: Sequence[DataFile], pending: dict[str, _Pending]) -> None:
        self.commits += 1
        self.files += len(files)
        self.rows += sum(file.rows for file in files)
        mine = {file.name.rpartition("/")[2] for file in files}
        for writer, found in pending.items():
            heads, found.heads, found.offsets = found.heads, [], {}
            found.position = number_of(heads[-1])
            for head in heads:
                found.segments.remove(head)
            if found.opened is not None:
                self._sweep(found.segments, self._prefix(writer, found.opened), found.opened, mine)
                found.opened = None
        _LOG.debug("%s: %d files, %d rows so far", self.table.path, len(files), self.rows)

    def _sweep(self, segments: Segments, prefix: str, position: int, mine: Collection[str] = ()) -> None:
        """Remove data files that an earlier process wrote for a position that the table has passed: no commit can add them."""
        directory = self.log.directory
        names = {name: name.rpartition("/")[2] for name in directory.names("", recursive=True)}
        stray = [name for name, base in names.items() if base.startswith(prefix) and base.removesuffix(".staged") not in mine]
        if stray:
            referenced = self.log.referenced()
            for name in stray:
                if names[name] not in referenced:
                    directory.remove(name)
        segments.unmark(position)

    def _begin_again(self, files: Sequence[DataFile], positions: dict[str, int]) -> None:
        for file in files:
            self.log.directory.remove(self.log.staged(file.name))
        _LOG.info("%s: rows of %s are in the table already; writing the others again", self.table.path, ", ".join(positions))
        for writer, found in self._pending.items():
            position = positions.get(writer, found.position)
            heads = [head for head in found.heads if number_of(head) > position]
            if position > found.position and not heads and position not in map(number_of, found.heads):
                raise TaskMigratedError(
                    f"another instance has written the rows of {writer} up to commit {position}", node=self.node, path=self.table.path
                )
            found.position, found.heads, found.offsets = position, [], {}
            for head in heads:
                self.add(int(writer.rpartition("/")[2]), found.segments.read(head))

    def discard(self) -> None:
        """Remove data files that are not in the table; the segments stay."""
        self._files.discard()

    def _prefix(self, writer: str, position: int) -> str:
        return f"{_plain(writer)}-{position:012d}-"


def _plain(name: str) -> str:
    """Return a name that every file system takes, and that needs no encoding in a URL; different names stay different."""
    return re.sub(r"[^A-Za-z0-9.-]", lambda found: f"_{ord(found[0]):x}_", name)

