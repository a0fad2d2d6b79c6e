"""Foreign side of a foreign-key join: a foreign row changed. Kafka Streams' `ForeignTableJoinProcessorSupplier`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import Change, NodeContext, Operator, Process
from kstreams_repl.engine.serdes.foreign_key import FOREIGN_KEY, SubscriptionResponse, foreign_key_prefix, pseudo_topic
from kstreams_repl.system.types import Headers


@dataclass(slots=True)
class ForeignTableJoin(Operator):
    """For a change of the right table, forward a response to every subscriber of its key, in store order (prefix scan).

    Attributes:
        store: name of the subscription store.
        registration_topic: where subscriptions are sent, without the application id.
        foreign_key_serde: of the right table's key; None = the application's default key serde.
        versioned: the right table is versioned; changes that are not the latest are dropped and counted.
    """

    role = "join"

    store: str
    registration_topic: str = ""
    foreign_key_serde: object = None
    versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        scan, drop, versioned = node.store(self.store).prefix_scan_raw, node.drop, self.versioned
        foreign_key_topic = pseudo_topic(node.task.application_id, self.registration_topic, FOREIGN_KEY)
        foreign_key_to_bytes = node.task.key_serde(self.foreign_key_serde, foreign_key_topic).serialize

        def notify_subscribers(key: object, value: Change, timestamp: int, headers: Headers) -> None:
            if versioned and not value[2]:
                drop("out of order in a versioned table")
                return
            new = value[0]
            for _, (subscription, _) in scan(foreign_key_prefix(foreign_key_to_bytes(key))):
                digest, _, primary_key, partition = subscription
                forward(primary_key, SubscriptionResponse(digest, new, partition), timestamp, headers)

        return kernel(node, notify_subscribers, null="key")
