"""One record in an asynchronous node, and the interfaces of what calls the node's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kstreams_repl.engine.operators.own_copy import own_copy
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.processor.current_call import CallContext
from kstreams_repl.engine.processor.record_context import ContextSnapshot
from kstreams_repl.system.types import Headers


class Call:
    """One record in a node (`engine.runtime.calls.async_node.AsyncNode`).

    Attributes:
        seq: its number in the node, which is its key in the store.
        at, raw_key, raw_value: coordinates and bytes of its source record.
        lane: calls of one lane run one after the other; None: it waits for no other.
        due: when to try it again (ms); 0: it is in the line.
        stored, changed: whether the last commit has it, and in another form.
        row_key, found: of a durable node: the key of its result's row, and the row of an earlier call
            (`engine.runtime.calls.call_results`).
    """

    __slots__ = (
        "node", "seq", "key", "value", "timestamp", "headers", "at", "raw_key", "raw_value", "index", "attempt", "due", "cause", "trace",
        "lane", "done", "result", "error", "effects", "stored", "changed", "size", "row_key", "found",
    )  # fmt: skip

    def __init__(
        self, node: Any, seq: int, key: object, value: object, timestamp: int, headers: Headers, at: ContextSnapshot,
        raw_key: bytes | None, raw_value: bytes | None, index: int,
    ) -> None:  # fmt: skip
        self.node, self.seq, self.timestamp, self.headers = node, seq, timestamp, headers
        self.key, self.value = own_copy(key, node=node.name), own_copy(value, node=node.name)
        self.at, self.raw_key, self.raw_value, self.index = at, raw_key, raw_value, index
        self.attempt, self.due, self.cause, self.trace = 1, 0, "", ""
        self.lane: object = None
        self.done = self.stored = self.changed = False
        self.result: object = None
        self.error: BaseException | None = None
        self.effects: Any = None
        self.row_key: bytes | None = None
        self.found: bytes | None = None
        self.size = len(raw_key or b"") + len(raw_value or b"")

    @property
    def context(self) -> CallContext:
        """What the function may ask about its call."""
        context = self.at
        return CallContext(
            self.node.application_id, self.node.name, context.topic, context.partition, context.offset, self.index, self.attempt,
            self.timestamp,
            self.headers,
        )  # fmt: skip

    @property
    def arguments(self) -> tuple[object, ...]:
        """What the function gets: copies, so that a second try, and the record that is forwarded or stored, have the value as it came."""
        operator = self.node.operator
        if operator.is_processor:
            self.effects = self.node.effects_of(self)
            return self.effects.record, self.effects
        value = own_copy(self.value)
        return (own_copy(self.key), value) if operator.with_key else (value,)


Done = Callable[["Call", object, "BaseException | None"], None]
"""(call, result, error): reports a finished call, from any thread."""


class Caller(Protocol):
    """What a runner provides to one node of one task."""

    def submit(self, call: Call, done: Done) -> None:
        """Run the node's function for a call, soon; never blocks."""

    def ask(self, question: Callable[[], object], put: Callable[[Callable[[], None]], None]) -> object:
        """Have the task's thread answer a question of a running call; `put` hands it over. An awaitable for an `async def`."""


class CallRunner(Protocol):
    """Runs the functions of the asynchronous nodes of an instance.

    Attributes:
        log: where durable results are written (`engine.runtime.calls.call_results.ResultLog`).
    """

    log: Any

    def caller(self, node: str, operator: StreamAsync, task: object) -> Caller:
        """Return the caller for a node of a task; the function's resources are opened once per runner."""
