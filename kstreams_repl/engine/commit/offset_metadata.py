"""The metadata committed with each input offset: partition time and commit id.

Format: ``Base64(0x02 ‖ int64 partition time ‖ processor metadata)`` as Kafka Streams writes it (its `TopicPartitionMetadata`). Processor
metadata is a map of names to int64, as there. The commit id and the task's stream time are 16 bytes after that map; the JVM does not read
them and therefore does not copy them into a commit of its own. Up to release 0.1 they were entries of the map. In the metadata of one
partition of each task the ends of the task's changelogs follow (``0x02 ‖ int16 number ‖ (int32 checksum of the topic, int64 end)…``), by
which the state after any commit can be read later, and then the counts of the task's nodes (`committed_counts`).
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

_MAGIC = 2
_HEAD = struct.Struct(">Bq")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_OURS = struct.Struct(">qq")
_ENDS = struct.Struct(">BH")
_ENDS_FORMAT = 2
_END = struct.Struct(">Iq")

COMMIT_ID = "repl.commit.id"
STREAM_TIME = "repl.stream.time"
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """The decoded metadata of an offset; -1 = unknown.

    Attributes:
        partition_time: largest timestamp (ms) taken from the partition.
        entries: processor metadata, and under the names `COMMIT_ID` and `STREAM_TIME` what only applications of this project write.
        counts: counts of the task's nodes up to the commit (`committed_counts`); empty if there are none.
        ends: ends of the task's changelogs, by checksum of their topics (`end_of`).
    """

    partition_time: int = UNKNOWN
    entries: Mapping[str, int] = field(default_factory=dict)
    counts: bytes = b""
    ends: Mapping[int, int] = field(default_factory=dict)

    def end_of(self, topic: str) -> int | None:
        """Return the end of a changelog as of the commit; `UNKNOWN` if the broker has not reported it, None if it is not there."""
        return self.ends.get(crc32(topic.encode()))

    @property
    def commit_id(self) -> int:
        return self.entries.get(COMMIT_ID, UNKNOWN)

    @property
    def stream_time(self) -> int:
        return self.entries.get(STREAM_TIME, UNKNOWN)


def encode(
    partition_time: int, entries: Mapping[str, int] | None = None, counts: bytes = b"", ends: Mapping[str, int] | None = None
) -> str:
    """Encode the metadata.

    Args:
        counts: encoded node counts; written only with a commit id or a stream time, as are the `ends`.
        ends: the ends of the task's changelogs, by topic.

    Example:
        >>> encode(42)
        'AgAAAAAAAAAq'
    """
    named = dict(entries or {})
    commit_id, stream_time = named.pop(COMMIT_ID, UNKNOWN), named.pop(STREAM_TIME, UNKNOWN)
    parts = [_HEAD.pack(_MAGIC, partition_time)]
    if entries:
        parts.append(_INT.pack(len(named)))
        for name, number in named.items():
            data = name.encode()
            parts += (_INT.pack(len(data)), data, _LONG.pack(number))
        if commit_id != UNKNOWN or stream_time != UNKNOWN:
            parts.append(_OURS.pack(commit_id, stream_time))
            if ends:
                parts.append(_ENDS.pack(_ENDS_FORMAT, len(ends)))
                parts += (_END.pack(crc32(topic.encode()), end) for topic, end in ends.items())
            parts.append(counts)
    return base64.b64encode(b"".join(parts)).decode("ascii")


def decode(text: str) -> OffsetMetadata:
    """Decode metadata; metadata in another format count as unknown, as in Kafka Streams.

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
        position = _HEAD.size + _INT.size
        entries = {}
        for _ in range(_INT.unpack_from(data, _HEAD.size)[0]):
            size = _INT.unpack_from(data, position)[0]
            name = data[position + 4 : position + 4 + size].decode()
            entries[name] = _LONG.unpack_from(data, position + 4 + size)[0]
            position += 12 + size
        if len(data) < position + _OURS.size:
            return OffsetMetadata(partition_time, entries)
        entries |= zip((COMMIT_ID, STREAM_TIME), _OURS.unpack_from(data, position), strict=True)
        ends, position = _ends_at(data, position + _OURS.size)
        return OffsetMetadata(partition_time, entries, data[position:], ends)
    except (binascii.Error, struct.error, UnicodeDecodeError, ValueError):
        return OffsetMetadata()


def _ends_at(data: bytes, position: int) -> tuple[dict[int, int], int]:
    """Return the ends of changelogs, if they begin at a position, and the position after them."""
    if data[position : position + 1] != bytes([_ENDS_FORMAT]):
        return {}, position
    after = position + _ENDS.size + _ENDS.unpack_from(data, position)[1] * _END.size
    if after > len(data):
        raise struct.error("the ends of changelogs are cut off")
    return dict(_END.iter_unpack(data[position + _ENDS.size : after])), after
