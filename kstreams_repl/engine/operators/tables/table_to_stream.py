"""Turn a table's changes into a stream of its new values. Kafka Streams' `KTableImpl.toStream`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import Change, NodeContext, Operator, Process
from kstreams_repl.system.types import Headers


@dataclass(slots=True)
class TableToStream(Operator):
    """Forward (key, change.new); tombstones become records with a None value."""

    one_to_one: ClassVar[bool] = True

    carries_rows: ClassVar[bool] = True

    def build(self, node: NodeContext, forward: Process) -> Process:
        def to_stream(key: object, value: Change, timestamp: int, headers: Headers) -> None:
            forward(key, value[0], timestamp, headers)

        return kernel(node, to_stream)
