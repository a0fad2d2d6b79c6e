"""Runs the functions of asynchronous nodes under the test driver's clock: one event loop whose time is the driver's, run step by step on
the caller's thread. Which call ends first is decided by `asyncio.sleep`, by `call_latency`, and by nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from math import ceil

from kstreams_repl.engine.calls.node_caller import NodeCaller
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.processor.current_call import CallContext
from kstreams_repl.engine.runtime.calls.call import Call, Done
from kstreams_repl.engine.runtime.calls.call_results import ResultLog
from kstreams_repl.system.types import TopicPartition

Latency = Callable[[CallContext], int]
"""Milliseconds that a call takes in addition."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a given clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now

    def time(self) -> float:
        return self._now()

    def __del__(self) -> None:
        """End with a driver that was not closed."""
        if not self.is_closed():
            for task in asyncio.all_tasks(self):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            self.close()

    if sys.platform == "emscripten":  # a browser tab has no sockets, and no other thread that would wake the loop

        def _make_self_pipe(self) -> None:
            self._ssock = self._csock = None

        def _close_self_pipe(self) -> None:
            pass

    def step(self) -> None:
        """Run everything that is due now."""
        while True:
            self.call_soon(self.stop)
            self.run_forever()
            due = self.next_due
            if not self._ready and (due is None or due > self.time()):  # type: ignore[attr-defined]
                return

    @property
    def next_due(self) -> float | None:
        """When the next timer is due (seconds)."""
        timers = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        return min(timers, default=None)


class MemoryResultLog:
    """Durable results in memory.

    Attributes:
        rows: (key, value) by partition.
    """

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, list[tuple[bytes, bytes]]] = {}

    def read(self, partition: TopicPartition) -> tuple[list[tuple[bytes, bytes, int]], int]:
        """Return all rows with their offsets."""
        rows = self.rows.get(partition, [])
        return [(key, value, offset) for offset, (key, value) in enumerate(rows)], len(rows)

    async def append(self, partition: TopicPartition, key: bytes, value: bytes) -> int:
        """Add a row."""
        rows = self.rows.setdefault(partition, [])
        rows.append((key, value))
        return len(rows) - 1


class VirtualCallRunner:
    """Runs calls when the driver says so.

    Args:
        wall_clock: the driver's clock (ms).
        latency: how long a call takes in addition (ms).
        log: where durable results are written.
    """

    def __init__(self, wall_clock: Callable[[], int], latency: Latency | None = None, log: ResultLog | None = None) -> None:
        self.log: ResultLog = log or MemoryResultLog()
        self._latency = latency
        self._begin = begin = wall_clock()  # small numbers have no rounding errors
        self._loop = VirtualLoop(lambda: (wall_clock() - begin) / 1000)
        self.callers: dict[str, NodeCaller] = {}
        self._inbox: list[tuple[NodeCaller, Call, Done]] = []

    def caller(self, node: str, operator: StreamAsync, task: object) -> VirtualCaller:
        """Return the caller for a node of a task."""
        if node not in self.callers:
            latency = self._latency
            seconds = None if latency is None else lambda call: latency(call.context) / 1000
            self.callers[node] = NodeCaller(operator, _at_once, log=self.log, latency=seconds, jitter=False)
        return VirtualCaller(self, self.callers[node])

    def put(self, caller: NodeCaller, call: Call, done: Done) -> None:
        """Take a call, which starts at the next `run`."""
        self._inbox.append((caller, call, done))

    def run(self) -> None:
        """Run everything that is due at the clock's time."""
        taken, self._inbox = self._inbox, []

        def take() -> None:
            for caller, call, done in taken:
                caller.submit(call, done)

        if taken:
            self._loop.call_soon(take)
        self._outside(self._loop.step)

    @property
    def next_due(self) -> int | None:
        """When something is due next (ms)."""
        due = self._loop.next_due
        return None if due is None else self._begin + ceil(round(due * 1000, 3))

    def close(self) -> None:
        """Cancel every call and close the processors."""
        if self._loop.is_closed():
            return

        def end() -> None:
            for caller in self.callers.values():
                self._loop.run_until_complete(caller.close())
            self._loop.step()
            self._loop.close()

        self._outside(end)

    def _outside(self, work: Callable[[], None]) -> None:
        """Run the loop on this thread; a loop (a notebook's) that already runs on it is set aside. A browser tab has no second thread."""
        outer = asyncio._get_running_loop()
        task = None if outer is None else asyncio.current_task()
        if outer is not None and task is not None:
            asyncio._leave_task(outer, task)
        asyncio._set_running_loop(None)
        try:
            work()
        finally:
            asyncio._set_running_loop(outer)
            if outer is not None and task is not None:
                asyncio._enter_task(outer, task)


class VirtualCaller:
    """`engine.runtime.calls.call.Caller` of the test driver."""

    def __init__(self, runner: VirtualCallRunner, caller: NodeCaller) -> None:
        self._runner, self._caller = runner, caller

    def submit(self, call: Call, done: Done) -> None:
        """Run the node's function for a call at the driver's next step."""
        self._runner.put(self._caller, call, done)

    def ask(self, question: Callable[[], object], put: Callable[[Callable[[], None]], None]) -> object:
        """Answer at once: the task's thread is this one."""
        return _answered(question) if self._caller.is_async else question()


async def _answered(question: Callable[[], object]) -> object:
    return question()


async def _at_once(work: Callable[[], object]) -> object:
    return work()
