"""The asynchronous nodes of one task. Sans-IO: a host's `CallRunner` runs the functions, the task's thread replays the results.

Actors: the *runner* of the host, which calls functions elsewhere and reports each result from any thread (`TaskCalls.arrived`); the
`TaskCalls` of the task, whose `pump` the task calls on its own thread; one `AsyncNode` per node, which keeps the order.

Invariant: a commit covers every record that was read, because what entered a node and has not left it is part of the task's state
(docs/design/020-work-that-waits.md). So no commit waits for a call, and a call whose effects were rolled back is made again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from kstreams_repl.engine.operators.operator import NodeContext, Process
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.runtime.calls.async_node import AsyncNode
from kstreams_repl.engine.runtime.calls.call import Call, CallRunner
from kstreams_repl.system.errors import IllegalStateTransitionError
from kstreams_repl.system.types import TopicPartition

Asked = Callable[[Exception], bool]
RetryAction = Literal["retry", "drop"]
"""What can be ordered about records that wait off the main path."""


class TaskCalls:
    """The calls of one task."""

    def __init__(self) -> None:
        self.nodes: list[AsyncNode] = []
        self.runner: CallRunner | None = None
        self.arrived: deque[tuple[AsyncNode, Call, object, BaseException | None]] = deque()
        self.questions: deque[Callable[[], None]] = deque()
        self._orders: deque[tuple[str, RetryAction, Iterable[int]]] = deque()
        self.replaying: str | None = None
        """The node whose result was replayed last, for errors."""

    def add(
        self, operator: StreamAsync, node: NodeContext, forward: Process, *, dead_letter: Asked, handled: Asked
    ) -> Process:
        """Add a node; return its entry."""
        made = AsyncNode(
            operator, node, forward, arrived=self.arrived, questions=self.questions, dead_letter=dead_letter, handled=handled
        )
        self.nodes.append(made)
        return made.enter

    def attach(self, runner: CallRunner) -> None:
        """Set the runner; call it before the task is initialised."""
        self.runner = runner

    def open(self) -> None:
        """Begin: the records that waited at the last commit are called first.

        Raises:
            IllegalStateTransitionError: no runner is attached.
        """
        if self.runner is None:
            raise IllegalStateTransitionError("the task has asynchronous nodes and no call runner", hint="call calls.attach(runner) first")
        for node in self.nodes:
            node.open(self.runner)

    @property
    def waiting(self) -> int:
        """Records in all nodes whose results have not left."""
        return sum(len(node.entries) for node in self.nodes)

    @property
    def running(self) -> int:
        """Records that wait for a call, or for what goes before them; not those that wait off the main path."""
        return sum(len(node.entries) - len(node.parked) for node in self.nodes)

    def room(self) -> int:
        """Return how many further records the task may read."""
        return min(node.room() for node in self.nodes)

    @property
    def next_due(self) -> int | None:
        """When the next record that waits off the main path is tried again (ms); None if none waits."""
        return min((due for node in self.nodes if (due := node.next_due) is not None), default=None)

    def pump(self) -> int:
        """Answer questions of running calls, replay results in order, and start what may start; return how many results were replayed."""
        while self.questions:
            self.questions.popleft()()
        done = 0
        while self._orders:
            done += self._follow(*self._orders.popleft())
        arrived = self.arrived
        if arrived:
            record = self.nodes[0].node.record
            kept, raw_key, raw_value = record.snapshot(), record.raw_key, record.raw_value
            try:
                while arrived:
                    node, call, result, error = arrived.popleft()
                    self.replaying = node.name
                    done += node.finished(call, result, error)
            finally:
                record.restore(kept)
                record.raw_key, record.raw_value = raw_key, raw_value
        for node in self.nodes:
            if node.parked:
                node.unpark()
        return done

    def order(self, node: str, action: RetryAction, numbers: Iterable[int]) -> None:
        """Have the next `pump` try records off the main path now, or drop them. From any thread.

        Args:
            action: what to do with the records.
            numbers: of the records in the node; those that do not wait off the main path are passed over.
        """
        self._orders.append((node, action, numbers))

    def _follow(self, name: str, action: RetryAction, numbers: Iterable[int]) -> int:
        return sum((node.unpark if action == "retry" else node.drop_parked)(set(numbers)) for node in self.nodes if node.name == name)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Take note of a commit that succeeded.

        Args:
            offsets: the committed offset of each input partition.
        """
        durable = [node.results for node in self.nodes if node.results is not None]
        expects = any(results.expects for results in durable)
        held = {call.at[:3] for node in self.nodes for call in node.entries.values()} if expects else ()
        for results in durable:
            results.committed(offsets, held)

    def deletable(self) -> dict[TopicPartition, int]:
        """Return for each partition of durable results the offset before which no result is needed any more."""
        return {node.results.partition: node.results.floor() for node in self.nodes if node.results is not None}

    def write(self) -> None:
        """Make the waiting records part of the commit, after everything else was flushed."""
        for node in self.nodes:
            node.write()
