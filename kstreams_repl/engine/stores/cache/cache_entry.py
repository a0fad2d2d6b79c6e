"""The entries of the write-back cache, and their states.

    CLEAN → DIRTY             a write
    DIRTY → CLEAN             a flush without a listener,     or the removal of repeated writes (`DirtyEntries.take`)
    DIRTY → LEAVING → CLEAN   a flush that forwards entry by entry

A clean entry equals the row below and may be dropped. A write to the key of an entry that is leaving creates another entry, so that a
listener that writes the store it is called for does not change what is being forwarded.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from kstreams_repl.system.types import Headers


class EntryState(Enum):
    """The state of an entry. Compare with ``is``: writes do so once per record."""

    CLEAN = "clean"
    DIRTY = "dirty"
    LEAVING = "leaving"


class Frozen:
    """A value that cannot be kept as an object: its serialized form without a timestamp, or None for a deletion.

    Without a constructor, because generated code makes one per record.
    """

    __slots__ = ("data",)

    data: bytes | None


def frozen(data: bytes | None) -> Frozen:
    made = Frozen()
    made.data = data
    return made


NOTHING = frozen(None)
"""The value of a slot whose key has no row in the store below."""


class CacheEntry:
    """One key's current value with its timestamp, its state, and the record context of its last write."""

    __slots__ = ("key", "value", "at", "state", "timestamp", "headers", "topic", "partition", "offset")

    key: bytes
    value: Any
    """The item, without its timestamp in timestamped stores; a `Frozen` when it cannot be kept as an object."""
    at: int
    """The item's timestamp; 0 in stores without timestamps."""
    state: EntryState
    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers


def is_deletion(value: object) -> bool:
    return type(value) is Frozen and value.data is None


def length(value: Any) -> int:
    """Return the length of text (characters), bytes or serialized values (bytes); 0 for other objects."""
    kind = type(value)
    if kind is Frozen:
        return len(value.data or b"")
    return len(value) if kind is str or kind is bytes else 0


def headers_length(headers: Headers) -> int:
    return sum(len(name) + len(data or b"") for name, data in headers) if headers else 0
