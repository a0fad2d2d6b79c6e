"""The driver's membership in its application's consumer group, so that consoles show who reads with which lag, and other drivers that the
application is driven.

The member is assigned every input partition and reads none: instances read by manual assignment, and commit offsets in transactions
without a member id, which a broker accepts also while the group has members (KIP-447). A driver that is killed or hangs leaves the group
after ``session.timeout.ms``. Membership decides nothing about the data: the control id and the generation fence an earlier driver.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_consumer

_POLL_SECONDS = 0.1
_FOREVER_MS = 86_400_000
_SUFFIX = "-driver"


class DriverMember:
    """A member of the group, from its creation until `close`.

    Args:
        topics: the application's input topics, repartition topics included.
    """

    def __init__(self, settings: ClientSettings, application_id: str, topics: Sequence[str]) -> None:
        self.topics = topics
        self._over = threading.Event()
        self._consumer = make_consumer(
            settings, group_id=application_id, client_id=application_id + _SUFFIX, max_poll_interval_ms=_FOREVER_MS
        )
        self._consumer.subscribe(list(topics), on_assign=_hold)
        self._thread = threading.Thread(target=self._serve, name=f"member-{application_id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the group."""
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _serve(self) -> None:
        while not self._over.is_set():
            self._consumer.poll(_POLL_SECONDS)  # answers rebalances; errors are for the instances to report


def _hold(consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
    """Own the partitions without reading them."""
    try:
        consumer.assign(partitions)
        consumer.pause(partitions)
    except KafkaException:  # revoked meanwhile
        return


def driving_hosts(admin: Admin, application_id: str) -> tuple[str, ...]:
    """Return the hosts of the drivers that are members of the application's group. One that was killed is still there for
    ``session.timeout.ms``."""
    return tuple(host for client, host in admin.members(application_id) if client == application_id + _SUFFIX)
