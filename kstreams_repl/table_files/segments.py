"""Staged segments: the rows of one commit of one task, in an Arrow file that is not part of the table yet.

A segment's *head* is one number: its sequence number, and random bits that distinguish it from a segment of an aborted commit. The
head is committed with the task's offsets, in the same Kafka transaction; each segment names the head before it, so the committed head
leads to every committed segment, and to no other.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from kstreams_repl.system.errors import TaskCorruptedError
from kstreams_repl.table_files.file_system import TableDirectory

_RANDOM_BITS = 22


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment.

    Attributes:
        head: see the module.
        previous: the head before it; 0 if it is the first.
        offsets: by input partition: the next offset after its commit.
    """

    head: int
    previous: int
    batches: Sequence[pa.RecordBatch] = field(repr=False)
    offsets: Mapping[str, int]

    @property
    def number(self) -> int:
        return number_of(self.head)


def number_of(head: int) -> int:
    """Return the sequence number of a head."""
    return head >> _RANDOM_BITS


class Segments:
    """The segments of one writer.

    Args:
        folder: their directory, relative to the table's path.
    """

    def __init__(self, directory: TableDirectory, folder: str) -> None:
        self._directory = directory
        self._folder = folder
        directory.make(folder)

    def write(self, number: int, previous: int, batches: Sequence[pa.RecordBatch], offsets: Mapping[str, int]) -> Segment:
        """Write a new segment."""
        segment = Segment(number << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS), previous, batches, offsets)
        about = {"previous": str(previous), "offsets": json.dumps(dict(offsets))}
        schema = batches[0].schema.with_metadata(about)
        with self._directory.files.open_output_stream(self._directory.at(self._name(segment.head))) as stream, pa.ipc.new_stream(
            stream, schema
        ) as writer:
            for batch in batches:
                writer.write_batch(batch.replace_schema_metadata(about))
        return segment

    def read(self, head: int) -> Segment:
        """Read a segment.

        Raises:
            FileNotFoundError: there is none.
        """
        with pa.ipc.open_stream(self._directory.read(self._name(head))) as reader:
            about = {name.decode(): text.decode() for name, text in (reader.schema.metadata or {}).items()}
            batches = [batch.replace_schema_metadata(None) for batch in reader]
        return Segment(head, int(about["previous"]), batches, json.loads(about["offsets"]))

    def chain(self, head: int, after: int) -> list[Segment]:
        """Return the committed segments with a number above `after`, oldest first.

        Raises:
            FileNotFoundError: one is missing.
        """
        found: list[Segment] = []
        while number_of(head) > after:
            found.append(self.read(head))
            head = found[-1].previous
        return found[::-1]

    def heads(self) -> list[int]:
        """Return the heads of all segments, committed or not."""
        names = self._directory.names(self._folder)
        return [int(name.rpartition("/")[2].removesuffix(".arrow"), 16) for name in names if name.endswith(".arrow")]

    def remove(self, head: int) -> None:
        self._directory.remove(self._name(head))

    def mark(self, position: int) -> None:
        """Note that data files for a position are being written."""
        self._directory.write(f"{self._folder}/{position:012d}.open", b"")

    def marks(self) -> list[int]:
        """Return the positions that are marked."""
        names = [name.rpartition("/")[2] for name in self._directory.names(self._folder)]
        return [int(name.removesuffix(".open")) for name in names if name.endswith(".open")]

    def unmark(self, position: int) -> None:
        self._directory.remove(f"{self._folder}/{position:012d}.open")

    def _name(self, head: int) -> str:
        return f"{self._folder}/{head:016x}.arrow"

    def missing(self, head: int, position: int) -> TaskCorruptedError:
        """Return the error for a committed segment that is neither staged nor in the table."""
        return TaskCorruptedError(
            f"the rows of commit {number_of(head)} are neither in the table (its last commit is {position}) nor staged at "
            f"{self._directory.at(self._folder)}",
            hint="restore the table's directory, or reset the application to write the table from the start",
            path=self._directory.at(self._folder),
        )
