"""Call a function for each record, with or without forwarding it. Kafka Streams' `KStreamPeek`, `KStreamPrint`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import Headers


@dataclass(slots=True)
class StreamPeek(Operator):
    """Call `action(key, value)`, then forward the record if `forward_down`.

    Attributes:
        action: (key, value) -> ignored.
        forward_down: True for `peek`; False for `foreach`.
    """

    one_to_one: ClassVar[bool] = True

    action: Callable[[Any, Any], object]
    forward_down: bool = True

    def build(self, node: NodeContext, forward: Process) -> Process:
        action, forward_down = self.action, self.forward_down

        def peek(key: object, value: object, timestamp: int, headers: Headers) -> None:
            action(key, value)
            if forward_down:
                forward(key, value, timestamp, headers)

        return kernel(node, peek, calls={"action"})


@dataclass(slots=True)
class StreamPrint(Operator):
    """Write one line per record and forward nothing.

    Attributes:
        label: printed in brackets before each record: ``[label]: key, value``.
        mapper: (key, value) -> text; None prints ``key, value``.
        path: file to append to; None is standard output.
    """

    label: str
    mapper: Callable[[Any, Any], str] | None = None
    path: str | None = None

    def build(self, node: NodeContext, forward: Process) -> Process:
        label, mapper = self.label, self.mapper
        # sys.stdout is looked up per record, because notebooks and test runners replace it.
        try:
            out = None if self.path is None else open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - closed by on_close
        except OSError as cause:
            raise TopologyError(
                f"{node.name} cannot write to {self.path!r}: {cause.strerror}",
                hint="create its directory and make it writable",
                node=node.name,
            ) from cause
        if out is not None:
            node.on_close(out.close)

        def print_(key: object, value: object, timestamp: int, headers: Headers) -> None:
            text = f"{key}, {value}" if mapper is None else mapper(key, value)
            print(f"[{label}]: {text}", file=out, flush=out is not None)

        return print_
