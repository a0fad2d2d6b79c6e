"""The durable results of another application, as they come: those of the application that this one is a fork of.

Actors: the thread that asks for the leader's committed offsets (`host.instance.polling.followed_input`) and reads what is in the logs as of
then, before it passes these offsets on; the tasks, which take what has arrived. A record reaches a task only when the leader has committed
it, so its answer has arrived by then, unless the leader had none, or has deleted it since.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError

from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_consumer
from kstreams_repl.host.kafka.group_offsets import assign, positions
from kstreams_repl.host.kafka.reading import READ_GROUP
from kstreams_repl.host.kafka.result_log import BrokerResultLog
from kstreams_repl.system.types import TopicPartition

_BATCH = 500
_WAIT_SECONDS = 0.1
_MOST_SECONDS = 10.0


class LeaderResults:
    """Reads the logs of an application.

    Args:
        logs: names of the logs, with the tasks' numbers; those that there are not are left out.
    """

    def __init__(self, settings: ClientSettings, admin: Admin, leader: str, own: str, logs: Iterable[tuple[str, int]]) -> None:
        self._settings, self._admin = settings, admin
        there = admin.topics()
        wanted = {
            TopicPartition(changelog_topic(leader, log), n): TopicPartition(changelog_topic(own, log), n) for log, n in logs
        }
        self._own = {theirs: own for theirs, own in wanted.items() if theirs.topic in there}
        self._arrived: dict[TopicPartition, deque[tuple[bytes, bytes]]] = {at: deque() for at in self._own.values()}
        self._consumer: Consumer | None = None
        self._next: dict[TopicPartition, int] = {}
        self._reading = threading.Lock()

    def read(self) -> None:
        """Read everything that is there now.

        Raises:
            KStreamsError: the broker does not answer.
        """
        if not self._own:
            return
        with self._reading:
            ends, deadline = self._admin.end_offsets(self._own, isolation="read_uncommitted"), time.monotonic() + _MOST_SECONDS
            consumer = self._consumer
            if consumer is None:
                consumer = self._consumer = self._begin()
            while any(self._next[at] < end for at, end in ends.items()) and time.monotonic() < deadline:
                for message in consumer.consume(_BATCH, _WAIT_SECONDS):
                    at, error = TopicPartition(message.topic(), message.partition()), message.error()
                    key, value = message.key(), message.value()
                    if error is None and key is not None and value is not None:
                        self._arrived[self._own[at]].append((key, value))
                    elif (
                        error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET
                    ):  # the leader has deleted what was next
                        self._next |= self._admin.beginning_offsets([at])
                        assign(consumer, self._next)
                self._next |= {at: max(offset, self._next[at]) for at, offset in positions(consumer, self._own).items()}

    def _begin(self) -> Consumer:
        consumer = make_consumer(self._settings, group_id=READ_GROUP, isolation="read_uncommitted")
        self._next = self._admin.beginning_offsets(self._own)
        assign(consumer, self._next)
        return consumer

    def arrived(self, partition: TopicPartition) -> list[tuple[bytes, bytes]]:
        """Return the rows for a partition of the own log that were not returned before."""
        rows, waiting = [], self._arrived.get(partition)
        while waiting:
            rows.append(waiting.popleft())
        return rows

    def close(self) -> None:
        """Close the client."""
        with self._reading:
            if self._consumer is not None:
                self._consumer.close()


class FollowedResultLog(BrokerResultLog):
    """`engine.runtime.calls.call_results.FollowedLog` on the broker."""

    def __init__(self, settings: ClientSettings, admin: Admin, name: str, leader: LeaderResults) -> None:
        super().__init__(settings, admin, name)
        self._leader = leader

    def read(self, partition: TopicPartition) -> tuple[list[tuple[bytes, bytes, int]], int]:
        """Return the own rows of a partition, and its end; the leader's rows up to now have arrived."""
        self._leader.read()
        return super().read(partition)

    def arrived(self, partition: TopicPartition) -> list[tuple[bytes, bytes]]:
        """Return the leader's rows for a partition since the last call."""
        return self._leader.arrived(partition)
