"""Keep the records a predicate holds for (or does not). Kafka Streams' `KStreamFilter`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamFilter(Operator):
    """Forward a record unchanged when `bool(predicate(key, value)) != negate`.

    Also the null-key filter in front of repartition topics.

    Attributes:
        predicate: (key, value) -> truth value. None keys and values are passed to it.
        negate: True for `filter_not`.
    """

    predicate: Callable[[Any, Any], Any]
    negate: bool = False
