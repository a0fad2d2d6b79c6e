"""Join a stream's records with a table's rows. Kafka Streams' `KStreamKTableJoin`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.getters import ValueGetter


@dataclass(slots=True)
class StreamTableJoin(Operator):
    """Look up the table row of a record's key and forward the joined value under the stream record's key and timestamp.

    Inner: a None key is dropped and counted; no row, no output. Left: no row (or a None key) joins with None. A None stream
    value is dropped
    and counted. A versioned table is read as of the record's timestamp. With `buffer_store` (KIP-923) stream records wait
    there for
    `grace_ms` of the operator's stream time.

    Attributes:
        table: how to read the table's row.
        joiner: (value, table value) -> value, or (key, value, table value) -> value when `with_key`.
        left: left (not inner) join.
        with_key: the joiner also takes the key.
        grace_ms: how long records are buffered; None = not at all.
        buffer_store: name of the buffer (kind `JOIN_GRACE_BUFFER`); None without grace.
        versioned: the table is versioned.
    """

    table: ValueGetter
    joiner: Callable[..., Any]
    left: bool = False
    with_key: bool = False
    grace_ms: int | None = None
    buffer_store: str | None = None
    versioned: bool = False
