"""Left side of a foreign-key join: join a response. Kafka Streams' `ResponseJoinProcessorSupplier`."""

from __future__ import annotations

from dataclasses import dataclass

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.value_getters import ValueGetter
from kstreams_repl.engine.operators.user_functions import joiner_of_side
from kstreams_repl.engine.serdes.foreign_key import VALUE_HASH, SubscriptionResponse, hash128, pseudo_topic
from kstreams_repl.system.types import Headers, Joiner


@dataclass(slots=True)
class ResponseJoin(Operator):
    """Join a response with the current left row if its hash still matches; stale responses are dropped and counted.

    Attributes:
        primary: getter of the left table's row.
        joiner: (left, right) -> value, or (key, left, right) -> value when `with_key`.
        left_join: left (not inner) join.
        value_serde: serializes the left value for its hash; None = the application's default value serde.
        with_key: the joiner also takes the (primary) key.
        registration_topic: where subscriptions are sent, without the application id.
    """

    role = "join"

    primary: ValueGetter
    joiner: Joiner
    left_join: bool
    value_serde: object = None
    with_key: bool = False
    registration_topic: str = ""

    def build(self, node: NodeContext, forward: Process) -> Process:
        read, drop, left_join = self.primary.build(node), node.drop, self.left_join
        value_topic = pseudo_topic(node.task.application_id, self.registration_topic, VALUE_HASH)
        value_to_bytes = node.task.value_serde(self.value_serde, value_topic).serialize
        joiner = joiner_of_side(self.joiner, with_key=self.with_key)

        def join_response(key: object, value: SubscriptionResponse, timestamp: int, headers: Headers) -> None:
            digest, foreign_value = value[0], value[1]
            row = read(key)
            present = None if row is None else row[0]
            if digest != (None if row is None else hash128(value_to_bytes(present))):
                drop("stale foreign-key response")
                return
            joined = None
            if foreign_value is not None or (left_join and row is not None):
                joined = joiner(key, present, foreign_value)
            forward(key, joined, timestamp, headers)

        return kernel(node, join_response)
