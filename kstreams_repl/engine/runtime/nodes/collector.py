"""The output of a task: the interface between the sans-IO engine and a producer.

Two implementations: the instance's record collector (a Kafka producer) and the test driver's (lists). A sender is created once per
topic at build time, so that the call per record needs no lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple, Protocol

from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext, Response
from kstreams_repl.system.types import Headers

Send = Callable[[bytes | None, bytes | None, int, Headers, int | None], None]
"""(key, value, timestamp, headers, partition): partition None = murmur2 of the key."""


SendMany = Callable[
    [Sequence[bytes | None], Sequence[bytes | None], Sequence[int], Sequence[Headers] | None, int | Sequence[int] | None], None
]
"""(keys, values, timestamps, headers, partitions): equivalent to one `Send` after the other. Headers are None when no record has any;
partitions are one for all, one for each, or None."""


class Direct(NamedTuple):
    """A client's own call, for generated code that calls it without a wrapper.

    Attributes:
        produce: (topic, value, key, partition or -1, None, None, timestamp[, headers]).
        refused: (error, key, value, timestamp, headers, partition or -1): call it when `produce` raised.
        earliest: the timestamp to pass instead of 0.
        copies: `produce` copies key and value.
    """

    produce: Callable[..., None]
    refused: Callable[[Exception, bytes | None, bytes | None, int, Headers, int], None]
    earliest: int = 0
    copies: bool = False


class Site(Protocol):
    """The node that a sender sends for; the collector calls it only when the broker rejects one of the node's records."""

    def context(self) -> ErrorContext:
        """Return the context of the current source record, and the node."""

    def decide(self, context: ErrorContext, error: Exception) -> Response:
        """Return the response of the production exception handler; RETRY only for a retriable error."""

    def give_up(self, context: ErrorContext, error: Exception) -> None:
        """Count the record as dropped and write its source record to the dead-letter topic, if there is one."""


class RowSink(Protocol):
    """The rows that one sink of one task writes to a table; part of the task's commits."""

    append: Callable[[object, object, int], None]
    """(key, value, timestamp): add one record."""

    def recover(self, head: int) -> None:
        """Continue from the head that was committed last; 0 if none was."""

    def convert(self) -> None:
        """Handle collected records that do not fit the table; this may send dead letters."""

    def stage(self, offsets: Mapping[str, int]) -> int | None:
        """Make the rows since the last commit durable, not visible; return the head to commit, None without rows."""

    def committed(self) -> None:
        """The commit with the staged rows succeeded."""

    @property
    def behind(self) -> int:
        """Number of commits, with the staged one, whose rows are not in the table yet."""


class RecordCollector(Protocol):
    """Creates senders by topic.

    Optional methods: `senders(topic)` returns `sender(topic)` and a `SendMany` that keeps the order with it (see `senders_of`);
    `partitions_of(topic, keys)` partitions a column (see `placing`); `direct(topic, site) -> Direct | None` returns the client's own
    call if nothing else is needed; `rows(node, table, partition, misfit, context) -> RowSink` for sinks that write tables.
    """

    def sender(self, topic: str, site: Site | None = None) -> Send:
        """Return the call that sends records to one topic, given by its name on the broker. Raises UnknownTopicError if it cannot exist.

        Without a site (changelogs, dead letters), a record that the broker rejects is an error whatever the handler returns.
        """

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of the topic."""

    def partition_of(self, topic: str, key: bytes) -> int:
        """Return the partition that Kafka's default partitioner chooses for this key."""


def senders_of(collector: RecordCollector, topic: str) -> tuple[Send, SendMany]:
    """Return the functions that send one record and columns of records to a topic."""
    make = getattr(collector, "senders", None)
    if make is not None:
        return make(topic)  # type: ignore[no-any-return]
    send = collector.sender(topic)
    return send, one_by_one(send)


def placing(collector: RecordCollector, topic: str) -> Callable[[Sequence[bytes]], Sequence[int]]:
    """Return a function from a column of keys to their partitions: the collector's own `partitions_of`, or one that goes key by key."""
    at_once = getattr(collector, "partitions_of", None)
    if at_once is not None:
        return partial(at_once, topic)
    return lambda keys: [collector.partition_of(topic, key) for key in keys]


def one_by_one(send: Send) -> SendMany:
    """Return a `SendMany` that sends record by record."""

    def send_many(
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
        partitions: int | Sequence[int] | None,
    ) -> None:
        own = ([] for _ in keys) if headers is None else headers
        places = repeat(partitions, len(keys)) if partitions is None or isinstance(partitions, int) else partitions
        for key, value, timestamp, header, partition in zip(keys, values, timestamps, own, places, strict=True):
            send(key, value, timestamp, header, partition)

    return send_many
