"""Aggregates in sliding windows. Kafka Streams' `KStreamSlidingWindowAggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstreams_repl.engine.operators.aggregates.window_close import StreamTime, WindowCloser
from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.lateness import Lateness
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.tuple_forwarder import as_stored, forwards_on_flush
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import Aggregator, Headers, Initializer, Windowed

if TYPE_CHECKING:
    from kstreams_repl.engine.stores.kinds.window_reads import WindowReads

_END_OF_TIME = 2**63 - 1


@dataclass(slots=True)
class StreamSlidingWindowAggregate(Operator):
    """Aggregate each record into every window `[start, start + time_difference_ms]` (both ends inclusive) that ends or starts at a record.

    None keys and None values are dropped and counted. A window with `end < stream time - grace_ms` is late. Records earlier than
    `time_difference_ms` share the window `[0, time_difference_ms]`, because no window starts before 0. Windows are updated newest first,
    which is visible in the order of results.

    Attributes:
        store: name of the timestamped window store (time-ordered kind when `emit_on_close`).
        initializer: () -> initial aggregate.
        aggregator: (key, value, aggregate) -> aggregate.
        time_difference_ms, grace_ms: of the windows.
        emit_on_close: emit each window once, when it closes.
        send_old_values: forward the old aggregate too.
        count: this is `count()`.
    """

    role = "aggregate"

    store: str
    initializer: Initializer
    aggregator: Aggregator
    time_difference_ms: int
    grace_ms: int
    emit_on_close: bool = False
    send_old_values: bool = False
    count: bool = False

    @property
    def lateness(self) -> Lateness:
        """When a record is late: a window ends at each record, so a part of the grace is the slack."""
        return Lateness(slack_ms=self.grace_ms // 4, grace_ms=self.grace_ms)

    def build(self, node: NodeContext, forward: Process) -> Process:
        store = node.store(self.store)
        store.index_by_key()
        difference, grace, drop, record = self.time_difference_ms, self.grace_ms, node.drop, node.record
        closer: WindowCloser | None = None
        to_children: Process | None = None
        if self.emit_on_close:
            closer = WindowCloser(node, self.store, store, forward, reach_ms=difference + 1, step_ms=1)
        else:
            to_children = None if forwards_on_flush(node, store, forward, self.send_old_values) else forward
        windows = _SlidingWindows(self, store, to_children, drop)
        early, regular = windows.early, windows.regular
        time = StreamTime(node, self.store)

        def sliding(key: object, value: object, timestamp: int, headers: Headers) -> None:
            if timestamp > time.now:
                time.now = timestamp
            close = time.now - grace
            if timestamp + difference < close:
                drop("expired window", time.now - timestamp)
                return
            if not difference:
                raise KStreamsError(
                    f"{node.name}: the time difference of sliding windows must be >= 1 ms, got 0", hint="use at least 1 ms", node=node.name
                )
            if closer is not None and close >= closer.next_close:
                closer.emit(close, headers)
            record.timestamp, record.headers = timestamp, headers
            if timestamp < difference:
                early(key, value, timestamp, headers, close)
            else:
                regular(key, value, timestamp, headers, close)

        def close_all() -> None:
            starts = [window[1] for window, _ in store.fetch_all(max(0, time.now - grace - difference), _END_OF_TIME)]
            if starts and time.advance(max(starts) + difference + 1 + grace) and closer is not None:
                closer.emit(time.now - grace, [])

        node.on_window_close(close_all)
        return kernel(node, sliding, null="key or value")


class _SlidingWindows:
    """The windows around one record. Its items are `(aggregate, timestamp of the latest record)`."""

    def __init__(
        self, operator: StreamSlidingWindowAggregate, store: WindowReads, forward: Process | None, drop: Callable[[str, int], None]
    ) -> None:
        self._difference = operator.time_difference_ms
        self._grace = operator.grace_ms
        self._initializer = operator.initializer
        self._aggregator = operator.aggregator
        self._send_old = operator.send_old_values
        self._store = store
        self._forward = forward
        self._drop = drop
        self._stored = as_stored(store.fetch, operator.initializer)

    def regular(self, key: object, value: object, timestamp: int, headers: Headers, close: int) -> None:
        """Process a record whose left window `[timestamp - difference, timestamp]` does not start before 0."""
        difference = self._difference
        starts: set[int] = set()
        left_item = right_item = None
        left_exists = right_exists = False
        previous: int | None = None
        left_start = 0
        # The upper bound is one past the record, to find the record's own right window.
        for start, item in self._store.backward_fetch(key, max(0, timestamp - 2 * difference), timestamp + 1):
            starts.add(start)
            end, latest = start + difference, item[1]
            if start == timestamp + 1:
                right_exists = True
            elif end > timestamp:
                if right_item is None:
                    right_item = self._kept(key, start, item, timestamp)
                self._update(key, value, timestamp, headers, start, item, close)
            elif end == timestamp:
                left_exists = True
                self._update(key, value, timestamp, headers, start, item, close)
                if latest >= timestamp:
                    return
                previous = latest
            else:
                left_item, previous, left_start = item, latest, start
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + difference >= timestamp:
            self._update(key, value, timestamp, headers, previous + 1, self._first(timestamp), close)
        if not left_exists:
            if previous is not None and left_item is not None and timestamp - difference <= previous:
                item = (left_item[0], timestamp)
            else:
                item, left_start = self._first(timestamp), timestamp - difference
            self._update(key, value, timestamp, headers, timestamp - difference, item, close, left_start)
        if not right_exists:
            self._make_right(key, timestamp, headers, right_item)

    def early(self, key: object, value: object, timestamp: int, headers: Headers, close: int) -> None:
        """Process a record before `difference`: it belongs to `[0, difference]` and to the windows that start in between."""
        starts: set[int] = set()
        combined = right_item = None
        right_exists = False
        previous: int | None = None
        for start, item in self._store.fetch(key, 0, timestamp + 1):
            starts.add(start)
            if start == 0:
                combined = item
                if item[1] < timestamp:
                    previous = item[1]
            elif start <= timestamp:
                right_item = self._kept(key, start, item, timestamp)
                self._update(key, value, timestamp, headers, start, item, close)
            else:
                right_exists = True
        if right_item is None and combined is not None and combined[1] > timestamp:
            # No window starts between 0 and this record, so all records of [0, difference] are in this record's right window.
            right_item = combined
        if not right_exists:
            self._make_right(key, timestamp, headers, right_item)
        if previous is not None and previous + 1 not in starts:
            self._update(key, value, timestamp, headers, previous + 1, self._first(timestamp), close)
        self._update(key, value, timestamp, headers, 0, self._first(timestamp) if combined is None else combined, close)

    def _first(self, timestamp: int) -> tuple[object, int] | None:
        initial = self._initializer()
        return None if initial is None else (initial, timestamp)

    def _kept(self, key: object, start: int, item: tuple[object, int], timestamp: int) -> tuple[object, int]:
        """Return the item as needed for a right window: without this record, which the aggregator may add to the object in place."""
        return (self._stored(item[0], key, start), item[1]) if item[1] > timestamp else item

    def _make_right(self, key: object, timestamp: int, headers: Headers, item: tuple[object, int] | None) -> None:
        """Create the window that starts just after the record, if there are later records: its first aggregate is theirs."""
        if item is None or item[1] <= timestamp:
            return
        start = timestamp + 1
        self._store.put(key, item, start)
        if self._forward is not None:
            self._forward(Windowed(key, start, start + self._difference), (item[0], None, True), item[1], headers)

    def _update(
        self,
        key: object,
        value: object,
        timestamp: int,
        headers: Headers,
        start: int,
        item: tuple[object, int] | None,
        close: int,
        read_at: int | None = None,
    ) -> None:
        """Aggregate the record into one window; its item may have been read from another window, which starts at `read_at`."""
        end = start + self._difference
        if end < close:
            self._drop("expired window", close + self._grace - end)
            return
        old, latest = (None, timestamp) if item is None else item
        if latest < timestamp:
            latest = timestamp
        new = self._aggregator(key, value, old)
        if self._send_old and self._forward is not None:
            old = self._stored(old, key, start if read_at is None else read_at)
        self._store.put(key, None if new is None else (new, latest), start)
        if self._forward is not None:
            self._forward(Windowed(key, start, end), (new, old if self._send_old else None, True), latest, headers)
