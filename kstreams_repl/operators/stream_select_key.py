"""A new key for each record. Kafka Streams' `selectKey`, a `KStreamMap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamSelectKey(Operator):
    """Forward the same value under `selector(key, value)`; the new key may be None.

    Attributes:
        selector: (key, value) -> key.
    """

    selector: Callable[[Any, Any], Any]
