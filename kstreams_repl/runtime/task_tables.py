"""The sinks of one task that write tables, as part of its commits: rows are staged before a commit, the commit has their heads, and rows
enter their tables only after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kstreams_repl.runtime.collector import RowSink
from kstreams_repl.types import TopicPartition

_HEAD = "repl.table."
"""Prefix of processor metadata: the staged rows of a sink up to the commit (`RowSink.stage`)."""


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

    def stage(self, offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Stage the rows since the last commit; return the processor metadata to commit with these offsets."""
        passed = {str(partition): offset for partition, offset in offsets.items()}
        return {_HEAD + node: head for node, rows in self.items() if (head := rows.stage(passed)) is not None}

    def committed(self) -> None:
        """Take note that the commit succeeded, so that staged rows may enter their tables."""
        for rows in self.values():
            rows.committed()
