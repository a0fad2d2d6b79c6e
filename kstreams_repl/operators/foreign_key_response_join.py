"""Left side of a foreign-key join: join a response. Kafka Streams' `ResponseJoinProcessorSupplier`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.getters import ValueGetter


@dataclass(slots=True)
class ResponseJoin(Operator):
    """Join a response with the present left row when its hash still matches; stale responses are dropped silently.

    Attributes:
        primary: how to read the left table's row.
        joiner: (left, right) -> value, or (key, left, right) -> value when `with_key`.
        left_join: left (not inner) join.
        value_serde: serializes the left value for its hash; None = the application's default value serde.
        with_key: the joiner also takes the (primary) key.
        value_topic: pseudo topic name the left value is serialized for (without the application id).
    """

    primary: ValueGetter
    joiner: Callable[..., Any]
    left_join: bool
    value_serde: Any = None
    with_key: bool = False
    value_topic: str = ""
