"""Map a table's values. Kafka Streams' `KTableMapValues`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.operators.tuple_forwarder import keeper, old_value
from kstreams_repl.types import Headers


@dataclass(slots=True)
class TableMapValues(Operator):
    """Map each row to a new value; tombstones pass without a call.

    The old value is read from `store` if there is one; otherwise, with `send_old_values`, the parent's old value is mapped; otherwise it is
    None.

    Attributes:
        mapper: (value) -> value, or (key, value) -> value when `with_key`; never called with a None value.
        with_key: the mapper also takes the key.
        store: name of the materialized result, or None.
        send_old_values: forward old values too.
        store_versioned: `store` is a versioned one.
    """

    mapper: Callable[..., Any]
    with_key: bool = False
    store: str | None = None
    send_old_values: bool = False
    store_versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        send_old = self.send_old_values
        mapper = self.mapper if self.with_key else _without_key(self.mapper)
        if self.store is None:

            def map_values(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                new, old, is_latest = value
                if new is not None:
                    new = mapper(key, new)
                if not send_old:
                    old = None
                elif old is not None:
                    old = mapper(key, old)
                forward(key, (new, old, is_latest), timestamp, headers)

            return map_values
        keep = keeper(node, self.store, forward, send_old_values=send_old, versioned=self.store_versioned)
        shown = old_value(node.store(self.store))

        def map_values_stored(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new = value[0]
            if new is not None:
                new = mapper(key, new)
            keep(key, new, shown(key) if send_old else None, timestamp, headers)

        return map_values_stored


def _without_key(mapper: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda key, value: mapper(value)
