"""Where a task's output goes: the seam between the sans-IO engine and a producer.

Two implementations: the instance's record collector (a Kafka producer) and the test driver's (lists). A sender is fetched once per
topic at build time, so that the call per record has no look-up in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple, Protocol

from kstreams_repl.runtime.handlers import ErrorContext, Response
from kstreams_repl.types import Headers

Send = Callable[[bytes | None, bytes | None, int, Headers, int | None], None]
"""(key, value, timestamp, headers, partition): partition None = by murmur2 of the key."""


SendMany = Callable[
    [Sequence[bytes | None], Sequence[bytes | None], Sequence[int], Sequence[Headers] | None, int | Sequence[int] | None], None
]
"""(keys, values, timestamps, headers or None when no record has any, one partition for all or one each or None): as one `Send` after
the other."""


class Direct(NamedTuple):
    """A client's own call, for a loop that makes it itself.

    Attributes:
        produce: (topic, value, key, partition or -1, None, None, timestamp[, headers]); the timestamp is not 0.
        refused: (error, key, value, timestamp, headers): what to do when `produce` raised.
    """

    produce: Callable[..., None]
    refused: Callable[[Exception, bytes | None, bytes | None, int, Headers], None]


class Site(Protocol):
    """The node a sender sends for: what a collector asks when the broker refuses one of its records. Never asked otherwise."""

    def context(self) -> ErrorContext:
        """The source record at work now, and the node."""

    def decide(self, context: ErrorContext, error: Exception) -> Response:
        """What the production exception handler says; RETRY only for an error that may pass."""

    def give_up(self, context: ErrorContext, error: Exception) -> None:
        """Count the record as dropped and write its source record to the dead-letter topic, if there is one."""


class RecordCollector(Protocol):
    """A collector that can take columns at once has `senders(topic)`, which gives `sender(topic)` and a `SendMany` that keeps its
    order with it (`senders_of`), and `partitions_of(topic, keys)` (`placing`). One whose records need nothing but the client's call has
    `direct(topic, site) -> Direct | None`."""

    def sender(self, topic: str, site: Site | None = None) -> Send:
        """The call that sends records to one topic (its real name). UnknownTopicError when the topic cannot exist.

        Without a site a record that the broker refuses is an error whatever the handler says: changelogs and dead letters.
        """

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""

    def partition_of(self, topic: str, key: bytes) -> int:
        """The partition Kafka's default partitioner gives this key."""


def senders_of(collector: RecordCollector, topic: str) -> tuple[Send, SendMany]:
    """How to send to a topic, one record or many."""
    make = getattr(collector, "senders", None)
    if make is not None:
        return make(topic)  # type: ignore[no-any-return]
    send = collector.sender(topic)
    return send, one_by_one(send)


def placing(collector: RecordCollector, topic: str) -> Callable[[Sequence[bytes]], Sequence[int]]:
    """The partitions of a column of keys in one topic: the collector's own `partitions_of`, else key by key."""
    at_once = getattr(collector, "partitions_of", None)
    if at_once is not None:
        return partial(at_once, topic)
    return lambda keys: [collector.partition_of(topic, key) for key in keys]


def one_by_one(send: Send) -> SendMany:
    """Columns as records."""

    def send_many(
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
        partitions: int | Sequence[int] | None,
    ) -> None:
        own = ([] for _ in keys) if headers is None else headers
        places = repeat(partitions, len(keys)) if partitions is None or isinstance(partitions, int) else partitions
        for key, value, timestamp, header, place in zip(keys, values, timestamps, own, places, strict=True):
            send(key, value, timestamp, header, place)

    return send_many
