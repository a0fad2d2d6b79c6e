"""A table's changes as a stream of its new values. Kafka Streams' `KTableImpl.toStream`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class TableToStream(Operator):
    """Forward (key, change.new): tombstones become records with a None value."""
