"""What a cache keeps for a key, and how long it is."""

from __future__ import annotations

from typing import Any


class Frozen:
    """What a cell is when it cannot stay an object: serialized bytes, or None for a deletion."""

    __slots__ = ("stored",)

    def __init__(self, stored: bytes | None) -> None:
        self.stored = stored


NOTHING = Frozen(None)
"""In a slot: there is no row, as far as was looked."""


class Slot:
    """One key's present value with its timestamp, whether it is to be flushed, and the context of its last write.

    While a slot is being forwarded it is leaving: a write that comes back to its key then gets a slot of its own.
    """

    __slots__ = ("key", "value", "at", "state", "timestamp", "headers", "topic", "partition", "offset")

    key: bytes
    value: Any
    """The cell, without its timestamp where cells have one; a `Frozen` when it cannot stay an object."""
    at: int
    """The cell's timestamp; 0 where cells have none."""
    state: int
    topic: Any
    partition: int
    offset: int
    timestamp: int
    headers: Any


def is_deletion(value: Any) -> bool:
    return type(value) is Frozen and value.stored is None


def length(value: Any) -> int:
    """Bytes, or characters, of what may be long; 0 for other objects."""
    kind = type(value)
    if kind is Frozen:
        return len(value.stored or b"")
    return len(value) if kind is str or kind is bytes else 0


def headers_length(headers: Any) -> int:
    return sum(len(name) + len(data or b"") for name, data in headers) if headers else 0
