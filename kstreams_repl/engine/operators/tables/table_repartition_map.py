"""Re-key a table's changes for a grouped aggregate. Kafka Streams' `KTableRepartitionMap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.operators.operator import Change, NodeContext, Operator, Process
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import Headers


@dataclass(slots=True)
class TableRepartitionMap(Operator):
    """Map the new and the old row to (new key, value) and forward them to the repartition topic.

    If the old and the new key are equal, one combined record `(new, old, is_latest)` is forwarded; otherwise the subtraction
    `(None, old, is_latest)` first, then the addition `(new, None, is_latest)` (KIP-904). A None mapped key or value omits that half without
    counting it. A None input key is an error, because the source drops such records. Requires the parent's old values.

    Attributes:
        mapper: (key, value) -> (key, value).
        versioned: the parent is versioned; changes that are not the latest are left out.
        key_serde: serializes group keys for comparison; None = the application's default key serde.
    """

    mapper: Callable[[Any, Any], tuple[Any, Any]]
    versioned: bool = False
    key_serde: object = None

    def build(self, node: NodeContext, forward: Process) -> Process:
        mapper, versioned, name = self.mapper, self.versioned, node.name
        same = _same_as_written(node.task.key_serde(self.key_serde).serialize)

        def repartition(key: object, value: Change, timestamp: int, headers: Headers) -> None:
            if key is None:
                raise KStreamsError(f"{name} regroups a table row without a key", hint="filter out null keys upstream", node=name)
            new, old, is_latest = value
            if versioned and not is_latest:
                return
            new_key = new_value = old_key = old_value = None
            if new is not None:
                new_key, new_value = mapper(key, new)
            if old is not None:
                old_key, old_value = mapper(key, old)
            if old_key is None or old_value is None:
                if new_key is not None and new_value is not None:
                    forward(new_key, (new_value, None, is_latest), timestamp, headers)
            elif new_key is None or new_value is None:
                forward(old_key, (None, old_value, is_latest), timestamp, headers)
            elif same(old_key, new_key):
                forward(old_key, (new_value, old_value, is_latest), timestamp, headers)
            else:
                forward(old_key, (None, old_value, is_latest), timestamp, headers)
                forward(new_key, (new_value, None, is_latest), timestamp, headers)

        return repartition


def _same_as_written(to_bytes: Callable[[Any], object]) -> Callable[[object, object], bool]:
    """Return whether two keys are equal when serialized: Python's `==` also equates 1, 1.0 and True, at any depth, and 0.0 and -0.0."""

    def same(old: object, new: object) -> bool:
        kind = type(old)
        if kind is not type(new):
            return False
        if kind is str or kind is int or kind is bytes:
            return bool(old == new)
        try:
            return bool(to_bytes(old) == to_bytes(new))
        except Exception:  # the sink serializes the key again, and has an exception handler
            return False

    return same
