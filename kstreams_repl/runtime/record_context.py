"""The coordinates of the record a task is working on.

One mutable `RecordContext` per task: the task writes it once per source record, nodes read it (processors' record metadata, dead-letter
headers, cached entries that flush later under their own coordinates). A node that emits later than the record came (cache flush,
suppress, punctuation) swaps the context with `replace` and restores it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from kstreams_repl.types import Headers, RecordMetadata


class ContextSnapshot(NamedTuple):
    """A record's coordinates kept beside a buffered or cached entry."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers


class RecordContext:
    """Coordinates of the source record now in the task; topic None, partition and offset -1 during punctuation."""

    __slots__ = ("topic", "partition", "offset", "timestamp", "headers", "raw_key", "raw_value", "known")

    def __init__(self) -> None:
        self.known = False
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
        """Take another record's coordinates; its bytes are not kept."""
        self.topic, self.partition, self.offset, self.timestamp, self.headers = snapshot
        self.raw_key = self.raw_value = None

    @contextmanager
    def replace(self, snapshot: ContextSnapshot) -> Iterator[None]:
        """Work under another record's coordinates; the present ones come back whatever happens."""
        kept, raw_key, raw_value = self.snapshot(), self.raw_key, self.raw_value
        self.restore(snapshot)
        try:
            yield
        except Exception as error:
            self.raised(error)
            raise
        finally:
            self.restore(kept)
            self.raw_key, self.raw_value = raw_key, raw_value

    def raised(self, error: Exception) -> None:
        """Note which record an error belongs to, before the context becomes that of another; the first note counts."""
        with suppress(AttributeError, TypeError):  # not every exception takes an attribute
            if getattr(error, _AT, None) is None:
                setattr(error, _AT, self.snapshot())

    def metadata(self) -> RecordMetadata | None:
        """Topic, partition, offset; in a punctuation None, -1, -1; None while processors are initialised."""
        return RecordMetadata(self.topic, self.partition, self.offset) if self.known else None


NOWHERE = ContextSnapshot(None, -1, -1, -1, [])
_AT = "__kstreams_at__"


def place_of(error: Exception, otherwise: RecordContext) -> ContextSnapshot:
    """The record that an error belongs to."""
    noted = getattr(error, _AT, None)
    return noted if isinstance(noted, ContextSnapshot) else otherwise.snapshot()
