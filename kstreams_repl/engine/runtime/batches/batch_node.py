"""One node of one task that takes many records at once: `map_batches`, `sql`.

Records that enter wait until the task has processed what it was given, or until there are enough of them; a source whose only child is
such a node hands over whole columns (`take`). The result is forwarded record by record, each under the coordinates and the stream time of
its input record, or in columns into the topic behind the node.
Invariants: nothing waits when the task commits, punctuates or returns from `process`, so a commit covers whole records; what is
downstream sees records in the order in which the task took them (`Mixing`). A batch that fails is halved until the record is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from kstreams_repl.engine import serdes
from kstreams_repl.engine.operators.batches.batch_operator import BatchOperator
from kstreams_repl.engine.operators.batches.partial_columns import Merging, PartialColumns
from kstreams_repl.engine.operators.batches.record_columns import BatchResult, RecordColumns
from kstreams_repl.engine.operators.operator import NodeContext, Process
from kstreams_repl.engine.operators.own_copy import own_copy
from kstreams_repl.engine.runtime.batches.batch_mixing import Mixing
from kstreams_repl.engine.runtime.queues.record_queue import StreamClock
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.system.errors import TopologyError, is_interrupt
from kstreams_repl.system.types import Headers, Outlet

BATCH_RECORDS = 16_384
"""Records of a batch: enough that the cost of a call does not count, few enough to stay in the processor's cache."""


class BatchedRecord(NamedTuple):
    """One record that entered the node, with the context in which its results are forwarded."""

    key: object
    value: object
    timestamp: int
    headers: Headers
    topic: str | None
    partition: int
    offset: int
    record_timestamp: int
    record_headers: Headers
    raw_key: bytes | None
    raw_value: bytes | None
    stream_time: int


class ErrorsOfNode(Protocol):
    def handled(self, node: str, error: Exception) -> bool:
        """Ask the processing exception handler; return whether it continues."""

    def explain(self, error: BaseException, node: str | None) -> Exception:
        """Return the error with the current record's coordinates."""


class BatchNode:
    """The records of one node.

    Args:
        mixing: how long records may wait.
        errors: the task's.
    """

    def __init__(
        self,
        operator: BatchOperator,
        node: NodeContext,
        forward: Process,
        *,
        clock: StreamClock,
        mixing: Mixing,
        errors: ErrorsOfNode,
    ) -> None:
        self.name, self.mixing = node.name, mixing
        self._node, self._forward, self._clock, self._errors = node, forward, clock, errors
        self._work = work = operator.work(node.name)
        self._rekeys = operator.rekeys

        def run(rows: RecordColumns) -> BatchResult:
            return work(rows)

        self._merging = node.merging() if operator.rekeys else None
        self.run = run
        """Runs the work; named after the node, so that a stack shows it (`compile.named`)."""
        node.on_close(self._work.close)
        self._waiting: list[BatchedRecord] = []
        self._most = 1 if mixing is Mixing.RECORDS else BATCH_RECORDS

    @property
    def holds(self) -> bool:
        """Whether records wait."""
        return bool(self._waiting)

    # ---- records one by one

    def enter(self, key: object, value: object, timestamp: int, headers: Headers) -> None:
        """Take one record in: the node's entry."""
        record, waiting, node = self._node.record, self._waiting, self.name
        waiting.append(
            BatchedRecord(
                own_copy(key, node=node), own_copy(value, node=node), timestamp, headers, record.topic, record.partition, record.offset,
                record.timestamp, record.headers, record.raw_key, record.raw_value, self._clock.now,
            )
        )  # fmt: skip
        if len(waiting) >= self._most:
            self.leave()

    def leave(self) -> None:
        """Process the records that wait, and forward their results."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        record, clock = self._node.record, self._clock
        kept, raw_key, raw_value, now = record.snapshot(), record.raw_key, record.raw_value, clock.now
        try:
            self._process(waiting)
        finally:
            record.restore(kept)
            record.raw_key, record.raw_value = raw_key, raw_value
            clock.now = max(now, clock.now)

    def _process(self, waiting: Sequence[BatchedRecord]) -> None:
        try:
            result = self.run(_columns_of(waiting))
            keys = [waiting[row].key for row in result.rows] if result.keys is None else result.keys
            merging = self._merging_of(result)
            values = result.objects() if merging is None else ()
        except BaseException as error:
            if is_interrupt(error):
                raise
            if len(waiting) == 1 or isinstance(error, TopologyError) or not isinstance(error, Exception):
                self._refuse(waiting[0], error)
                return
            half = len(waiting) // 2
            self._process(waiting[:half])
            self._process(waiting[half:])
            return
        self._drop(result)
        forward, record = self._forward, self._node.record
        try:
            if merging is not None and result.columns is not None:
                self._clock.now = max(one.stream_time for one in waiting)
                data, ones = list(map(merging.key_serde.serialize, keys)), [waiting[row] for row in result.rows]
                fields = "timestamp", "record_headers", "topic", "partition", "offset"
                merging.run(PartialColumns(data, result.columns, *(list(map(attrgetter(name), ones)) for name in fields)))
                return
            for row, key, value in zip(result.rows, keys, values, strict=True):
                one = waiting[row]
                self._locate(one)
                forward(key, value, one.timestamp, one.headers)
        except BaseException as error:
            record.raised(error)
            raise

    def _merging_of(self, result: BatchResult) -> Merging | None:
        """Return what merges the results, which are partials, without a call for each; None: forward them one by one."""
        return None if self._merging is None or result.columns is None or self._merging.watched() else self._merging

    def _drop(self, result: BatchResult) -> None:
        for reason, count in result.dropped.items():
            for _ in range(count):
                self._node.drop(reason)

    def _locate(self, one: BatchedRecord) -> None:
        record = self._node.record
        record.topic, record.partition, record.offset = one.topic, one.partition, one.offset
        record.timestamp, record.headers = one.record_timestamp, one.record_headers
        record.raw_key, record.raw_value = one.raw_key, one.raw_value
        self._clock.now = one.stream_time

    def _refuse(self, one: BatchedRecord, error: BaseException) -> None:
        """Ask the handler about a record that fails alone; raise if it does not continue."""
        self._locate(one)
        self._node.record.raised(error)
        if isinstance(error, Exception) and self._errors.handled(self.name, error):
            return
        raise self._errors.explain(error, self.name) from error

    # ---- records in columns

    def reads_texts(self, values: Serde) -> bool:
        """Return whether the loop is given values of this serde unread."""
        return self._work.reads_fields and values is serdes.json

    def loop(self, keys: Serde, values: Serde, *, keys_read: bool) -> Callable[..., int]:
        """Return the loop (`loop_codegen.Run`) of a source whose only child this node is.

        Args:
            keys, values: the source's serdes.
            keys_read: whether the loop is given keys that are read.
        """
        texts = self.reads_texts(values)
        # the partition of a windowed key is found by its bytes, so a null key cannot be sent that way
        outlet = None if keys.base_key_suffix or self._rekeys else self._node.outlet(keys, serdes.json)

        def run(
            all_keys: Sequence[object],
            all_values: Sequence[object],
            all_data: object,
            timestamps: Sequence[int],
            offsets: Sequence[int],
            all_headers: Iterable[Headers],
            raw_keys: Sequence[bytes | None],
            raw_values: Sequence[bytes | None],
        ) -> int:
            self.leave()  # records that came one by one are earlier
            shared: Headers = next(all_headers) if isinstance(all_headers, repeat) else []
            headers = None if isinstance(all_headers, repeat) else list(all_headers)
            count = size = len(timestamps)
            done = 0
            whole = _Chunk(all_keys, keys_read, all_values, timestamps, offsets, headers, shared, raw_keys, raw_values)
            while done < count:
                chunk = whole if size == count else whole.part(done, done + size)
                result = self._result_of(chunk, keys, texts=texts, as_json=outlet is not None)
                if result is not None:
                    self._emit(chunk, *result, keys, outlet)
                    done += len(chunk.timestamps)
                elif size > 1:
                    size = (size + 1) // 2
                else:
                    break  # this record enters alone, so that its error is handled
            return count - done

        return run

    def _result_of(
        self, chunk: _Chunk, keys: Serde, *, texts: bool, as_json: bool
    ) -> tuple[BatchResult, Sequence[object]] | None:
        """Return what the chunk became, and the values or their JSON; None if a record of the chunk fails."""
        count = len(chunk.timestamps)
        columns = RecordColumns(
            count,
            lambda: chunk.key_objects(keys),
            lambda: list(map(serdes.json.deserialize, chunk.raw_values)) if texts else chunk.values,
            chunk.timestamps,
            self._node.record.partition,
            chunk.offsets,
            chunk.headers,
            chunk.raw_values if texts else None,
            None if chunk.are_read else chunk.raw_keys,
        )
        try:
            result = self.run(columns)
            if self._merging_of(result) is not None:
                return result, ()
            return result, result.json() if as_json else result.objects()
        except BaseException as error:  # raised again when the record enters alone
            if is_interrupt(error):
                raise
            return None

    def _emit(self, chunk: _Chunk, result: BatchResult, values: Sequence[Any], keys: Serde, outlet: Outlet | None) -> None:
        """Forward a result, and advance the stream time to that of its records."""
        self._drop(result)
        rows = result.rows
        clock, timestamps = self._clock, chunk.timestamps
        before, headers = clock.now, chunk.headers
        if outlet is not None:
            clock.now = max(before, max(timestamps))
            if rows:
                own = None if headers is None or not any(headers) else _picked(headers, rows)
                outlet(_picked(chunk.key_data(keys), rows), values, _picked(timestamps, rows), own)
            return
        forward, record = self._forward, self._node.record
        if (merging := self._merging_of(result)) is not None and result.columns is not None:
            clock.now = max(before, max(timestamps))
            data = _picked(chunk.key_data(keys, merging.key_serde), rows)
            own = None if headers is None or not any(headers) else _picked(headers, rows)
            origin = record.topic, record.partition, _picked(chunk.offsets, rows)
            merging.run(PartialColumns(data, result.columns, _picked(timestamps, rows), own, *origin))
            return
        of_results = chunk.key_objects(keys, rows) if result.keys is None else result.keys
        times = list(accumulate(timestamps, max, initial=before))
        for row, key, value in zip(rows, of_results, values, strict=True):
            record.offset, record.timestamp = chunk.offsets[row], timestamps[row]
            record.raw_key, record.raw_value = chunk.raw_keys[row], chunk.raw_values[row]
            record.headers = own_headers = chunk.no_headers if headers is None else headers[row]
            clock.now = times[row + 1]
            forward(key, value, timestamps[row], own_headers)
        clock.now = times[-1]


class _Chunk(NamedTuple):
    """Columns of consecutive records of one partition.

    Attributes:
        keys, values: objects, or bytes that have not been read (`are_read`, `takes_texts`).
        headers: of each record; None: none has any.
        no_headers: the headers of a record then.
    """

    keys: Sequence[Any]
    are_read: bool
    values: Sequence[object]
    timestamps: Sequence[int]
    offsets: Sequence[int]
    headers: Sequence[Headers] | None
    no_headers: Headers
    raw_keys: Sequence[bytes | None]
    raw_values: Sequence[bytes | None]

    def part(self, start: int, stop: int) -> _Chunk:
        """Return the columns of some of the records."""
        rows = slice(start, stop)
        headers = None if self.headers is None else self.headers[rows]
        return _Chunk(
            self.keys[rows], self.are_read, self.values[rows], self.timestamps[rows], self.offsets[rows], headers, self.no_headers,
            self.raw_keys[rows], self.raw_values[rows],
        )  # fmt: skip

    def key_objects(self, serde: Serde, rows: Sequence[int] | None = None) -> Sequence[object]:
        """Return the keys, those of some rows or all."""
        keys = self.keys if rows is None else _picked(self.keys, rows)
        return keys if self.are_read else list(map(serde.deserialize, keys))

    def key_data(self, serde: Serde, other: Serde | None = None) -> Sequence[bytes | None]:
        """Return the keys as their serde writes them, or as another one does."""
        with suppress(TypeError):  # some are None
            same = other is None or serde.writes_like(other)
            if same and serde.ascii_safe and b"".join(self.raw_keys).isascii():  # type: ignore[arg-type]
                return self.raw_keys
        return list(map((other or serde).serialize, self.key_objects(serde)))


def _columns_of(waiting: Sequence[BatchedRecord]) -> RecordColumns:
    keys, values, timestamps, headers, _, partitions, offsets, *_ = zip(*waiting, strict=True)
    return RecordColumns(
        len(waiting), lambda: keys, lambda: values, timestamps, partitions, offsets, headers if any(headers) else None
    )


def _picked(column: Sequence[object], rows: Sequence[int]) -> Sequence[Any]:
    """Return the column's entries of these rows."""
    return column if isinstance(rows, range) else [column[row] for row in rows]
