"""The call runner of one instance: one event loop in a thread of its own, and threads for functions that block.

Everything is started with the first asynchronous node and ended by `close`, within `_CLOSE_SECONDS` whatever the functions do.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Protocol

from kstreams_repl.engine.calls.node_caller import NodeCaller
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.runtime.calls.call import Call, Done
from kstreams_repl.engine.runtime.calls.call_results import ResultLog
from kstreams_repl.system.errors import StateStoreMigratedError
from kstreams_repl.system.log_context import carried

_LOG = logging.getLogger("kstreams_repl.host.instance")
_CLOSE_SECONDS = 1.0


class ClosingLog(ResultLog, Protocol):
    """A log with resources."""

    def close(self) -> None:
        """End what was started."""


class DaemonThreads:
    """Threads for functions that block. They never keep a process alive, unlike those of `ThreadPoolExecutor`. Results are handed
    to the loop together, and the loop alone counts, so that a call takes no lock.
    """

    def __init__(self, name: str, most: int, loop: asyncio.AbstractEventLoop) -> None:
        self._name, self._most, self._loop = name, most, loop
        self._work: SimpleQueue[tuple[asyncio.Future[object], Callable[[], object]] | None] = SimpleQueue()
        self._results: deque[tuple[asyncio.Future[object], object, BaseException | None]] = deque()
        self._telling = False
        self._threads: list[threading.Thread] = []
        self._busy = 0

    def run(self, work: Callable[[], object]) -> asyncio.Future[object]:
        """Run a function on one of the threads. In the loop."""
        future: asyncio.Future[object] = self._loop.create_future()
        self._busy += 1
        if len(self._threads) < min(self._busy, self._most):
            thread = threading.Thread(target=carried(self._take), name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put((future, work))
        return future

    def _take(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            result, failed = None, None
            if not future.cancelled():
                try:
                    result = work()
                except BaseException as error:  # the call reports it
                    failed = error
            self._results.append((future, result, failed))
            del future, work, item, result, failed
            if not self._telling:
                self._telling = True
                with suppress(RuntimeError):  # the loop was closed while the function ran
                    self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._telling = False
        results = self._results
        while results:
            future, result, error = results.popleft()
            self._busy -= 1
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):  # which a future refuses
                future.set_exception(RuntimeError(f"the function raised {error!r}"))
            else:
                future.set_exception(error)

    def close(self) -> None:
        """End the threads that are not inside a function; the others end after it."""
        for _ in self._threads:
            self._work.put(None)


class InstanceCallRunner:
    """Runs the calls of an instance's asynchronous nodes.

    Attributes:
        woken: set when a result or a question has arrived.
        callers: by node name.
        log: where durable results are written.
    """

    def __init__(self, name: str, log: ClosingLog | None = None) -> None:
        self._name = name
        self.log = log
        self.woken = threading.Event()
        self.callers: dict[str, NodeCaller] = {}
        self._threads: list[DaemonThreads] = []
        self._inbox: deque[tuple[NodeCaller, Call, Done]] = deque()
        self._taking = False
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=carried(self._loop.run_forever), name=f"calls-{name}", daemon=True)
        self._thread.start()

    def caller(self, node: str, operator: StreamAsync, task: object) -> TaskCaller:
        """Return the caller for a node of a task."""
        if node not in self.callers:
            threads = DaemonThreads(f"calls-{self._name}-{node}", operator.options.in_flight, self._loop)
            self._threads.append(threads)
            self.callers[node] = NodeCaller(operator, threads.run, log=self.log, ended=self.woken.set)
        return TaskCaller(self, self.callers[node])

    def submit(self, caller: NodeCaller, call: Call, done: Done) -> None:
        """Hand a call to the event loop."""
        self._inbox.append((caller, call, done))
        if not self._taking:
            self._taking = True
            self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._taking = False
        inbox = self._inbox
        while inbox:
            caller, call, done = inbox.popleft()
            caller.submit(call, done)

    def wait(self, seconds: float) -> None:
        """Wait until something arrives, at most so long."""
        self.woken.wait(seconds)
        self.woken.clear()

    def close(self) -> None:
        """Cancel every call, close the processors and end the threads."""
        if self._closed:
            return
        self._closed = True

        async def close_all() -> None:
            answers = await asyncio.gather(*(caller.close() for caller in self.callers.values()), return_exceptions=True)
            for error in answers:
                if isinstance(error, Exception):
                    _LOG.warning("closing an asynchronous processor failed: %s: %s", type(error).__name__, error)

        closing = asyncio.run_coroutine_threadsafe(close_all(), self._loop)
        try:
            closing.result(_CLOSE_SECONDS)
        except TimeoutError:
            closing.cancel()
            _LOG.warning("asynchronous processors did not close within %.0f s", _CLOSE_SECONDS)
        for threads in self._threads:
            threads.close()
        if self.log is not None:
            self.log.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()
        else:
            _LOG.warning("an async function blocks the event loop of %s", self._name)


class TaskCaller:
    """`engine.runtime.calls.call.Caller` for one node of one task."""

    def __init__(self, runner: InstanceCallRunner, caller: NodeCaller) -> None:
        self._runner, self._caller = runner, caller

    def submit(self, call: Call, done: Done) -> None:
        """Run the node's function for a call."""
        self._runner.submit(self._caller, call, done)

    def ask(self, question: Callable[[], object], put: Callable[[Callable[[], None]], None]) -> object:
        """Have the task's thread answer a question of a running call."""
        answer: Future[object] = Future()

        def reply() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        put(reply)
        self._runner.woken.set()
        if threading.current_thread() is self._runner._thread:
            return asyncio.wrap_future(answer)
        while True:
            try:
                return answer.result(1.0)
            except TimeoutError:
                if self._runner._closed:
                    raise StateStoreMigratedError(
                        "the instance ended while a call asked its store", hint="the call is made again"
                    ) from None
