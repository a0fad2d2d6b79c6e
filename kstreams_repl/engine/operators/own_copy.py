"""Copies of values that wait outside a store: in a batch, a table's rows, an asynchronous call.

A record that is processed at once may share its value with other nodes, as in Kafka Streams. One that waits must not: another branch, or
the function that made it (`yield row` in a loop that fills the same `row`), may change it in place before its turn comes.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any

_UNCHANGEABLE = frozenset({
    int, float, str, bytes, bool, complex, type(None), decimal.Decimal, uuid.UUID, datetime.date, datetime.datetime, datetime.time,
    datetime.timedelta,
})  # fmt: skip


UNCOPIED: set[tuple[str, str]] = set()
"""Nodes of this process that share objects, because they cannot be copied, and the types of these; each instance reports them."""


def own_copy(value: Any, without: Callable[[object], object] | None = None, *, node: str | None = None) -> Any:
    """Return a value that nothing else can change: itself if it is immutable, else a copy.

    Args:
        without: (value) -> what stands for an object that cannot be copied; None: the object itself.
        node: where it waits, for `UNCOPIED`.
    """
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value
    if kind is dict:
        if _UNCHANGEABLE.issuperset(map(type, value.values())):
            return value.copy()
        return {key: own_copy(item, without, node=node) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind(own_copy(item, without, node=node) for item in value)
    try:
        return copy.deepcopy(value)
    except Exception:  # a lock, a generator: not every object can be copied
        if without is not None:
            return without(value)
        if node is not None:
            UNCOPIED.add((node, kind.__qualname__))
        return value
