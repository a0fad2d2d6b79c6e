"""Filter a table's rows. Kafka Streams' `KTableFilter`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.operators.tuple_forwarder import keeper, old_value
from kstreams_repl.types import Headers


@dataclass(slots=True)
class TableFilter(Operator):
    """Turn rows for which the predicate is false into tombstones.

    The old value is read from `store` if there is one; otherwise, with `send_old_values`, the parent's old value is filtered; otherwise it
    is None. With `send_old_values`, unless `versioned`, nothing is forwarded if both new and old are None.

    Attributes:
        predicate: (key, value) -> truth value; never called with a None value.
        negate: True for `filter_not`.
        store: name of the materialized result, or None.
        send_old_values: forward old values too.
        versioned: the parent table is versioned, so redundant tombstones are kept.
        store_versioned: `store` is a versioned one.
    """

    predicate: Callable[[Any, Any], Any]
    negate: bool = False
    store: str | None = None
    send_old_values: bool = False
    versioned: bool = False
    store_versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        predicate, negate, send_old, versioned = self.predicate, self.negate, self.send_old_values, self.versioned
        if self.store is None:

            def filter_(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                new, old, is_latest = value
                if new is not None and bool(predicate(key, new)) is negate:
                    new = None
                if not send_old or (old is not None and bool(predicate(key, old)) is negate):
                    old = None
                if new is None and old is None and send_old and not versioned:
                    return  # a row that was never forwarded
                forward(key, (new, old, is_latest), timestamp, headers)

            return filter_
        keep = keeper(node, self.store, forward, send_old_values=send_old, versioned=self.store_versioned)
        shown = old_value(node.store(self.store))

        def filter_stored(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new = value[0]
            if new is not None and bool(predicate(key, new)) is negate:
                new = None
            old = shown(key) if send_old else None
            if new is None and old is None and send_old and not versioned:
                return
            keep(key, new, old, timestamp, headers)

        return filter_stored
