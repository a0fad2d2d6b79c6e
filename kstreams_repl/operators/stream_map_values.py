"""Map each record to a new value. Kafka Streams' `KStreamMapValues`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.operators.loop_template import Inline, with_inline
from kstreams_repl.types import Headers


@dataclass(slots=True)
class StreamMapValues(Operator):
    """Forward the same key with a new value.

    Attributes:
        mapper: (value) -> value, or (key, value) -> value when `with_key`.
        with_key: the mapper also takes the key (read-only).
    """

    one_to_one: ClassVar[bool] = True

    mapper: Callable[..., Any]
    with_key: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        mapper = self.mapper
        if self.with_key:

            def map_values_with_key(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                forward(key, mapper(key, value), timestamp, headers)

            both = frozenset({"key", "value"})
            inline = Inline(node.name, ("value = {mapper}(key, value)",), {"mapper": mapper}, uses=both, calls_user=True)
            return with_inline(map_values_with_key, inline)

        def map_values(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, mapper(value), timestamp, headers)

        inline = Inline(node.name, ("value = {mapper}(value)",), {"mapper": mapper}, uses=frozenset({"value"}), calls_user=True)
        return with_inline(map_values, inline)
