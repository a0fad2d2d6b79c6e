"""The context of a value transformer: that of a processor, without `forward`."""

from __future__ import annotations

from typing import Any, NoReturn

from kstreams_repl.engine.operators.operator import NodeContext
from kstreams_repl.engine.operators.processor_api import NodeProcessorContext, follow_task, supplied
from kstreams_repl.system.errors import CallError
from kstreams_repl.system.types import ProcessorSupplier


def _nothing(key: object, value: object, timestamp: int, headers: object) -> None:
    """Ignore a record; never called, because `TransformerContext.forward` raises first."""


class TransformerContext(NodeProcessorContext):
    """The context of `transform_values`: the result is what the transformer returns, so `forward` raises."""

    def __init__(self, node: NodeContext) -> None:
        super().__init__(node, _nothing, fixed_key=True)

    def forward(self, record: object, child: str | None = None) -> NoReturn:
        raise CallError(
            f"the transformer of {self._node.name} called forward",
            hint="return the new value from transform(key, value), or use process_values on a stream",
            node=self._node.name,
        )


def start_transformer(node: NodeContext, supplier: ProcessorSupplier) -> Any:
    """Return a new transformer whose `init` and `close` follow the task's."""
    transformer = supplied(supplier, node.name, "transform")
    follow_task(transformer, node, TransformerContext(node))
    return transformer
