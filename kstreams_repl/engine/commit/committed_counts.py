"""A task's node counts, committed with its input offsets, so that a commit counts exactly the records that it covers.

They are at the end of the offset metadata of the task's first input partition (`offset_metadata`). The JVM does not read them, and the
application's counts restart after a commit by the JVM. Nodes are identified by a checksum, numbers are of variable length. Counts that
would exceed the broker's ``offset.metadata.max.bytes`` (4096) are left out and restart at 0 with the next task initialisation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount, NodeCounts
from kstreams_repl.system.unsigned_varint import read_unsigned_varint, unsigned_varint

_FORMAT = 1


def written_counts(counts: NodeCounts) -> bytes:
    """Encode these counts; return no bytes if nothing has been counted.

    Example:
        >>> from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount
        >>> committed_counts(written_counts({"kept": NodeCount(5, 3), "late": NodeCount(2, 1, {"expired": 1})}), ["kept", "other"])
        {'kept': NodeCount(taken=5, given=3, dropped={})}
    """
    return _written({crc32(node.encode()): count for node, count in counts.items()})


def merged_counts(parts: Iterable[bytes]) -> bytes:
    """Add the counts of several tasks node by node; bytes in another format are left out."""
    total: dict[int, NodeCount] = {}
    for data in parts:
        for node, count in _known(data):
            total[node] = total[node] + count if node in total else count
    return _written(total)


def committed_counts(data: bytes, nodes: Iterable[str]) -> dict[str, NodeCount]:
    """Return the counts of these nodes; empty if there are none, or the bytes have another format."""
    by_sum = {crc32(node.encode()): node for node in nodes}
    return {by_sum[node]: count for node, count in _known(data) if node in by_sum}


def _written(counts: Mapping[int, NodeCount]) -> bytes:
    some = {node: count for node, count in counts.items() if count.taken or count.given or count.dropped}
    if not some:
        return b""
    reasons = sorted({reason for count in some.values() for reason in count.dropped})
    parts = [bytes([_FORMAT]), unsigned_varint(len(reasons))]
    for reason in reasons:
        text = reason.encode()
        parts += (unsigned_varint(len(text)), text)
    for node, count in some.items():
        parts += (node.to_bytes(4, "big"), unsigned_varint(count.taken), unsigned_varint(count.given), unsigned_varint(len(count.dropped)))
        for reason, number in count.dropped.items():
            parts += (unsigned_varint(reasons.index(reason)), unsigned_varint(number))
    return b"".join(parts)


def _known(data: bytes) -> list[tuple[int, NodeCount]]:
    """Decode the counts by checksum of the node name; empty if the bytes have another format."""
    if not data or data[0] != _FORMAT:
        return []
    try:
        return list(_read(data))
    except (ValueError, IndexError, UnicodeDecodeError):
        return []


def _read(data: bytes) -> Iterator[tuple[int, NodeCount]]:
    at, end = 1, len(data)

    def number() -> int:
        nonlocal at
        number, at = read_unsigned_varint(data, at)
        return number

    def taken(size: int) -> bytes:
        nonlocal at
        if at + size > end:
            raise IndexError(size)
        at += size
        return data[at - size : at]

    reasons = [taken(number()).decode() for _ in range(number())]
    while at < end:
        node = int.from_bytes(taken(4), "big")
        entered, given = number(), number()
        dropped = {}
        for _ in range(number()):
            reason = reasons[number()]
            dropped[reason] = number()
        yield node, NodeCount(entered, given, dropped)
