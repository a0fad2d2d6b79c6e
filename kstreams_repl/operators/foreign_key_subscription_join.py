"""Foreign side: answer a subscription. Kafka Streams' `SubscriptionJoinProcessorSupplier`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.getters import ValueGetter


@dataclass(slots=True)
class SubscriptionJoin(Operator):
    """Look the foreign row up and forward (primary key, response wrapper) as the instruction demands.

    Attributes:
        foreign: how to read the foreign (right) table's row.
    """

    foreign: ValueGetter
