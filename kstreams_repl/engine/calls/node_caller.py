"""Calls the function of one asynchronous node, for all tasks of an instance, inside an event loop.

Per call, from the outside in: repetitions (tenacity), circuit breaker (purgatory's states), rate (aiolimiter), time limit, the function.
A layer that no option asks for is left out; one timer watches the time limits of all. It starts no thread and reads no clock
but its loop's, so the test driver runs it under a virtual one.

Calls of one lane run one after the other. A function's next call starts when the one before it has ended: its results are replayed in that
order. A processor's next call waits for the replay, so its lanes are kept by `engine.runtime.calls.async_node`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.calls.log_throttle import LogThrottle
from kstreams_repl.engine.metrics.counters import Counter
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.processor.current_call import CALLS
from kstreams_repl.engine.runtime.calls.call import Call, Done
from kstreams_repl.engine.runtime.calls.call_results import ResultLog
from kstreams_repl.system.errors import InvalidRecordError, KStreamsError
from kstreams_repl.system.extras import extras
from kstreams_repl.system.types import UserFunction

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

    from kstreams_repl.engine.calls.breaker import Breaker

_LOG = logging.getLogger("kstreams_repl.host.instance")
Blocking = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a function that blocks and returns an awaitable of its result."""
Waiting = tuple[Call, Done]


class NodeCaller:
    """The calls of one node.

    Args:
        blocking: runs a `def`.
        log: where durable results are written.
        latency: seconds that a call takes in addition (the test driver's).
        jitter: whether pauses between repetitions have a random part.
        ended: called after calls have ended, at most once per round of the loop.

    Attributes:
        running: records in flight. most_running: the most so far.
        calls, failures, timeouts, repeats: attempts, how many failed, how many of these by the time limit, repetitions at once.
        times: seconds of calls that ended, repetitions included.
    """

    def __init__(
        self,
        operator: StreamAsync,
        blocking: Blocking,
        *,
        log: ResultLog | None = None,
        latency: Callable[[Call], float] | None = None,
        jitter: bool = True,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.operator, self.options = operator, operator.options
        self._log, self._complaints = log, LogThrottle()
        self._blocking, self._latency, self._jitter, self._ended = blocking, latency, jitter, ended
        self._telling = False
        self._processor: Any = None
        self._function = operator.function
        if operator.is_processor and isinstance(operator.function, type):
            self._processor = operator.function()
            self._function = self._processor.process
        self.is_async = is_async(self._function)
        self._ready: asyncio.Future[None] | None = None
        self._waiting: deque[Waiting] = deque()
        self._due: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._deadlines: dict[asyncio.Task[None], float] = {}
        """Of running attempts, the earliest first: all have the same time limit."""
        self._expired: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.running = self.most_running = self.calls = self.failures = self.timeouts = self.repeats = 0
        self.times = Counter()
        options = self.options
        self._seconds = options.timeout
        self._lanes = not operator.is_processor
        self._limiter: AsyncLimiter | None = None
        self._breaker: Breaker | None = None
        if options.rate is not None:
            with extras():
                from aiolimiter import AsyncLimiter
            self._limiter = AsyncLimiter(max(1.0, options.rate), max(1.0, options.rate) / options.rate)
        if options.breaker is not None:
            from kstreams_repl.engine.calls.breaker import Breaker

            self._breaker = Breaker(operator.store, options.breaker, options.breaker_rest)
        if options.retries:
            with extras():
                import tenacity  # noqa: F401 - a missing library is found before the first failure

    @property
    def breaker_state(self) -> str | None:
        """The breaker's state: "closed", "opened", "half-opened"; None without a breaker."""
        return None if self._breaker is None else str(self._breaker.state)

    def submit(self, call: Call, done: Done) -> None:
        """Take a call. In the loop."""
        if self._lanes and call.lane is not None:
            lanes = call.node.lanes
            if call.lane in lanes:
                behind = lanes[call.lane]
                if behind is None:
                    lanes[call.lane] = behind = deque()
                behind.append((call, done))
                return
            lanes[call.lane] = None
        self._admit(call, done)
        self._start()

    def _start(self) -> None:
        options, waiting = self.options, self._waiting
        if options.batch is None:
            while waiting and self.running < options.in_flight and not self._closed:
                self._spawn([waiting.popleft()])
            return
        while waiting and self.running < options.in_flight and not self._closed:
            if len(waiting) < options.batch and self._due is None:
                self._due = asyncio.get_running_loop().call_later(options.within, self._batch_is_due)
            if len(waiting) < options.batch:
                return
            self._batch()

    def _batch_is_due(self) -> None:
        self._due = None
        if self._waiting and self.running < self.options.in_flight:
            self._batch()
        self._start()

    def _batch(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        count = min(len(self._waiting), self.options.batch or 1)
        self._spawn([self._waiting.popleft() for _ in range(count)])

    def _spawn(self, calls: list[Waiting]) -> None:
        self.running += len(calls)
        if self.running > self.most_running:
            self.most_running = self.running
        self._tasks.add(asyncio.get_running_loop().create_task(self._run(calls)))

    async def _run(self, taken: list[Waiting]) -> None:
        calls = [call for call, _ in taken]
        loop = asyncio.get_running_loop()
        began = loop.time()
        results: Sequence[object] = ()
        error: BaseException | None = None
        CALLS.set(calls)
        try:
            results = await (self._repeated(calls) if self.options.retries else self._attempt(calls))
            if self._latency is not None:
                await asyncio.sleep(max(self._latency(call) for call in calls))
            if self.options.durable:
                results = await asyncio.gather(*map(self._written_ahead, calls, results))
        except asyncio.CancelledError as cancelled:
            if self._closed:
                return
            error = cancelled
        except BaseException as raised:  # reported to the task, which decides
            error = raised
        finally:
            self.running -= len(calls)
            self._tasks.discard(asyncio.current_task())
        self.times.add_many(len(calls), (loop.time() - began) * len(calls))
        for index, (call, done) in enumerate(taken):
            done(call, None if error is not None else results[index], error)
            if (behind := self._behind(call)) is not None:
                self._admit(*behind)
        self._say()
        if not self._closed:
            self._start()

    def _behind(self, call: Call) -> Waiting | None:
        """Take the next call of an ended call's lane."""
        if not self._lanes or call.lane is None:
            return None
        lanes = call.node.lanes
        behind = lanes[call.lane]
        if behind:
            following: Waiting = behind.popleft()
            return following
        del lanes[call.lane]
        return None

    def _admit(self, call: Call, done: Done) -> None:
        """Let a call wait for a free place, unless an earlier run has its result: then it has ended, and the next of its lane follows."""
        taken: Waiting | None = (call, done)
        while taken is not None:
            call, done = taken
            if call.found is None:
                self._waiting.append(taken)
                return
            stored, call.found = call.found, None
            done(call, call.node.results.decode(stored), None)
            self._say()
            taken = self._behind(call)

    def _say(self) -> None:
        if self._ended is not None and not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    async def _written_ahead(self, call: Call, result: object) -> object:
        """Write a result to the log; return what its serde reads back."""
        results = call.node.results
        if self._log is None or call.row_key is None:
            return result
        row = results.encode(result)
        results.begin(call)
        try:
            results.acknowledged(await self._log.append(results.partition, call.row_key, row))
        except KStreamsError as error:  # the result is as good as one that is not durable
            if count := self._complaints.due(type(error).__name__, asyncio.get_running_loop().time()):
                _LOG.warning("%d results of %s could not be written ahead: %s", count, call.context.node, error)
        return results.decode(row)

    def _tell(self) -> None:
        self._telling = False
        assert self._ended is not None
        self._ended()

    async def _repeated(self, calls: list[Call]) -> Sequence[object]:
        """Call, and repeat a failed call as often as the options say."""
        options = self.options
        try:
            return await self._attempt(calls)
        except Exception as error:
            if not options.retries or isinstance(error, InvalidRecordError):
                raise
            first: list[Exception] = [error]
        from tenacity import AsyncRetrying, retry_if_not_exception_type, stop_after_attempt, wait_exponential_jitter

        async def again() -> Sequence[object]:
            if first:
                raise first.pop()  # the first attempt has been made
            self.repeats += 1
            return await self._attempt(calls)

        jitter = options.backoff if self._jitter else 0
        policy = AsyncRetrying(
            stop=stop_after_attempt(options.retries + 1),
            wait=wait_exponential_jitter(multiplier=options.backoff, max=options.max_backoff, jitter=jitter),
            retry=retry_if_not_exception_type((InvalidRecordError, asyncio.CancelledError)),
            reraise=True,
        )
        return await policy(again)

    async def _attempt(self, calls: list[Call]) -> Sequence[object]:
        self.calls += 1
        breaker = self._breaker
        if breaker is not None:
            await breaker.admitted()
        if self._limiter is not None:
            await self._limiter.acquire()
        task = self._limited()
        try:
            results = await self._invoke(calls)
        except BaseException as raised:
            error: BaseException = raised
            if task in self._expired and isinstance(raised, asyncio.CancelledError):
                assert task is not None
                task.uncancel()
                error = TimeoutError(f"the call did not end within {self._seconds:g} s")
            self.failures += 1
            self.timeouts += isinstance(error, TimeoutError)
            if breaker is not None:
                breaker.ended(error if isinstance(error, Exception) else None)
            if error is raised:
                raise
            raise error from raised
        finally:
            if task is not None:
                self._unlimited(task)
        if breaker is not None:
            breaker.ended(None)
        return results

    def _limited(self) -> asyncio.Task[None] | None:
        """Begin the time limit of an attempt; None: it has none."""
        if self._seconds is None:
            return None
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._deadlines[task] = due = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(due, self._expire)
        return task

    def _unlimited(self, task: asyncio.Task[None]) -> None:
        del self._deadlines[task]
        self._expired.discard(task)
        if not self._deadlines and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """Cancel the attempts whose time is over; wait for the next deadline."""
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        for task, due in self._deadlines.items():
            if due > now:
                self._timer = loop.call_at(due, self._expire)
                return
            if task not in self._expired:
                self._expired.add(task)
                task.cancel()

    async def _invoke(self, calls: list[Call]) -> Sequence[object]:
        """Run the function once; return one result per call."""
        if self._processor is not None and (self._ready is None or not self._ready.done()):
            await self._opened()
        function = self._function
        if self.options.batch is None:
            arguments = calls[0].arguments
            effects = calls[0].effects
            answer = await (function(*arguments) if self.is_async else self._blocking(partial(_in_call, calls, function, *arguments)))
            calls[0].effects = effects  # a late attempt in a thread may have set its own
            return (answer,)
        columns = [list(column) for column in zip(*(call.arguments for call in calls), strict=True)]
        answer = await (function(*columns) if self.is_async else self._blocking(partial(_in_call, calls, function, *columns)))
        if not isinstance(answer, Sequence) or isinstance(answer, str | bytes) or len(answer) != len(calls):
            got = f"{len(answer)} results" if isinstance(answer, Sequence) and not isinstance(answer, str | bytes) else repr(answer)
            raise InvalidRecordError(
                f"the function expected to return a list of {len(calls)} results for its batch returned {got}",
                hint="return one result per record, in the same order",
            )
        return answer

    async def _opened(self) -> None:
        """Run the processor's `init` once, before its first call."""
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            try:
                await self._lifecycle("init")
            except BaseException as error:
                self._ready.set_exception(error)
                self._ready.exception()  # seen
                self._ready = None
                raise
            self._ready.set_result(None)
        else:
            await asyncio.shield(self._ready)

    async def _lifecycle(self, name: str) -> None:
        method = getattr(self._processor, name, None)
        if method is not None:
            await (method() if is_async(method) else self._blocking(method))

    async def close(self) -> None:
        """Cancel what runs; close the processor if it was opened."""
        self._closed = True
        self._waiting.clear()
        for timer in (self._due, self._timer):
            if timer is not None:
                timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        if self._ready is not None:
            await self._lifecycle("close")


def is_async(function: object) -> bool:
    """Return whether a call returns a coroutine."""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - its kind is wanted


def _in_call(calls: list[Call], function: UserFunction, *arguments: object) -> object:
    """Run a function that blocks, on whatever thread, as part of calls."""
    token = CALLS.set(calls)
    try:
        return function(*arguments)
    finally:
        CALLS.reset(token)
