"""The coordinates of the record that a task is processing.

One mutable `RecordContext` per task: the task sets it once per source record, nodes read it (record metadata of processors, dead-letter
headers, cached entries that are flushed later with their own coordinates). A node that emits a record later (cache flush, suppress,
punctuation) sets that record's context with `replace`, which restores the current one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from kstreams_repl.system.types import Headers, RecordMetadata


class ContextSnapshot(NamedTuple):
    """The coordinates stored with a buffered or cached entry."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers


class RecordContext:
    """The coordinates of the task's current source record; in a punctuation topic None, partition and offset -1.

    Attributes:
        outer: the source record while another one's coordinates are set (`replace`); None otherwise.
    """

    __slots__ = ("topic", "partition", "offset", "timestamp", "headers", "raw_key", "raw_value", "known", "outer")

    def __init__(self) -> None:
        self.known = False
        self.outer: ContextSnapshot | None = None
        self.topic: str | None = None
        self.partition = -1
        self.offset = -1
        self.timestamp = -1
        self.headers: Headers = []
        self.raw_key: bytes | None = None
        self.raw_value: bytes | None = None

    def snapshot(self) -> ContextSnapshot:
        return ContextSnapshot(self.topic, self.partition, self.offset, self.timestamp, self.headers)

    def restore(self, snapshot: ContextSnapshot) -> None:
        """Set another record's coordinates; raw key and value become None."""
        self.topic, self.partition, self.offset, self.timestamp, self.headers = snapshot
        self.raw_key = self.raw_value = None

    @contextmanager
    def replace(self, snapshot: ContextSnapshot) -> Iterator[None]:
        """Set another record's coordinates, and restore the current ones on exit, also after an error."""
        kept, raw_key, raw_value, outer = self.snapshot(), self.raw_key, self.raw_value, self.outer
        self.outer = outer or kept
        self.restore(snapshot)
        try:
            yield
        except BaseException as error:
            self.raised(error)
            raise
        finally:
            self.restore(kept)
            self.raw_key, self.raw_value, self.outer = raw_key, raw_value, outer

    def raised(self, error: BaseException) -> None:
        """Attach the current record to an error before the context changes; only the first call has an effect."""
        with suppress(AttributeError, TypeError):  # some exceptions do not accept attributes
            if getattr(error, _AT, None) is None:
                setattr(error, _AT, self.snapshot())

    def metadata(self) -> RecordMetadata | None:
        """Return topic, partition, offset; None, -1, -1 in a punctuation; None while processors are initialised."""
        return RecordMetadata(self.topic, self.partition, self.offset) if self.known else None


NOWHERE = ContextSnapshot(None, -1, -1, -1, [])
_AT = "__kstreams_at__"


def context_of_error(error: BaseException, otherwise: RecordContext) -> ContextSnapshot:
    """Return the record that was attached to an error, or `otherwise` as a snapshot."""
    noted = getattr(error, _AT, None)
    return noted if isinstance(noted, ContextSnapshot) else otherwise.snapshot()
