"""The durable results of one asynchronous node of one task: what finished calls returned, written ahead of their commit.

A row's key is the source record's coordinates with a hash of the function's code and of what it got; its value is the result. A result is
true whatever becomes of the commit around it, so rows are in no transaction (docs/design/020-work-that-waits.md). `found` holds rows of
former owners until their records enter the node; `_open` holds, by call, a lower bound of the offset of each row that may be needed again.
The event loop's thread calls `begin` and `acknowledged`; the task's thread everything else.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Protocol, runtime_checkable

from kstreams_repl.engine.operators.streams.stream_async import AsyncKind, StreamAsync
from kstreams_repl.engine.runtime.calls.call import Call
from kstreams_repl.engine.serdes.serde import Serde
from kstreams_repl.system.errors import InvalidRecordError
from kstreams_repl.system.types import Headers, TopicPartition

_PLACE = struct.Struct(">iqi")
_HASH_BYTES = 16
_LENGTH = struct.Struct(">i")
_ONE, _SEVERAL = b"1", b"n"


class ResultLog(Protocol):
    """Where results are written ahead: one partition per node and task."""

    def read(self, partition: TopicPartition) -> tuple[Iterable[tuple[bytes, bytes, int]], int]:
        """Return the rows (key, value, offset) of a partition, and its end offset."""

    def append(self, partition: TopicPartition, key: bytes, value: bytes) -> Awaitable[int]:
        """Write a row; return its offset when it can no longer be lost. In the event loop.

        Raises:
            KStreamsError: it could not be written.
        """


@runtime_checkable
class FollowedLog(Protocol):
    """A log that another application's results arrive in, too: those of the application that this one is a fork of."""

    def arrived(self, partition: TopicPartition) -> Iterable[tuple[bytes, bytes]]:
        """Return the other application's rows (key, value) for a partition since the last call. From the task's thread."""


class CallResults:
    """The results of a node's calls in one task.

    Args:
        partition: of the node's topic.
        key_serde, value_serde, result_serde: of what the function gets and returns.
    """

    def __init__(
        self, operator: StreamAsync, partition: TopicPartition, key_serde: Serde, value_serde: Serde, result_serde: Serde
    ) -> None:
        self.partition = partition
        self._name, self._kind, self._version = partition.topic, operator.kind, operator.version
        self._key_serde, self._value_serde, self._result_serde = key_serde, value_serde, result_serde
        self._found: dict[bytes, tuple[bytes, int]] = {}
        self._open: dict[int, int] = {}
        self._left: list[int] = []
        self._end = 0
        self._followed: FollowedLog | None = None

    def open(self, log: ResultLog) -> None:
        """Read the results of former owners."""
        rows, self._end = log.read(self.partition)
        self._found = {key: (value, offset) for key, value, offset in rows}
        self._followed = log if isinstance(log, FollowedLog) else None

    def claim(self, call: Call) -> None:
        """Give a call that enters the node its result, if there is one."""
        context = call.at
        if context.topic is None:  # a punctuation's record has no coordinates
            return
        seen = blake2b(self._version, digest_size=_HASH_BYTES)
        for part in (self._key_serde.serialize(call.key), self._value_serde.serialize(call.value), *_flat(call.headers)):
            seen.update(_LENGTH.pack(-1) if part is None else _LENGTH.pack(len(part)) + part)
        seen.update(b"%d" % call.timestamp)
        call.row_key = _PLACE.pack(context.partition, context.offset, call.index) + seen.digest() + context.topic.encode()
        stored = self._found.pop(call.row_key, None)
        if stored is None and self._followed is not None:
            self._found |= {key: (value, self._end) for key, value in self._followed.arrived(self.partition)}
            stored = self._found.pop(call.row_key, None)
        if stored is not None:
            self._open[call.seq] = stored[1]
            call.found = stored[0]

    # ---- a result is written

    def encode(self, result: Any) -> bytes:
        """Return a result as a row's value.

        Raises:
            InvalidRecordError: the serde cannot write it.
        """
        write = self._result_serde.serialize
        try:
            if self._kind is AsyncKind.FILTER:
                return _ONE + (b"1" if result else b"0")
            if self._kind is AsyncKind.MAP_VALUES:
                written = write(result)
                return _ONE if written is None else _ONE + b"v" + written
            parts = [write(value) for value in result]
        except Exception as cause:
            raise InvalidRecordError(
                f"{self._result_serde.name} cannot write the result {_short(result)}: {type(cause).__name__}: {cause}",
                hint="give the node a serde for its results: result_serde=",
            ) from cause
        return _SEVERAL + b"".join(_LENGTH.pack(-1) if part is None else _LENGTH.pack(len(part)) + part for part in parts)

    def decode(self, value: bytes) -> object:
        """Return the result of a row."""
        read = self._result_serde.deserialize
        if self._kind is AsyncKind.FILTER:
            return value[1:] == b"1"
        if self._kind is AsyncKind.MAP_VALUES:
            return read(value[2:]) if len(value) > 1 else None
        results, position = [], 1
        while position < len(value):
            length = _LENGTH.unpack_from(value, position)[0]
            position += _LENGTH.size
            results.append(None if length < 0 else read(value[position : position + length]))
            position += max(length, 0)
        return results

    def begin(self, call: Call) -> None:
        """Note that a call's result is about to be written."""
        self._open[call.seq] = self._end

    def acknowledged(self, offset: int) -> None:
        """Note the offset of a result that was written."""
        self._end = max(self._end, offset + 1)

    # ---- results are forgotten

    def left(self, seq: int) -> None:
        """Note that a call has left the node: its result is not needed after the next commit."""
        self._left.append(seq)

    @property
    def expects(self) -> bool:
        """Whether results of former owners have not been asked for yet."""
        return bool(self._found)

    def committed(self, offsets: Mapping[TopicPartition, int], held: Collection[tuple[str | None, int, int]]) -> None:
        """Forget the results of calls that had left at a commit, and those of records behind it that did not come again.

        Args:
            offsets: the committed offset of each input partition.
            held: topic, partition and offset of records that wait in other nodes of the task, and may yet come.
        """
        for seq in self._left:
            self._open.pop(seq, None)
        self._left.clear()
        if self._found:
            self._found = {
                key: row
                for key, row in self._found.items()
                if (offset := _offset_of(key)) >= offsets.get(partition := _partition_of(key), 0) or (*partition, offset) in held
            }

    def floor(self) -> int:
        """Return the offset before which no row is needed any more."""
        end = self._end  # before the bounds: a row that is begun after this line lies behind it
        return min([end, *list(self._open.values()), *(offset for _, offset in self._found.values())])


def _flat(headers: Headers | None) -> Iterable[bytes | None]:
    for name, value in headers or ():
        yield name.encode()
        yield value


def _partition_of(key: bytes) -> TopicPartition:
    return TopicPartition(key[_PLACE.size + _HASH_BYTES :].decode(), _PLACE.unpack_from(key)[0])


def _offset_of(key: bytes) -> int:
    offset: int = _PLACE.unpack_from(key)[1]
    return offset


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
