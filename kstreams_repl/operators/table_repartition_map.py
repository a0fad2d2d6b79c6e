"""Re-key a table's changes for a grouped aggregate. Kafka Streams' `KTableRepartitionMap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class TableRepartitionMap(Operator):
    """Map the new and the old row to (new key, value) and forward them towards the repartition topic.

    With an equal old and new key one combined record `(new, old, is_latest)` is forwarded; otherwise the subtraction `(None,
    old, is_latest)`
    first, then the addition `(new, None, is_latest)` (KIP-904). A None mapped key or value leaves that half out, uncounted. A
    None input key
    is an error of the source, never seen here. Needs the parent's old values.

    Attributes:
        mapper: (key, value) -> (key, value).
        versioned: the parent is versioned: changes that are not the latest are left out.
    """

    mapper: Callable[[Any, Any], tuple[Any, Any]]
    versioned: bool = False
