"""Left side of a foreign-key join: subscribe to a foreign key. Kafka Streams' `SubscriptionSendProcessorSupplier`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kstreams_repl.engine.operators.kernel import kernel
from kstreams_repl.engine.operators.operator import Change, NodeContext, Operator, Process
from kstreams_repl.engine.operators.user_functions import with_key_of
from kstreams_repl.engine.serdes.foreign_key import (
    DELETE_KEY_AND_PROPAGATE,
    DELETE_KEY_NO_PROPAGATE,
    FOREIGN_KEY,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,
    VALUE_HASH,
    Subscription,
    hash128,
    pseudo_topic,
)
from kstreams_repl.system.types import Headers, ValueMapper


@dataclass(slots=True)
class SubscriptionSend(Operator):
    """For a change of the left table, send subscription instructions, keyed by foreign key, to the registration topic.

    Forwards (foreign key, subscription wrapper with hash of the serialized left value, instruction, primary key, primary partition).
    For Kafka Streams' instruction table, see the reference, section 2.5 rule 24, and KIP-962 for None foreign keys.

    Attributes:
        extractor: (value) -> foreign key, or (key, value) -> foreign key when `with_key`.
        left_join: left (not inner) join.
        value_serde: serializes the left value for its hash; None = the application's default value serde.
        key_serde: serializes the primary key; None = the application's default key serde.
        foreign_key_serde: serializes foreign keys for comparison; None = the application's default key serde.
        with_key: the extractor also takes the key.
        versioned: the left table is versioned; changes that are not the latest are dropped and counted.
        registration_topic: where subscriptions are sent, without the application id.
    """

    role = "join"

    extractor: ValueMapper
    left_join: bool
    value_serde: object = None
    key_serde: object = None
    foreign_key_serde: object = None
    with_key: bool = False
    versioned: bool = False
    registration_topic: str = ""

    def build(self, node: NodeContext, forward: Process) -> Process:
        task, record, drop, versioned = node.task, node.record, node.drop, self.versioned
        value_topic, foreign_key_topic = (
            pseudo_topic(task.application_id, self.registration_topic, part) for part in (VALUE_HASH, FOREIGN_KEY)
        )
        value_to_bytes = task.value_serde(self.value_serde, value_topic).serialize
        key_to_bytes = task.key_serde(self.foreign_key_serde, foreign_key_topic).serialize
        extract = with_key_of(self.extractor, self.with_key)
        instruct = _left_instructions if self.left_join else _inner_instructions

        def changed(old_key: object, new_key: object) -> bool:
            return bool(key_to_bytes(old_key) != key_to_bytes(new_key))

        def send_subscriptions(key: object, value: Change, timestamp: int, headers: Headers) -> None:
            new, old, is_latest = value
            if versioned and not is_latest:
                drop("out of order in a versioned table")
                return
            if new is None and old is None:
                return
            old_key = None if old is None else extract(key, old)
            new_key = None if new is None else extract(key, new)
            if new is not None and new_key is None and instruct is _inner_instructions:
                drop("null foreign key")
            digest = None
            hashed = new is None
            for foreign_key, instruction in instruct(new, old_key, new_key, changed):
                if not hashed:
                    digest, hashed = hash128(value_to_bytes(new)), True
                forward(foreign_key, Subscription(digest, instruction, key, record.partition), timestamp, headers)

        return kernel(node, send_subscriptions)


Instructions = tuple[tuple[object, int], ...]


def _left_instructions(new: object, old_key: object, new_key: object, changed: Callable[[object, object], bool]) -> Instructions:
    """Return instructions that request a response for every change; a deletion subscribes to no key, only to get its response."""
    subscribe = (new_key, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
    if old_key is not None and changed(old_key, new_key):
        return (old_key, DELETE_KEY_NO_PROPAGATE), subscribe
    return (subscribe,)


def _inner_instructions(new: object, old_key: object, new_key: object, changed: Callable[[object, object], bool]) -> Instructions:
    """Return instructions that request a null response only for rows that may have been joined before: the null deletes the result
    when the new key has no row."""
    if new_key is None:
        return () if old_key is None else ((old_key, DELETE_KEY_AND_PROPAGATE),)
    if old_key is None or not changed(old_key, new_key):
        return ((new_key, PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE),)
    return (old_key, DELETE_KEY_NO_PROPAGATE), (new_key, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
