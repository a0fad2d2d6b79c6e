"""Windowed joins of two streams. Kafka Streams' `KStreamKStreamJoinLeftSide`, `RightSide`, `SelfJoin`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.aggregates.window_close import StreamTime
from kstreams_repl.engine.operators.joins.outer_join_buffer import JoinTime, ParkedRecords
from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.lateness import Lateness
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.user_functions import joiner_of_side
from kstreams_repl.system.types import Headers, Joiner


@dataclass(slots=True)
class StreamStreamJoin(Operator):
    """One side of a windowed stream-stream join: joins a record with the other side's records in its window.

    A None value is dropped and counted. So is a None key, except on an outer side, which emits it immediately with None. An unmatched
    record of an outer side waits in `outer_store` for a match until its window closes; the next record (of either side) that sets
    stream time emits the closed records by time, right before left, then key bytes. A record whose window has already closed is emitted
    immediately. Results have the larger timestamp of both records and the headers of the current one.
    `before_ms` and `after_ms` are *this side's*: the other record's timestamp lies in `[ts - before_ms, ts + after_ms]` (already
    swapped by the DSL for the right side).

    Attributes:
        left_side: this operator handles the left stream.
        other_store: name of the other side's window store.
        before_ms, after_ms, grace_ms: the window as seen from this side.
        close_before_ms, close_after_ms: the window as seen from the *left* stream; they determine when buffered records close:
            a left record at ts + close_after + grace, a right one at ts + close_before + grace.
        joiner: (left, right) -> value, or (key, left, right) -> value when `with_key`; always in left, right order.
        outer: unmatched records of *this* side are emitted with None.
        outer_store: name of the shared store of buffered records (kind `OUTER_JOIN`); None for inner joins.
        time_tracker: name under which both sides of a join share one stream time and one emit interval per task.
        with_key: the joiner also takes the key.
        prior: only earlier records join (KIP-28's `join_prior`): a window that ends before 0 is empty. Kafka Streams treats such an end
            as 0.
    """

    word = "join"
    role = "join"

    left_side: bool
    other_store: str
    before_ms: int
    after_ms: int
    grace_ms: int
    close_before_ms: int
    close_after_ms: int
    joiner: Joiner
    outer: bool
    outer_store: str | None
    time_tracker: str
    with_key: bool = False
    prior: bool = False

    @property
    def lateness(self) -> Lateness:
        """When a record is late: after its window has ended, or, in an outer join, when others may have been emitted without it."""
        slack = 0 if self.outer_store is not None else max(0, self.after_ms)
        return Lateness(slack_ms=slack or self.grace_ms // 4, grace_ms=self.grace_ms)

    def build(self, node: NodeContext, forward: Process) -> Process:
        record = node.record
        store = node.store(self.other_store)
        store.index_by_key()
        fetch, drop, before, after = store.fetch, node.drop, self.before_ms, self.after_ms
        outer, left_side, ends_early, lowest = self.outer, self.left_side, self.after_ms < 0, -1 if self.prior else 0
        join = joiner_of_side(self.joiner, with_key=self.with_key, left_side=left_side)
        time = self._shared_time(node) if outer or self.outer_store is not None else None
        parked: ParkedRecords | None = None
        if self.outer_store is not None and time is not None:
            parked = ParkedRecords(
                node.store(self.outer_store),
                time,
                joiner_of_side(self.joiner, with_key=self.with_key),
                forward,
                node.wall_clock,
                check_after_ms=after + self.grace_ms,
                left_open_ms=self.close_after_ms + self.grace_ms,
                right_open_ms=self.close_before_ms + self.grace_ms,
            )
            node.on_init(parked.resume)
            node.on_window_close(parked.emit_all)

        def stream_stream_join(key: object, value: object, timestamp: int, headers: Headers) -> None:
            if time is not None and timestamp > time.stream_time:
                time.stream_time = timestamp
            if key is None or value is None:
                if outer and value is not None:
                    forward(key, join(key, value, None), timestamp, headers)
                else:
                    drop("null key or value")
                return
            if parked is not None:
                record.timestamp, record.headers = timestamp, headers
            if parked is not None and time is not None and timestamp == time.stream_time:
                parked.emit_closed(headers)
            first, last = timestamp - before, timestamp + after
            if ends_early and last < lowest:
                last = lowest
            alone = outer
            for other_time, other in fetch(key, first if first > 0 else 0, last):
                if outer:
                    alone = False
                if parked is not None:
                    parked.matched(other_time, not left_side, key)
                forward(key, join(key, value, other), other_time if other_time > timestamp else timestamp, headers)
            if time is not None and alone:
                if parked is None or last < time.stream_time:
                    forward(key, join(key, value, None), timestamp, headers)
                else:
                    parked.park(timestamp, left_side, key, value)

        return kernel(node, stream_stream_join)

    def _shared_time(self, node: NodeContext) -> JoinTime:
        """Return the time of both sides; the side that is built first creates it."""
        shared, name = node.task.shared, self.outer_store or self.time_tracker
        if self.time_tracker not in shared:
            made = shared[self.time_tracker] = JoinTime(node.task.config["repl.outer.join.emit.interval.ms"])
            node.remember(name, *made.remembered("stream_time"))
            node.remember(f"{name}/earliest", *made.remembered("earliest"))
        node.on_close(lambda: shared.pop(self.time_tracker, None))
        return shared[self.time_tracker]  # type: ignore[no-any-return]


@dataclass(slots=True)
class StreamStreamSelfJoin(Operator):
    """An inner join of a stream with itself over one store, with the result order of the two-sided join.

    It is upstream of the put of `StreamJoinWindow` on the same store, which stores the record only after it was joined.

    Attributes:
        store: name of the stream's window store.
        before_ms, after_ms, grace_ms: the window as seen from the left.
        joiner: (left, right) -> value, or (key, left, right) -> value when `with_key`.
        with_key: the joiner also takes the key.
    """

    role = "join"

    store: str
    before_ms: int
    after_ms: int
    grace_ms: int
    joiner: Joiner
    with_key: bool = False

    @property
    def lateness(self) -> Lateness:
        """When a record is late: after its window has ended."""
        return Lateness(slack_ms=max(0, self.after_ms) or self.grace_ms // 4, grace_ms=self.grace_ms)

    def build(self, node: NodeContext, forward: Process) -> Process:
        store = node.store(self.store)
        store.index_by_key()
        fetch, before, after = store.fetch, self.before_ms, self.after_ms
        retention = before + after + self.grace_ms
        join = joiner_of_side(self.joiner, with_key=self.with_key)
        time = StreamTime(node, self.store)

        def self_join(key: object, value: object, timestamp: int, headers: Headers) -> None:
            with_itself = join(key, value, value)
            if timestamp > time.now:
                time.now = timestamp
            due = timestamp > time.now - retention + 1
            # Join the record as the left one ...
            for other_time, other in fetch(key, max(0, timestamp - before), max(0, timestamp + after)):
                forward(key, join(key, value, other), max(timestamp, other_time), headers)
            # ... then as the right one, with itself at its position in time.
            for other_time, other in fetch(key, max(0, timestamp - after), max(0, timestamp + before)):
                if due and other_time > timestamp:
                    due = False
                    forward(key, with_itself, timestamp, headers)
                forward(key, join(key, other, value), max(timestamp, other_time), headers)
            if due:
                forward(key, with_itself, timestamp, headers)

        return kernel(node, self_join, null="key or value")
