"""The metadata committed with each input offset: partition time and commit id.

Format: ``Base64(0x02 ‖ int64 partition time ‖ processor metadata)`` as Kafka Streams writes it (its `TopicPartitionMetadata`). Processor
metadata is a map of names to int64, as there. The commit id and the task's stream time are 16 bytes after that map; the JVM does not read
them and therefore does not copy them into a commit of its own. Up to release 0.1 they were entries of the map. In the metadata of one
partition of each task the version of the topology and the ends of the task's changelogs follow (``0x03 ‖ int32 version ‖ int16 number ‖
(int32 checksum of the topic, int16 checksum of the topic's id, int48 end)…``), by which the state after any commit can be read later, and
processed on, and then the counts of the task's nodes (`committed_counts`). The id tells a changelog from one of the same name that was
deleted before. Up to release 0.1 version and ids were left out (``0x02``, the end an int64).
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
_ENDS, _ENDS_BEFORE = struct.Struct(">BIH"), struct.Struct(">BH")
_ENDS_FORMAT, _ENDS_WITHOUT_IDS = 3, 2
_END_BYTES = 12
_END_WITHOUT_ID = struct.Struct(">Iq")
_KEY_BITS, _ID_BITS = 48, 16
_KEY_MASK, _ID_MASK = (1 << _KEY_BITS) - 1, (1 << _ID_BITS) - 1

COMMIT_ID = "repl.commit.id"
STREAM_TIME = "repl.stream.time"
UNKNOWN = -1


def changelog_key(topic: str, topic_id: str = "") -> int:
    """Return what stands for a changelog in the metadata.

    Args:
        topic_id: the broker's id of the topic; empty: not known.
    """
    return crc32(topic.encode()) << _ID_BITS | _checksum_of_id(topic_id)


def _checksum_of_id(topic_id: str) -> int:
    """Return 16 bits for the id of a topic; 0 stands for one that is not known."""
    return (crc32(topic_id.encode()) & _ID_MASK or 1) if topic_id else 0


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """The decoded metadata of an offset; -1 = unknown.

    Attributes:
        partition_time: largest timestamp (ms) taken from the partition.
        entries: processor metadata, and under the names `COMMIT_ID` and `STREAM_TIME` what only applications of this project write.
        counts: counts of the task's nodes up to the commit (`committed_counts`); empty if there are none.
        version: of the topology; 0: not known.
        ends: by checksum of the topic of a changelog, the checksum of the topic's id, and the end (`end_of`).
    """

    partition_time: int = UNKNOWN
    entries: Mapping[str, int] = field(default_factory=dict)
    counts: bytes = b""
    version: int = 0
    ends: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def end_of(self, topic: str) -> int | None:
        """Return the end of a changelog as of the commit; `UNKNOWN` if the broker has not reported it, None if it is not there."""
        found = self.ends.get(crc32(topic.encode()))
        return None if found is None else found[1]

    def id_of(self, topic: str) -> int:
        """Return the checksum of the id that a changelog had; 0: not known."""
        return self.ends.get(crc32(topic.encode()), (0, UNKNOWN))[0]

    def may_be_of(self, topic: str, topic_id: str) -> bool:
        """Return whether the end is not that of another topic of this name, with another id."""
        return self.id_of(topic) in (0, _checksum_of_id(topic_id))

    @property
    def commit_id(self) -> int:
        return self.entries.get(COMMIT_ID, UNKNOWN)

    @property
    def stream_time(self) -> int:
        return self.entries.get(STREAM_TIME, UNKNOWN)


def encode(
    partition_time: int,
    entries: Mapping[str, int] | None = None,
    counts: bytes = b"",
    ends: Mapping[int, int] | None = None,
    version: int = 0,
) -> str:
    """Encode the metadata.

    Args:
        counts: encoded node counts; written only with a commit id or a stream time, as are the `ends` and the `version`.
        ends: the ends of the task's changelogs, by `changelog_key`.
        version: of the topology; 0 (and no ends): neither is written.

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
            if ends or version:
                ends = ends or {}
                parts.append(_ENDS.pack(_ENDS_FORMAT, version, len(ends)))
                parts += ((key << _KEY_BITS | end & _KEY_MASK).to_bytes(_END_BYTES, "big") for key, end in ends.items())
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
        version, ends, position = _ends_at(data, position + _OURS.size)
        return OffsetMetadata(partition_time, entries, data[position:], version, ends)
    except (binascii.Error, struct.error, UnicodeDecodeError, ValueError):
        return OffsetMetadata()


def _ends_at(data: bytes, position: int) -> tuple[int, dict[int, tuple[int, int]], int]:
    """Return the version and the ends of changelogs, if they begin at a position, and the position after them."""
    known = data[position] if position < len(data) else 0
    if known not in (_ENDS_FORMAT, _ENDS_WITHOUT_IDS):
        return 0, {}, position
    if known == _ENDS_FORMAT:
        _, version, number = _ENDS.unpack_from(data, position)
        first = position + _ENDS.size
    else:
        version, number, first = 0, _ENDS_BEFORE.unpack_from(data, position)[1], position + _ENDS_BEFORE.size
    after = first + number * _END_BYTES
    if after > len(data):
        raise struct.error("the ends of changelogs are cut off")
    if known == _ENDS_WITHOUT_IDS:
        return 0, {topic: (0, end) for topic, end in _END_WITHOUT_ID.iter_unpack(data[first:after])}, after
    ends = {}
    for at in range(first, after, _END_BYTES):
        key, end = divmod(int.from_bytes(data[at : at + _END_BYTES], "big"), 1 << _KEY_BITS)
        ends[key >> _ID_BITS] = key & _ID_MASK, UNKNOWN if end == _KEY_MASK else end
    return version, ends, after
