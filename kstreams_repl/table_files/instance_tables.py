"""The table sinks of one instance: rows of its tasks, and the one thread that brings them into the tables.

Actors: `TaskRows`, one for each task and sink, on the task's thread; `TableWriter`, one for each sink, on the thread here. Between
them: the segments that are committed on Kafka. An error of the thread is raised at the next call of the instance, which then
initialises its tasks again; nothing is lost, because segments stay until their rows are in the table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.system.errors import KStreamsError

if TYPE_CHECKING:
    from kstreams_repl.table_files.row_batches import Misfit
    from kstreams_repl.table_files.segments import Segment
    from kstreams_repl.table_files.table_writer import TableWriter

_MOST_WAITING_BYTES = 256 * 1024 * 1024
"""Rows that wait for the thread; above it, commits wait too."""


class TaskRows:
    """`engine.runtime.nodes.collector.RowSink`: the rows of one sink in one task."""

    def __init__(
        self, tables: InstanceTables, writer: TableWriter, partition: int, misfit: Misfit, context: Callable[[], object] | None
    ) -> None:
        self._tables = tables
        self._writer = writer
        self._partition = partition
        from kstreams_repl.table_files.row_batches import RowBatches  # pyarrow is loaded only for applications with tables

        self._rows = RowBatches(writer.table, misfit, context)
        self._segments = writer.segments(partition)
        self._number = 0
        self._head = 0
        self._staged: Segment | None = None
        self.append = self._rows.append

    def recover(self, head: int) -> None:
        """Continue from a task's committed head; call it before the first record."""
        self._number, missing = self._tables.open(self._writer, self._partition, head)
        self._head = head
        for segment in missing:
            self._tables.add(self._writer, self._partition, segment)

    def convert(self) -> None:
        """Convert collected records, so that those that do not fit are found."""
        self._rows.convert()

    def stage(self, offsets: Mapping[str, int]) -> int | None:
        """Write the rows since the last commit to a segment; return its head, None without rows."""
        batches = self._rows.take()
        if not batches:
            return None
        self._staged = self._segments.write(self._number + 1, self._head, batches, offsets)
        return self._staged.head

    @property
    def behind(self) -> int:
        """Number of commits, with the staged one, whose rows are not in the table yet."""
        number = self._number if self._staged is None else self._staged.number
        return max(0, number - self._writer.position(self._partition))

    def committed(self) -> None:
        """Take note that the Kafka commit with the staged segment succeeded."""
        segment, self._staged = self._staged, None
        if segment is not None:
            self._number, self._head = segment.number, segment.head
            self._tables.add(self._writer, self._partition, segment)


class InstanceTables:
    """See the module.

    Args:
        application_id: begins the names of writers.
    """

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self._writers: dict[str, TableWriter] = {}
        self._since: dict[str, float] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._commits: dict[str, Future[None]] = {}
        self._failed: BaseException | None = None
        self._waiting = 0
        self._room = threading.Condition()

    def rows(
        self, node: str, table: TableFiles, partition: int, misfit: Misfit, context: Callable[[], object] | None = None
    ) -> TaskRows:
        """Return the rows of one task for one sink.

        Args:
            misfit, context: see `RowBatches`.
        """
        writer = self._writers.get(node)
        if writer is None:
            from kstreams_repl.table_files.table_writer import TableWriter

            with _typed(table):
                writer = self._writers[node] = TableWriter(self._application_id, node, table)
        return TaskRows(self, writer, partition, misfit, context)

    @property
    def written(self) -> dict[str, int]:
        """Rows, files and commits added to tables since the instance was opened."""
        writers = list(self._writers.values())
        return {name: sum(getattr(writer, name) for writer in writers) for name in ("rows", "files", "commits")}

    def open(self, writer: TableWriter, partition: int, head: int) -> tuple[int, list[Segment]]:
        """Run `TableWriter.open` on the thread, and wait for it."""
        self.check()
        found: list[tuple[int, list[Segment]]] = []
        self._submit(writer, lambda: found.append(writer.open(partition, head))).result()
        self.check()
        return found[0]

    def add(self, writer: TableWriter, partition: int, segment: Segment) -> None:
        """Give a committed segment to the thread; wait while it is far behind."""
        self.check()
        size = sum(batch.nbytes for batch in segment.batches)
        with self._room:
            self._room.wait_for(lambda: self._waiting < _MOST_WAITING_BYTES or self._failed is not None)
            self._waiting += size
        self._since.setdefault(writer.node, time.monotonic())

        def work() -> None:
            try:
                writer.add(partition, segment)
            finally:
                with self._room:
                    self._waiting -= size
                    self._room.notify_all()

        self._submit(writer, work)

    @property
    def have_rows(self) -> bool:
        """Whether rows wait for a commit that has not begun."""
        return bool(self._since)

    def poll(self, now: float, *, at_end: bool = False) -> None:
        """Commit to tables whose interval is over or whose files have the target size.

        Args:
            at_end: no more rows will come: do not wait for the interval.

        Raises:
            KStreamsError: the thread failed.
        """
        if not self._writers:
            return
        self.check()
        for node, writer in self._writers.items():
            running = self._commits.get(node)
            if (running is None or running.done()) and node in self._since:
                if at_end or writer.is_full or now - self._since[node] >= writer.table.commit_interval_ms / 1000:
                    del self._since[node]
                    self._commits[node] = self._submit(writer, writer.commit)

    def finish(self) -> None:
        """Bring everything that is committed on Kafka into the tables.

        Raises:
            KStreamsError: that failed; the next start completes it.
        """
        for writer in self._writers.values():
            self._since.pop(writer.node, None)
            self._submit(writer, writer.commit).result()
        self.check()

    def close(self) -> None:
        """End the thread and remove data files that are in no table."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=True, cancel_futures=True)
        for writer in self._writers.values():
            with suppress(Exception):  # what remains is swept at the next start
                writer.discard()
        self._writers.clear()

    def check(self) -> None:
        """Raise the error of the thread.

        Raises:
            KStreamsError: it failed.
        """
        if self._failed is not None:
            raise self._failed

    def _submit(self, writer: TableWriter, work: Callable[[], None]) -> Future[None]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tables")

        def run() -> None:
            if self._failed is not None:
                return
            try:
                with _typed(writer.table):
                    work()
            except BaseException as error:  # raised on the instance's thread by `check`
                self._failed = error
                with self._room:
                    self._room.notify_all()

        return self._thread.submit(run)


class _typed:
    """Raises errors of file systems and formats as a `KStreamsError` that names the table."""

    def __init__(self, table: TableFiles) -> None:
        self._table = table

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, KStreamsError):
            raise KStreamsError(
                f"writing the {self._table.format} table {self._table.path} failed: {type(error).__name__}: {error}",
                hint="the rows stay staged; they reach the table when the cause is gone and the application runs again",
                path=self._table.path,
            ) from error
