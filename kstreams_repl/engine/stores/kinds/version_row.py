"""One row of a versioned store's history: the versions of one key whose validity ended in one time segment.

Bytes: `int64 next‖int64 min‖(int64 timestamp‖int32 size)…‖values…`, newest version first in the list, oldest value first in the
tail, size −1 for a deletion: the layout Kafka Streams uses. A row with next == min holds a single deletion that ended no version
(*degenerate*).
"""

from __future__ import annotations

import struct

_HEAD = struct.Struct(">qq")
_ITEM = struct.Struct(">qi")


class VersionRow:
    """Versions, newest first; `next` is the time at which the newest one ends."""

    __slots__ = ("next", "versions")

    def __init__(self, next_timestamp: int, versions: list[tuple[int, bytes | None]]) -> None:
        self.next = next_timestamp
        self.versions = versions

    @property
    def min(self) -> int:
        return self.versions[-1][0]

    @property
    def degenerate(self) -> bool:
        return self.next == self.min

    @classmethod
    def decode(cls, data: bytes) -> VersionRow:
        next_timestamp, oldest = _HEAD.unpack_from(data)
        items: list[tuple[int, int]] = []
        position = _HEAD.size
        while True:
            item: tuple[int, int] = _ITEM.unpack_from(data, position)
            items.append(item)
            position += _ITEM.size
            if item[0] == oldest:
                break
        versions: list[tuple[int, bytes | None]] = []
        end = len(data)
        for timestamp, size in items:
            if size < 0:
                versions.append((timestamp, None))
            else:
                versions.append((timestamp, data[end - size : end]))
                end -= size
        return cls(next_timestamp, versions)

    def encode(self) -> bytes:
        head = [_HEAD.pack(self.next, self.min)]
        head += [_ITEM.pack(timestamp, -1 if value is None else len(value)) for timestamp, value in self.versions]
        return b"".join(head) + b"".join([value for _, value in reversed(self.versions) if value is not None])

    def find(self, timestamp: int) -> tuple[int, int, int, bytes | None]:
        """Return (index, valid from, valid to, value) of the version at `timestamp`, which must be in [min, next)."""
        valid_to = self.next
        for index, (valid_from, value) in enumerate(self.versions):
            if valid_from <= timestamp:
                return index, valid_from, valid_to, value
            valid_to = valid_from
        raise ValueError(f"timestamp {timestamp} is before this row's first version {self.min}")

    def insert_as_latest(self, valid_from: int, valid_to: int, value: bytes | None) -> None:
        """Add a version that ends at `valid_to`; a gap before it becomes a deletion."""
        if valid_from < self.next:
            kept = [version for version in self.versions if version[0] < valid_from]
            self.versions = kept or [(valid_from, None)]
            self.next = valid_from
        if self.next == valid_from:
            if self.degenerate:
                self.versions = [(valid_from, value)]
            else:
                self.versions.insert(0, (valid_from, value))
        else:
            if self.degenerate:
                self.versions = [(self.next, None)]
            else:
                self.versions.insert(0, (self.next, None))
            self.versions.insert(0, (valid_from, value))
        self.next = valid_to

    def insert_as_earliest(self, timestamp: int, value: bytes | None) -> None:
        if self.degenerate:
            self.versions = [(timestamp, value)]
        else:
            self.versions.append((timestamp, value))
