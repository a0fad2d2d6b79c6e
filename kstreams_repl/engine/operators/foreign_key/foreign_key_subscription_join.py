"""Foreign side of a foreign-key join: answer a subscription. Kafka Streams' `SubscriptionJoinProcessorSupplier`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.value_getters import ValueGetter
from kstreams_repl.engine.serdes.foreign_key import (
    DELETE_KEY_AND_PROPAGATE,
    DELETE_KEY_NO_PROPAGATE,
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,
    Subscription,
    SubscriptionResponse,
)
from kstreams_repl.system.types import Headers


@dataclass(slots=True)
class SubscriptionJoin(Operator):
    """Look up the foreign row and forward (primary key, response) as the instruction requires; timestamp: max of both rows.

    Attributes:
        foreign: getter of the foreign (right) table's row.
    """

    role = "join"

    foreign: ValueGetter

    def build(self, node: NodeContext, forward: Process) -> Process:
        read = self.foreign.build(node)

        def answer_subscription(key: object, value: Subscription, timestamp: int, headers: Headers) -> None:
            digest, instruction, primary_key, partition = value
            if instruction == DELETE_KEY_NO_PROPAGATE:
                return
            row = None if key is None else read(key)
            foreign_value = None
            if row is not None:
                if row[1] > timestamp:
                    timestamp = row[1]
                if instruction != DELETE_KEY_AND_PROPAGATE:
                    foreign_value = row[0]
            elif instruction == PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
                return
            forward(primary_key, SubscriptionResponse(digest, foreign_value, partition), timestamp, headers)

        return answer_subscription
