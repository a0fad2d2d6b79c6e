"""Where a task's output goes: the seam between the sans-IO engine and a producer.

Two implementations: the instance's record collector (a Kafka producer) and the test driver's (lists). A sender is fetched once per
topic at build time, so that the call per record has no look-up in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kstreams_repl.types import Headers

Send = Callable[[bytes | None, bytes | None, int, Headers, int | None], None]
"""(key, value, timestamp, headers, partition): partition None = by murmur2 of the key."""


class RecordCollector(Protocol):
    def sender(self, topic: str) -> Send:
        """The call that sends records to one topic (its real name). UnknownTopicError when the topic cannot exist."""

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""

    def partition_of(self, topic: str, key: bytes) -> int:
        """The partition Kafka's default partitioner gives this key."""
