"""Foreign side of a foreign-key join: keep subscriptions. Kafka Streams' `SubscriptionReceiveProcessorSupplier`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class SubscriptionReceive(Operator):
    """Write or delete `store[foreign key, primary key]` and forward (combined key, change of subscription wrappers).

    Attributes:
        store: name of the subscription store (timestamped key-value; key = int32 length, foreign key, primary key).
        foreign_key_serde: of the record key; None = the application's default key serde.
        key_serde: of the primary key; None = the application's default key serde.
    """

    store: str
    foreign_key_serde: Any = None
    key_serde: Any = None
