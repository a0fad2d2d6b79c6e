"""Foreign side of a foreign-key join: store subscriptions. Kafka Streams' `SubscriptionReceiveProcessorSupplier`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.serdes.foreign_key import (
    DELETE_KEY_AND_PROPAGATE,
    FOREIGN_KEY,
    PRIMARY_KEY,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
    Subscription,
    foreign_key_prefix,
    pseudo_topic,
)
from kstreams_repl.system.types import Headers


@dataclass(slots=True)
class SubscriptionReceive(Operator):
    """Write or delete `store[foreign key, primary key]` and forward (foreign key, subscription).

    A subscription with a None foreign key is not stored: it is forwarded if its instruction asks for a response, and otherwise dropped
    and counted.

    Attributes:
        store: name of the subscription store (timestamped key-value; key = int32 length, foreign key, primary key).
        registration_topic: where subscriptions are sent, without the application id.
        foreign_key_serde: of the record key; None = the application's default key serde.
        key_serde: of the primary key; None = the application's default key serde.
    """

    role = "join"

    store: str
    registration_topic: str = ""
    foreign_key_serde: object = None
    key_serde: object = None

    def build(self, node: NodeContext, forward: Process) -> Process:
        store, drop = node.store(self.store), node.drop
        put, delete = store.put_raw, store.delete_raw
        task = node.task
        foreign_key_topic, primary_key_topic = (
            pseudo_topic(task.application_id, self.registration_topic, part) for part in (FOREIGN_KEY, PRIMARY_KEY)
        )
        foreign_key_to_bytes = task.key_serde(self.foreign_key_serde, foreign_key_topic).serialize
        primary_key_to_bytes = task.key_serde(self.key_serde, primary_key_topic).serialize

        def receive_subscription(key: object, value: Subscription, timestamp: int, headers: Headers) -> None:
            instruction = value[1]
            if key is None:
                if instruction != PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
                    drop("null foreign key")
                    return
            else:
                combined = foreign_key_prefix(foreign_key_to_bytes(key)) + primary_key_to_bytes(value[2])
                if instruction <= DELETE_KEY_AND_PROPAGATE:
                    delete(combined)
                else:
                    put(combined, value, timestamp)
            forward(key, value, timestamp, headers)

        return receive_subscription
