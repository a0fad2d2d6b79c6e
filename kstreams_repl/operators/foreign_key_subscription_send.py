"""Left side of a foreign-key join: subscribe to a foreign key. Kafka Streams' `SubscriptionSendProcessorSupplier`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class SubscriptionSend(Operator):
    """For a change of the left table send subscription instructions, keyed by foreign key, towards the registration topic.

    Forwards (foreign key, subscription wrapper of hash of the serialized left value, instruction, primary key, primary
    partition).
    Kafka Streams' instruction table: see the reference, section 2.5 rule 24 and KIP-962 for None foreign keys.

    Attributes:
        extractor: (value) -> foreign key, or (key, value) -> foreign key when `with_key`.
        left_join: left (not inner) join.
        value_serde: serializes the left value for its hash; None = the application's default value serde.
        key_serde: serializes the primary key; None = the application's default key serde.
        foreign_key_serde: serializes foreign keys for comparison; None = the application's default key serde.
        with_key: the extractor also takes the key.
        versioned: the left table is versioned: changes that are not the latest are left out.
        foreign_key_topic: pseudo topic name the foreign key is serialized for (without the application id).
        value_topic: pseudo topic name the left value is serialized for (without the application id).
    """

    extractor: Callable[..., Any]
    left_join: bool
    value_serde: Any = None
    key_serde: Any = None
    foreign_key_serde: Any = None
    with_key: bool = False
    versioned: bool = False
    foreign_key_topic: str = ""
    value_topic: str = ""
