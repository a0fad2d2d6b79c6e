"""The sinks of one task that write tables, as part of its commits: rows are staged before a commit, the commit has their heads, and rows
enter their tables only after it.

Two entries of the processor metadata go with the offsets: the *head* of each sink's staged rows (`RowSink.stage`), by which the next
instance finds them, and how many commits have rows that their table does not have yet. A bounded run is not over while there are any
(`host.instance.reports.run_progress`).
"""

from __future__ import annotations

from collections.abc import Mapping

from kstreams_repl.engine.runtime.metadata_names import BEHIND
from kstreams_repl.engine.runtime.nodes.collector import RowSink
from kstreams_repl.system.types import TopicPartition

_HEAD = "repl.table."
"""Prefix, before the node's name."""


class TaskTables(dict[str, RowSink]):
    """The rows of each sink, by node."""

    def recover(self, metadata: Mapping[str, int]) -> None:
        """Continue from the committed heads."""
        for node, rows in self.items():
            rows.recover(metadata.get(_HEAD + node, 0))

    def convert(self) -> None:
        """Handle collected records that do not fit; this may send dead letters."""
        for rows in self.values():
            rows.convert()

    def stage(self, offsets: Mapping[TopicPartition, int], metadata: dict[str, int]) -> None:
        """Stage the rows since the last commit; set their entries of the processor metadata to commit with these offsets."""
        passed = {str(partition): offset for partition, offset in offsets.items()} if self else {}
        for node, rows in self.items():
            head = rows.stage(passed)
            if head is not None:
                metadata[_HEAD + node] = head
        if behind := self._behind():
            metadata[BEHIND] = behind
        else:
            metadata.pop(BEHIND, None)

    def committed(self) -> None:
        """Take note that the commit succeeded, so that staged rows may enter their tables."""
        for rows in self.values():
            rows.committed()

    def have_caught_up(self, metadata: Mapping[str, int]) -> bool:
        """Return whether the tables have all rows, and the metadata of the last commit do not say so."""
        return BEHIND in metadata and not self._behind()

    def _behind(self) -> int:
        return sum(rows.behind for rows in self.values())
