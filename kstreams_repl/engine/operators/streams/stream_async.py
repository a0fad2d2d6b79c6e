"""Call a function that waits (for a service, a model, a database) for many records at once. No counterpart in Kafka Streams.

The operator describes the node; `engine.runtime.calls.async_node` keeps its calls in order on the task's thread, and a host's call runner
runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar

from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.streams.async_options import AsyncOptions
from kstreams_repl.engine.topology.differences.fingerprint import canonical, whole_fingerprint
from kstreams_repl.system.types import UserFunction

PENDING = "-pending"
"""Suffix of the store of an asynchronous node."""
WAITING = "waiting_records"
"""Option of that store: readers show its rows as records."""
RESULTS = "-results"
"""Suffix of the log of an asynchronous node's durable results."""


class AsyncKind(StrEnum):
    """What a node makes of its function's result."""

    MAP_VALUES = "map_values_async"
    FILTER = "filter_async"
    FLAT_MAP_VALUES = "flat_map_values_async"
    PROCESS = "process_async"
    PROCESS_VALUES = "process_values_async"


@dataclass
class StreamAsync(Operator):
    """Call `function` outside the task's thread; forward its results on it.

    Attributes:
        kind: what becomes of a result.
        function: the user's function, or for a processor its supplier.
        store: name of the store of waiting records.
        options: how calls are made.
        with_key: the function takes the key too.
    """

    shows_headers: ClassVar[bool] = True

    kind: AsyncKind
    function: UserFunction
    store: str
    options: AsyncOptions
    with_key: bool = False

    @property
    def is_processor(self) -> bool:
        """Whether the function takes a record and a context."""
        return self.kind in (AsyncKind.PROCESS, AsyncKind.PROCESS_VALUES)

    @property
    def result_log_name(self) -> str | None:
        """Name of the log of durable results, which names its topic as a store's name does; None without."""
        return f"{self.store.removesuffix(PENDING)}{RESULTS}" if self.options.durable else None

    @cached_property
    def version(self) -> bytes:
        """The same for functions that do the same. Taken once, before the function has run and changed what it reads."""
        parts = self.kind.value, self.with_key, self.options.result_serde, self.function
        return sha256(canonical(whole_fingerprint(parts)).encode()).digest()[:16]

    def build(self, node: NodeContext, forward: Process) -> Process:
        return node.task.async_node(self, node, forward)

    def emitter(self, forward: Process) -> Callable[[Any], None]:
        """Return the function that forwards what became of a finished call; it runs on the task's thread."""
        if self.kind is AsyncKind.MAP_VALUES:

            def mapped(call: Any) -> None:
                forward(call.key, call.result, call.timestamp, call.headers)

            return mapped
        if self.kind is AsyncKind.FILTER:

            def kept(call: Any) -> None:
                if call.result:
                    forward(call.key, call.value, call.timestamp, call.headers)

            return kept
        if self.kind is AsyncKind.FLAT_MAP_VALUES:

            def flattened(call: Any) -> None:
                for value in call.result:
                    forward(call.key, value, call.timestamp, call.headers)

            return flattened

        def replayed(call: Any) -> None:
            call.effects.replay()

        return replayed
