"""One asynchronous node of one task: its calls in order.

A record that enters becomes a `Call`. Calls of one *lane* run one after the other; a lane is a key with `order="key"`, a key of a
processor with `order="partition"`. A processor's next call starts after the replay of the one before it, whose writes it reads; a
function's lanes are kept where it is called (`lanes`). A finished call leaves at once, or with "partition" after all calls that entered
before it. To leave means: its result is replayed on the task's thread under the coordinates of its record. A call that failed may wait
off the main path (`parked`), out of its lane, until its next try.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from kstreams_repl.engine.operators.operator import NodeContext, Process
from kstreams_repl.engine.operators.own_copy import own_copy
from kstreams_repl.engine.operators.streams.stream_async import AsyncKind, StreamAsync
from kstreams_repl.engine.runtime.calls.call import Call, Caller, CallRunner
from kstreams_repl.engine.runtime.calls.call_effects import CallEffects
from kstreams_repl.engine.runtime.calls.call_results import CallResults
from kstreams_repl.engine.runtime.calls.pending_rows import PendingRow
from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.system.errors import StreamsProcessingError
from kstreams_repl.system.types import Headers, TopicPartition

_AHEAD = 2
"""Records that a node takes in, as a multiple of the calls in flight: behind a slow key others can go on."""
_PARKED = 100
"""Records off the main path, as a multiple of the calls in flight, from which on the task reads no further ones."""

_MOST_TRACE = 4_000
"""Characters kept of the trace of the last error."""


class AsyncNode:
    """The calls of one node.

    Args:
        arrived: where results are reported, from any thread.
        questions: where running calls ask the task's thread.
        dead_letter: writes the current source record to the dead-letter topic; False if there is none.
        handled: asks the processing exception handler about an error; False if there is none.
    """

    def __init__(
        self,
        operator: StreamAsync,
        node: NodeContext,
        forward: Process,
        *,
        arrived: deque[tuple[AsyncNode, Call, object, BaseException | None]],
        questions: deque[Callable[[], None]],
        dead_letter: Callable[[Exception], bool],
        handled: Callable[[Exception], bool],
    ) -> None:
        self.operator, self.options = operator, operator.options
        self.name, self.application_id = node.name, node.task.application_id
        self.forward, self.node = forward, node
        self._arrived, self._questions = arrived, questions
        self._record, self._dead_letter, self._handled = node.record, dead_letter, handled
        self._store = node.store(operator.store)
        task = node.task
        self._key_serde, self._value_serde = task.key_serde(self.options.key_serde), task.value_serde(self.options.value_serde)
        self._emit = operator.emitter(forward)
        self.results: CallResults | None = None
        if operator.result_log_name is not None:
            log = TopicPartition(changelog_topic(self.application_id, operator.result_log_name), task.task_id.partition)
            result_serde = task.value_serde(self.options.result_serde or "json")
            self.results = CallResults(operator, log, self._key_serde, self._value_serde, result_serde)
        self._caller: Caller | None = None
        self.entries: dict[int, Call] = {}
        self.parked: list[tuple[int, int]] = []
        """(when to try again, number of the call), the earliest first."""
        self._lanes: dict[object, deque[Call]] = {}
        self.lanes: dict[object, deque[object] | None] = {}
        """A function's lanes, used by its caller only."""
        self._next = 0
        self._last_at: tuple[object, ...] = ()
        self._index = 0
        self._bytes = 0
        self._gone: list[int] = []
        self._checked = False
        order = self.options.order
        self._in_order = order == "partition"
        self._serial = order == "key" or (order == "partition" and operator.is_processor)
        self._replayed_first = operator.is_processor
        self._limit = self.options.in_flight * _AHEAD
        self.failed = 0

    # ---- records come in

    def enter(self, key: object, value: object, timestamp: int, headers: Headers) -> None:
        """Take one record in: the node's entry."""
        record = self._record
        context = record.snapshot()
        coordinates = context[:3]
        self._index = self._index + 1 if coordinates == self._last_at else 0
        self._last_at = coordinates
        call = Call(self, self._next, key, value, timestamp, headers, context, record.raw_key, record.raw_value, self._index)
        self._next += 1
        if not self._checked:
            self._row(call)
            self._checked = True
        self.entries[call.seq] = call
        self._bytes += call.size
        if self.results is not None:
            self.results.claim(call)
        self._queue(call)

    def open(self, runner: CallRunner) -> None:
        """Take the records in that waited at the last commit."""
        self._caller = runner.caller(self.name, self.operator, self.node.task.task_id)
        if self.results is not None:
            self.results.open(runner.log)
        for seq, data in list(self._store.all()):
            row = PendingRow.decode(data)
            key, value = self._key_serde.deserialize(row.key), self._value_serde.deserialize(row.value)
            call = Call(self, seq, key, value, row.timestamp, row.headers, row.at, row.raw_key, row.raw_value, row.number)
            call.attempt, call.due, call.cause, call.trace, call.stored = row.attempt, row.due, row.cause, row.trace, True
            self.entries[seq] = call
            self._bytes += call.size
            self._next = seq + 1
            if self.results is not None:
                self.results.claim(call)
            if call.attempt > 1:
                heappush(self.parked, (call.due, seq))
            else:
                self._queue(call)

    def room(self) -> int:
        """Return how many further records may come in."""
        if self._bytes >= self.options.in_flight_bytes or len(self.parked) >= self.options.in_flight * _PARKED:
            return 0
        return max(0, self._limit - len(self.entries) + len(self.parked))

    def _queue(self, call: Call) -> None:
        """Append a call to its lane, and start it if it is the lane's first."""
        if self._serial and call.key is not None:
            call.lane = self._lane(call.key)
            if not self._replayed_first:
                self._start(call)
                return
            lane = self._lanes.get(call.lane)
            if lane is not None:
                lane.append(call)
                return
            self._lanes[call.lane] = deque()
        self._start(call)

    def _lane(self, key: object) -> object:
        try:
            hash(key)
        except TypeError:
            return self._key_serde.serialize(key)
        return key

    def _start(self, call: Call) -> None:
        assert self._caller is not None
        self._caller.submit(call, self._arrive)

    def _arrive(self, call: Call, result: object, error: BaseException | None) -> None:
        self._arrived.append((self, call, own_copy(result, node=self.name), error))

    def effects_of(self, call: Call) -> CallEffects:
        """Return the context of a processor's call."""
        assert self._caller is not None
        caller, questions = self._caller, self._questions
        fixed_key = self.operator.kind is AsyncKind.PROCESS_VALUES
        return CallEffects(self.node, call, fixed_key, self.forward, lambda question: caller.ask(question, questions.append))

    # ---- results leave

    def finished(self, call: Call, result: object, error: BaseException | None) -> int:
        """Take a result; replay what may leave now, each with the record context of its source record, and return how many calls left."""
        if call.done or self.entries.get(call.seq) is not call:
            return 0
        call.done, call.result, call.error = True, result, error
        if not self._in_order or call.due:
            self._leave(call)
            return 1
        left = 0
        while (first := self._first()) is not None and first.done:
            self._leave(first)
            left += 1
        return left

    def _first(self) -> Call | None:
        """Return the oldest call in the line."""
        return next((call for call in self.entries.values() if not call.due), None)

    def _leave(self, call: Call) -> None:
        error = call.error
        if error is not None and self._try_again(call, error):
            self._next_of_lane(call)
            return
        self._remove(call)
        record = self._record
        record.topic, record.partition, record.offset = call.at[:3]
        record.timestamp, record.headers = call.timestamp, call.headers
        record.raw_key, record.raw_value = call.raw_key, call.raw_value
        try:
            try:
                if error is not None:
                    raise error
                self._emit(call)
            except Exception as raised:
                if self.options.on_error == "retry" and raised is error and self._dead_letter(raised):
                    self.node.drop("tried too often")
                elif not self._handled(raised):
                    raise
        except BaseException as raised:
            record.raised(raised)
            raise
        self._next_of_lane(call)

    def _remove(self, call: Call) -> None:
        del self.entries[call.seq]
        self._bytes -= call.size
        if call.stored:
            self._gone.append(call.seq)
        if self.results is not None:
            self.results.left(call.seq)

    def _next_of_lane(self, call: Call) -> None:
        lane = self._lanes.get(call.lane) if call.lane is not None else None
        if lane is None:
            return
        if lane:
            self._start(lane.popleft())
        else:
            del self._lanes[call.lane]

    # ---- off the main path

    def _try_again(self, call: Call, error: BaseException) -> bool:
        """Let a failed call wait off the main path; return whether it does."""
        options = self.options
        if not isinstance(error, Exception) or options.on_error != "retry" or call.attempt >= options.attempts:
            self.failed += 1
            return False
        seconds = min(options.retry_backoff * 2 ** (call.attempt - 1), max(options.retry_backoff, options.max_retry_backoff))
        call.attempt += 1
        call.due = max(1, self.node.wall_clock() + round(seconds * 1000))
        call.cause = f"{type(error).__name__}: {error}"
        call.trace = "".join(traceback.format_exception(error))[-_MOST_TRACE:]
        call.done, call.changed, call.result, call.error, call.effects = False, True, None, None, None
        heappush(self.parked, (call.due, call.seq))
        return True

    @property
    def next_due(self) -> int | None:
        """When the first record off the main path is due (ms)."""
        return self.parked[0][0] if self.parked else None

    def unpark(self, numbers: set[int] | None = None) -> int:
        """Queue the calls off the main path that are due, or some of them before their time; return how many."""
        count = 0
        for call in self._taken_from_parked(numbers):
            call.lane = None
            self._queue(call)
            count += 1
        return count

    def drop_parked(self, numbers: set[int]) -> int:
        """Drop calls off the main path; return how many."""
        count = 0
        for call in self._taken_from_parked(numbers):
            self._remove(call)
            self.node.drop("dropped by order")
            count += 1
        return count

    def _taken_from_parked(self, numbers: set[int] | None) -> Iterator[Call]:
        if numbers is None:
            now, parked = self.node.wall_clock(), self.parked
            while parked and parked[0][0] <= now:
                yield self.entries[heappop(parked)[1]]
            return
        taken = [seq for _, seq in self.parked if seq in numbers]
        self.parked = [entry for entry in self.parked if entry[1] not in numbers]
        heapify(self.parked)
        for seq in taken:
            yield self.entries[seq]

    # ---- commits

    def write(self) -> None:
        """Bring the store in line with the records that wait now."""
        store = self._store
        for seq in self._gone:
            store.put(seq, None)  # delete() would read the row
        self._gone.clear()
        for call in self.entries.values():
            if not call.stored or call.changed:
                store.put(call.seq, self._row(call).encode())
                call.stored, call.changed = True, False
        store.flush()

    def _row(self, call: Call) -> PendingRow:
        try:
            key, value = self._key_serde.serialize(call.key), self._value_serde.serialize(call.value)
        except Exception as cause:
            raise StreamsProcessingError(
                f"{self.name} cannot store a waiting record: {type(cause).__name__}: {cause}",
                hint=f"give the node serdes that can write its keys and values: {self.operator.kind}(..., value_serde=\"json\")",
                node=self.name, topic=call.at.topic, partition=call.at.partition, offset=call.at.offset,
            ) from cause  # fmt: skip
        return PendingRow(
            key, value, call.timestamp, call.headers, call.at, call.raw_key, call.raw_value, call.index, call.attempt, call.due, call.cause,
            call.trace,
        )  # fmt: skip
