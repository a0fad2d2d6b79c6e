"""The Kafka clients of one instance: an admin client, a consumer, and one or two producers.

`fence` is the producer that holds the instance's transactional id. Under exactly once it sends everything. Under at least once a
plain producer sends, and the fence commits offsets only, because the broker then rejects a zombie that wakes up before its commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kstreams_repl.engine.commit.protocol import OffsetAndMetadata
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.transactional import TransactionalProducer
from kstreams_repl.system.errors import BrokerUnavailableError
from kstreams_repl.system.types import TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.host.kafka.clients import Consumer, Producer

_FLUSH_SECONDS = 30.0


class InstanceClients:
    """The clients of one instance. Not thread-safe.

    Attributes:
        producer: sends records; under exactly once the client of `fence`.
        transactions: the producer that sends records in transactions; None under at least once.
        group: the consumer group's metadata, for transactional offset commits.
    """

    def __init__(
        self, plan: ApplicationPlan, *, admin: Admin, consumer: Consumer, producer: Producer, fence: TransactionalProducer
    ) -> None:
        self._plan = plan
        self.admin = admin
        self.consumer = consumer
        self.producer = producer
        self.fence = fence
        self.transactions = fence if plan.config.exactly_once else None
        self.group = consumer.consumer_group_metadata()
        self._waited = 0.0

    @property
    def waited(self) -> float:
        """Seconds spent waiting for the broker in commits."""
        return self._waited + self.fence.waited

    def begin(self) -> None:
        """Open a transaction under exactly once; nothing reaches the broker before the first record."""
        if self.transactions is not None:
            self.transactions.begin()

    def flush(self, check: Callable[[], None]) -> None:
        """Wait until all records of the plain producer are acknowledged.

        Args:
            check: called repeatedly; raises the first delivery error.

        Raises:
            BrokerUnavailableError: they were not acknowledged in time.
        """
        began = time.monotonic()
        while self.producer.flush(0.5):
            check()
            if time.monotonic() > began + _FLUSH_SECONDS:
                raise BrokerUnavailableError(
                    f"records were not acknowledged within {_FLUSH_SECONDS:.0f} s", bootstrap_servers=self._plan.settings.bootstrap_servers
                )
        self._waited += time.monotonic() - began

    def commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets in a transaction of their own (at least once)."""
        self.fence.begin()
        self.fence.send_offsets(offsets, self.group)
        self.fence.commit()

    def changelog_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the read_uncommitted end offsets."""
        wanted = list(partitions)
        return self.admin.end_offsets(wanted, isolation="read_uncommitted") if wanted else {}

    def closers(self) -> list[Callable[[], object]]:
        """Return the calls that close the clients, to be made in this order even if one of them raises."""
        plain = [] if self.transactions is not None else [self._close_plain_producer]
        return [self.consumer.close, self.fence.close, *plain]

    def _close_plain_producer(self) -> None:
        self.producer.purge()
        self.producer.close(0)
