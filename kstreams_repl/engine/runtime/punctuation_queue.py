"""Punctuation: callbacks by stream time or by wall clock, due in Java's priority-queue order.

In a bounded run a wall-clock schedule fires only after records (`PunctuationQueue.punctuate`, ``activity``): one that writes to an
intermediate topic at every tick would keep the run open for ever.

STREAM_TIME schedules are aligned to 0 and fire first at the first record; WALL_CLOCK_TIME schedules fire first one interval from now. A
schedule that missed several intervals fires once and continues at the next aligned multiple. Source: Kafka Streams' punctuation queue.
"""

from __future__ import annotations

from collections.abc import Callable

from kstreams_repl.engine.runtime.queues.java_queue import JavaPriorityQueue


class _Schedule:
    __slots__ = ("due", "interval", "node", "callback", "cancelled", "activity")

    def __init__(self, due: int, interval: int, node: str, callback: Callable[[int], None]) -> None:
        self.due = due
        self.interval = interval
        self.node = node
        self.callback = callback
        self.cancelled = False
        self.activity = -1

    def cancel(self) -> None:
        """Stop the schedule; may be called from inside the callback."""
        self.cancelled = True


def _due(schedule: _Schedule) -> int:
    return schedule.due


class PunctuationQueue:
    """The schedules of one task and one kind of time."""

    def __init__(self) -> None:
        self._queue: JavaPriorityQueue[_Schedule] = JavaPriorityQueue(_due)

    def schedule(self, first: int, interval: int, node: str, callback: Callable[[int], None]) -> _Schedule:
        entry = _Schedule(first, interval, node, callback)
        self._queue.offer(entry)
        return entry

    @property
    def next_due(self) -> int | None:
        """Return when the next callback is due (ms); None when nothing is scheduled."""
        top = self._queue.peek()
        return None if top is None else top.due

    def punctuate(self, now: int, call: Callable[[str, Callable[[int], None], int], None], activity: int | None = None) -> bool:
        """Call `call(node, callback, now)` for everything that is due at `now`; return True if anything ran.

        Args:
            activity: how much the task has done so far; a schedule skips its turn if that has not grown since its last call. None: no
                turn is skipped.
        """
        queue, ran = self._queue, False
        top = queue.peek()
        while top is not None and top.due <= now:
            queue.poll()
            if not top.cancelled:
                if activity is None or activity > top.activity:
                    call(top.node, top.callback, now)
                    ran = True
                    top.activity = -1 if activity is None else activity
                if not top.cancelled:
                    following = top.due + top.interval
                    if now >= following:
                        following = top.due + ((now - top.due) // top.interval + 1) * top.interval
                    top.due = following
                    queue.offer(top)
            top = queue.peek()
        return ran
