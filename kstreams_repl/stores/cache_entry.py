"""The entries of the write-back cache."""

from __future__ import annotations

from typing import Any


class Frozen:
    """A cell that cannot be kept as an object: its serialized bytes, or None for a deletion."""

    __slots__ = ("stored",)

    def __init__(self, stored: bytes | None) -> None:
        self.stored = stored


NOTHING = Frozen(None)
"""The value of a slot whose key has no row in the store below."""


class Slot:
    """One key's current value with its timestamp, its dirty state, and the record context of its last write.

    A slot that is being forwarded is in the state "leaving": a write to its key during the forward gets a new slot.
    """

    __slots__ = ("key", "value", "at", "state", "timestamp", "headers", "topic", "partition", "offset")

    key: bytes
    value: Any
    """The cell, without its timestamp in timestamped stores; a `Frozen` when it cannot be kept as an object."""
    at: int
    """The cell's timestamp; 0 in stores without timestamps."""
    state: int
    topic: Any
    partition: int
    offset: int
    timestamp: int
    headers: Any


def is_deletion(value: Any) -> bool:
    return type(value) is Frozen and value.stored is None


def length(value: Any) -> int:
    """Return the length of text (characters), bytes or serialized values (bytes); 0 for other objects."""
    kind = type(value)
    if kind is Frozen:
        return len(value.stored or b"")
    return len(value) if kind is str or kind is bytes else 0


def headers_length(headers: Any) -> int:
    return sum(len(name) + len(data or b"") for name, data in headers) if headers else 0
