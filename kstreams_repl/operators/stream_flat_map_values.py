"""Any number of values for each record. Kafka Streams' `KStreamFlatMapValues`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamFlatMapValues(Operator):
    """Forward the same key with each value of the mapper's iterable, in order.

    Attributes:
        mapper: (value) -> iterable of values, or (key, value) -> iterable when `with_key`.
        with_key: the mapper also takes the key.
    """

    mapper: Callable[..., Any]
    with_key: bool = False
