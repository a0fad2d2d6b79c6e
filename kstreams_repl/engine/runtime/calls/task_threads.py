"""`num.threads.per.task` > 1 (KIP-311): functions of stateless operators run on several threads at the same time, in one task.

Actors: the *task's thread* takes records, starts their functions in the order of the records and replays what they forwarded in the same
order, each under the coordinates and the stream time of its record; the *threads* of the instance's pool run functions and nothing else.
Invariants: nothing is in flight when `StreamTask.process` returns, so a commit covers whole records, in offset order; no record is
forwarded before those that entered the node before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from kstreams_repl.engine.operators.operator import NodeContext, Process
from kstreams_repl.engine.operators.streams.stream_filter import StreamFilter
from kstreams_repl.engine.operators.streams.stream_flat_map import StreamFlatMap
from kstreams_repl.engine.operators.streams.stream_flat_map_values import StreamFlatMapValues
from kstreams_repl.engine.operators.streams.stream_map import StreamMap
from kstreams_repl.engine.operators.streams.stream_map_values import StreamMapValues
from kstreams_repl.engine.operators.streams.stream_peek import StreamPeek
from kstreams_repl.engine.operators.streams.stream_select_key import StreamSelectKey
from kstreams_repl.engine.processor.record_context import ContextSnapshot
from kstreams_repl.system.types import Headers

if TYPE_CHECKING:
    from kstreams_repl.engine.runtime.queues.record_queue import StreamClock

PARALLEL = (StreamMapValues, StreamFilter, StreamFlatMapValues, StreamMap, StreamFlatMap, StreamSelectKey, StreamPeek)
"""Operators that have no state: what they forward depends on their record alone."""
AHEAD = 4
"""Records that a node takes in, as a multiple of the threads: a slow one keeps no thread idle at once."""


_FORWARDED: ContextVar[list[tuple[object, object, int, Headers]]] = ContextVar("kstreams_repl.forwarded")
"""What the function that runs on this thread has forwarded."""


class Running(Protocol):
    """A function that was started."""

    def result(self) -> Any:
        """Wait until it has ended; return its result, or raise its error."""


Submit = Callable[[Callable[[], object]], Running]
"""Starts a function on a thread of the pool."""


class TaskThreads:
    """The nodes of one task whose functions run on several threads.

    Args:
        threads: how many.
        handled: asks the processing exception handler about an error of a node; False if there is none.
    """

    def __init__(self, threads: int, handled: Callable[[str, Exception], bool]) -> None:
        self.threads = threads
        self.submit: Submit = _Done
        """Set by a host with a pool; without one a function runs where it is started."""
        self._handled = handled
        self._nodes: list[_ParallelNode] = []

    def add(self, node: NodeContext, forward: Process, clock: StreamClock, built: Callable[[Process], Process]) -> Process:
        """Add a node; return its entry.

        Args:
            built: returns the operator's own entry, given its `forward`.
        """
        made = _ParallelNode(self, node, forward, clock, self._handled, built)
        self._nodes.insert(0, made)  # nodes are built children first
        return made.enter

    def drain(self) -> None:
        """Wait for all functions, and forward everything."""
        for node in self._nodes:
            node.leave(0)


class _ParallelNode:
    """One node: its records in flight, in order."""

    def __init__(
        self,
        owner: TaskThreads,
        node: NodeContext,
        forward: Process,
        clock: StreamClock,
        handled: Callable[[str, Exception], bool],
        built: Callable[[Process], Process],
    ) -> None:
        self._owner, self._node, self._forward, self._clock, self._handled = owner, node, forward, clock, handled
        self._process = built(_keep)
        self._most = owner.threads * AHEAD
        self._running: deque[tuple[ContextSnapshot, bytes | None, bytes | None, int, Running]] = deque()

    def enter(self, key: object, value: object, timestamp: int, headers: Headers) -> None:
        """Start a record's function: the node's entry."""
        record = self._node.record
        process = self._process

        def run() -> list[tuple[object, object, int, Headers]]:
            forwarded: list[tuple[object, object, int, Headers]] = []
            _FORWARDED.set(forwarded)
            process(key, value, timestamp, headers)
            return forwarded

        self._running.append((record.snapshot(), record.raw_key, record.raw_value, self._clock.now, self._owner.submit(run)))
        self.leave(self._most - 1)

    def leave(self, left: int) -> None:
        """Forward what ended, until so many are left; wait for it if need be."""
        running = self._running
        if len(running) <= left:
            return
        record, clock = self._node.record, self._clock
        kept, raw_key, raw_value, now = record.snapshot(), record.raw_key, record.raw_value, clock.now
        try:
            while len(running) > left:
                context, key, value, clock.now, started = running.popleft()
                record.restore(context)
                record.raw_key, record.raw_value = key, value
                try:
                    for one in started.result():
                        self._forward(*one)
                except Exception as error:
                    record.raised(error)
                    if not self._handled(self._node.name, error):
                        raise
        finally:
            clock.now = max(now, clock.now)
            record.restore(kept)
            record.raw_key, record.raw_value = raw_key, raw_value


class _Done:
    """A function that was run at once."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._error: Exception | None = None
        try:
            self._result = work()
        except Exception as error:
            self._error = error

    def result(self) -> object:
        if self._error is not None:
            raise self._error
        return self._result


def _keep(key: object, value: object, timestamp: int, headers: Headers) -> None:
    """Keep what a function forwards until the task's thread takes it."""
    _FORWARDED.get().append((key, value, timestamp, headers))
