"""The text committed beside each input offset: partition time, and which commit it was.

Bytes: ``Base64(0x02 ‖ int64 partition time ‖ processor metadata)`` as Kafka Streams writes them (its
`TopicPartitionMetadata`). Processor metadata is its map of names to int64; ours holds the commit id and the task's stream
time, so that an application can move from the JVM and back.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

_MAGIC = 2
_HEAD = struct.Struct(">Bq")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")

COMMIT_ID = "repl.commit.id"
STREAM_TIME = "repl.stream.time"
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """What is known beside an offset; -1 = unknown.

    Attributes:
        partition_time: largest timestamp taken from the partition.
        entries: named int64 values.
    """

    partition_time: int = UNKNOWN
    entries: Mapping[str, int] = field(default_factory=dict)

    @property
    def commit_id(self) -> int:
        return self.entries.get(COMMIT_ID, UNKNOWN)

    @property
    def stream_time(self) -> int:
        return self.entries.get(STREAM_TIME, UNKNOWN)


def encode(partition_time: int, entries: Mapping[str, int] | None = None) -> str:
    """The metadata text.

    Example:
        >>> encode(42)
        'AgAAAAAAAAAq'
    """
    parts = [_HEAD.pack(_MAGIC, partition_time)]
    if entries:
        parts.append(_INT.pack(len(entries)))
        for name, number in entries.items():
            data = name.encode()
            parts += (_INT.pack(len(data)), data, _LONG.pack(number))
    return base64.b64encode(b"".join(parts)).decode("ascii")


def decode(text: str) -> OffsetMetadata:
    """Read a metadata text; one that nobody of us wrote counts as unknown, as in Kafka Streams.

    Example:
        >>> decode("AgAAAAAAAAAq").partition_time
        42
    """
    try:
        data = base64.b64decode(text, validate=True)
        if not data or data[0] not in (1, _MAGIC):
            return OffsetMetadata()
        partition_time = _LONG.unpack_from(data, 1)[0]
        if data[0] == 1 or len(data) == _HEAD.size:
            return OffsetMetadata(partition_time)
        at = _HEAD.size + _INT.size
        entries = {}
        for _ in range(_INT.unpack_from(data, _HEAD.size)[0]):
            size = _INT.unpack_from(data, at)[0]
            name = data[at + 4 : at + 4 + size].decode()
            entries[name] = _LONG.unpack_from(data, at + 4 + size)[0]
            at += 12 + size
        return OffsetMetadata(partition_time, entries)
    except (binascii.Error, struct.error, UnicodeDecodeError, ValueError):
        return OffsetMetadata()
