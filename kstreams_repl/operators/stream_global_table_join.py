"""Join a stream's records with rows of a global table. Kafka Streams' `KStreamGlobalKTableJoin`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.getters import ValueGetter


@dataclass(slots=True)
class StreamGlobalTableJoin(Operator):
    """As `StreamTableJoin`, but the row's key is `key_mapper(key, value)` and the table is global (never buffered, not
    versioned).

    Inner: a None *mapped* key is dropped and counted. Left: a None mapped key joins with None. The stream record's key and
    timestamp are kept.

    Attributes:
        table: how to read the global table's row.
        key_mapper: (key, value) -> key of the global table.
        joiner: (value, table value) -> value, or (key, value, table value) -> value when `with_key` (the stream's key).
        left: left (not inner) join.
        with_key: the joiner also takes the key.
    """

    table: ValueGetter
    key_mapper: Callable[[Any, Any], Any]
    joiner: Callable[..., Any]
    left: bool = False
    with_key: bool = False
