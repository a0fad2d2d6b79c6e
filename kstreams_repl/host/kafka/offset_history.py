"""The earlier offset commits of a group, from the broker's topic of offsets.

The topic is compacted, but the broker compacts only closed segments (`offsets.topic.segment.bytes`, 100 MB by default), so that the last
commits are all there. Format: Kafka's ``OffsetCommitKey`` versions 0 and 1, ``OffsetCommitValue`` versions 0 to 4.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.system.unsigned_varint import read_unsigned_varint

OFFSETS_TOPIC = "__consumer_offsets"
_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_LEADER_EPOCH_SINCE, _FLEXIBLE_SINCE = 3, 4
FORGOTTEN = -1
_SETTLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """An offset that a group committed in one partition.

    Attributes:
        offset: `FORGOTTEN` if it was deleted: it expired, or somebody reset the group.
        at_ms: the broker's time of the commit.
    """

    partition: TopicPartition
    offset: int
    metadata: str
    at_ms: int


class OffsetHistory:
    """The committed offset commits of one group, in the broker's order; those that arrive later come with the next `read`."""

    def __init__(self, admin: Admin, group: str) -> None:
        self._admin = admin
        self._group = group.encode()
        self._next = 0

    def read(self) -> Iterator[OffsetCommit]:
        """Yield the commits that were not read before.

        A commit is acknowledged before the topic says that its transaction has ended. So transactions that are open are waited for, but
        not for long: one of a killed process stays open until the broker ends it.

        Raises:
            KStreamsError: the topic cannot be read.
        """
        admin = self._admin
        number = _partition_of(self._group.decode(), admin.partitions(OFFSETS_TOPIC))
        partition, deadline = TopicPartition(OFFSETS_TOPIC, number), time.monotonic() + _SETTLE_SECONDS
        end = admin.end_offsets([partition], isolation="read_uncommitted")[partition]
        while admin.end_offsets([partition])[partition] < end and time.monotonic() < deadline:
            time.sleep(0.01)
        for _, batch in read_ranges(admin.settings, ranges_of(admin, OFFSETS_TOPIC, partitions=[number], start=self._next)):
            self._next = batch.offsets[-1] + 1
            for key, value, at_ms in zip(batch.keys, batch.values, batch.timestamps, strict=True):
                of = None if key is None else self._partition_in(key)
                if of is not None:
                    yield OffsetCommit(of, FORGOTTEN, "", at_ms) if value is None else _commit_in(of, value)

    def _partition_in(self, key: bytes) -> TopicPartition | None:
        """Return the partition whose offset a record of the topic is about; None if it is of another group, or about members."""
        version, size = _SHORT.unpack_from(key)[0], len(self._group)
        if version not in (0, 1) or _SHORT.unpack_from(key, 2)[0] != size or key[4 : 4 + size] != self._group:
            return None
        after = 6 + size + _SHORT.unpack_from(key, 4 + size)[0]
        return TopicPartition(key[6 + size : after].decode(), _INT.unpack_from(key, after)[0])


def _commit_in(partition: TopicPartition, value: bytes) -> OffsetCommit:
    version, position = _SHORT.unpack_from(value)[0], 2 + _LONG.size
    if version >= _LEADER_EPOCH_SINCE:
        position += _INT.size
    if version >= _FLEXIBLE_SINCE:
        size, position = read_unsigned_varint(value, position)
        size -= 1
    else:
        size, position = _SHORT.unpack_from(value, position)[0], position + _SHORT.size
    metadata = value[position : position + size].decode()
    return OffsetCommit(partition, _LONG.unpack_from(value, 2)[0], metadata, _LONG.unpack_from(value, position + size)[0])


def _partition_of(group: str, partitions: int) -> int:
    """Return the partition of the topic that has a group: by the absolute value of ``String.hashCode()``, 0 for the smallest int."""
    number = 0
    for character in group:
        number = number * 31 + ord(character) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >> 31 else number
    return 0 if signed == -(1 << 31) else abs(signed) % partitions
