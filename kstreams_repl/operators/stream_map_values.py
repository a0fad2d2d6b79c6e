"""A new value for each record. Kafka Streams' `KStreamMapValues`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamMapValues(Operator):
    """Forward the same key with a new value.

    Attributes:
        mapper: (value) -> value, or (key, value) -> value when `with_key`.
        with_key: the mapper also takes the key (read-only).
    """

    mapper: Callable[..., Any]
    with_key: bool = False
