"""Consumer groups and their committed offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl.host.kafka.admin_calls import AdminCalls, T
from kstreams_repl.host.kafka.clients import Isolation, make_consumer
from kstreams_repl.host.kafka.exact_metadata import fetch_offsets
from kstreams_repl.host.kafka.failures import error_of, translate
from kstreams_repl.system.errors import BrokerUnavailableError
from kstreams_repl.system.types import TopicPartition


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset in one partition, and its metadata."""

    offset: int
    metadata: str = ""


def committed_by(
    consumer: Consumer, partitions: Sequence[TopicPartition], *, seconds: float, bootstrap_servers: str | None = None
) -> dict[TopicPartition, CommittedOffset]:
    """Return what the consumer's own group has committed, without partitions that have no commit. Under read_committed it waits for
    open transactions.

    Args:
        seconds: how long to wait in total.

    Raises:
        BrokerUnavailableError: no answer in time, or the offsets stay part of an open transaction.
    """
    if not partitions:
        return {}
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = fetch_offsets(consumer, partitions, seconds)
            break
        except KafkaException as error:
            inside = error_of(error)
            if inside is not None and inside.code() in _HELD:
                raise BrokerUnavailableError(
                    f"reading committed offsets: no broker answered at {bootstrap_servers} within {seconds:g} s, or a transaction"
                    " with these offsets is open and nobody ends it",
                    hint="check that the broker is running; if it is, kafka-transactions.sh find-hanging names the transaction:"
                    " see versions of the broker in docs/tasks/cluster.md",
                    bootstrap_servers=bootstrap_servers,
                ) from error
            if inside is None or inside.code() not in _NOT_YET or time.monotonic() > deadline:
                raise translate(error, "reading committed offsets", bootstrap_servers=bootstrap_servers) from error
            time.sleep(0.05)
    offsets = {}
    for result in answer:
        partition = result.partition
        if result.error is not None:
            raise translate(result.error, "reading committed offsets", topic=partition.topic, bootstrap_servers=bootstrap_servers)
        if result.offset >= 0:
            # Metadata written up to release 0.1 ends in a zero byte.
            offsets[partition] = CommittedOffset(result.offset, result.metadata.rstrip(b"\0").decode("utf-8", "replace"))
    return offsets


_NOT_YET = (
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)

_HAS_MEMBERS = (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID)
_LEAVES_SECONDS = 12.0
"""Until a member that was killed has left: its ``session.timeout.ms`` of 10 s, and what the broker needs."""
_HELD = (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE)
"""What librdkafka returns after it has itself asked again and again for offsets of an open transaction."""


class GroupAdmin(AdminCalls):
    """The calls of `Admin` on groups."""

    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition] | None = None, *, stable: bool = True
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return what a group has committed, without partitions that have no commit.

        Args:
            group: name of the group; that of an application is its application.id.
            partitions: partitions to read; None: those of all topics.
            stable: whether to wait for offsets that are part of an open transaction (``require_stable``), so that after fencing the
                result is what was really committed. A running application always has an open transaction: False returns the last
                committed offsets without waiting.

        Raises:
            BrokerUnavailableError: no answer in time, or the offsets stay part of an open transaction.

        Example:
            >>> from kstreams_repl.types import TopicPartition
            >>> session.admin.commit_offsets("reports", {TopicPartition("words", 0): 1})
            >>> session.admin.committed_offsets("reports")[TopicPartition("words", 0)].offset
            1
        """
        if partitions is None:
            partitions = [TopicPartition(name, number) for name, count in self.topics().items() for number in range(count)]
        # With a consumer: the client library's admin call crashes the process when the group's coordinator is not ready
        # (its retry needs a consumer's group handle, which an admin client does not have).
        isolation: Isolation = "read_committed" if stable else "read_uncommitted"
        consumer = make_consumer(self.settings, group_id=group, isolation=isolation, events=self._events)
        try:
            return committed_by(
                consumer, partitions, seconds=self._seconds, bootstrap_servers=self.settings.bootstrap_servers
            )
        finally:
            consumer.close()

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without members: the start offsets of an application that has never run.

        Args:
            group: name of the group.
            offsets: the offset of the next record to read, by partition.

        Raises:
            BrokerUnavailableError, KStreamsError: the broker rejected them, for example because the group has a member.

        Example:
            >>> from kstreams_repl.types import TopicPartition
            >>> session.admin.commit_offsets("reports", {TopicPartition("words", 0): 1})
        """
        if not offsets:
            return
        consumer = make_consumer(self.settings, group_id=group, isolation="read_committed", events=self._events)
        try:
            wanted = [ClientTopicPartition(at.topic, at.partition, offset) for at, offset in offsets.items()]
            committed = partial(consumer.commit, offsets=wanted, asynchronous=False)
            done = self._call(f"committing offsets of {group}", partial(_once_empty, committed))
            for partition in done or ():
                if partition.error is not None:
                    raise self._translated(partition.error, f"committing offsets of {group}", topic=partition.topic)
        finally:
            consumer.close()

    def members(self, group: str) -> tuple[tuple[str, str], ...]:
        """Return client id and host of each member of a group; none of one that does not exist.

        Raises:
            BrokerUnavailableError: no answer in time.

        Example:
            >>> session.admin.members("no-such-group")
            ()
        """
        asked = self._client.describe_consumer_groups([group], request_timeout=self._seconds)[group]
        try:
            described = self._in_time(asked, f"describing the group {group!r}")
        except KafkaException as error:
            inside = error_of(error)
            if inside is not None and inside.code() == KafkaError.GROUP_ID_NOT_FOUND:
                return ()
            raise self._translated(error, f"describing the group {group!r}") from error
        return tuple((member.client_id, member.host.lstrip("/")) for member in described.members)

    def groups(self) -> tuple[str, ...]:
        """Return the names of all consumer groups.

        Raises:
            BrokerUnavailableError: a broker did not list its groups because it is down or has just started; the list would be
                incomplete.

        Example:
            >>> from kstreams_repl.types import TopicPartition
            >>> session.admin.commit_offsets("reports", {TopicPartition("words", 0): 1})
            >>> "reports" in session.admin.groups()
            True
        """
        deadline = time.monotonic() + self._seconds
        while True:
            listed = self._result(self._client.list_consumer_groups(request_timeout=self._seconds), "listing groups")
            if not listed.errors:
                break
            inside = error_of(listed.errors[0])
            if inside is None or inside.code() not in _NOT_YET or time.monotonic() > deadline:
                raise self._translated(listed.errors[0], "listing groups")
            time.sleep(0.05)
        return tuple(sorted(group.group_id for group in listed.valid))

    def delete_groups(self, names: Iterable[str]) -> tuple[str, ...]:
        """Delete groups and their committed offsets.

        Returns:
            The names of those that existed.

        Raises:
            KStreamsError: a group has members.
            BrokerUnavailableError: no answer in time.

        Example:
            >>> from kstreams_repl.types import TopicPartition
            >>> session.admin.commit_offsets("old-reports", {TopicPartition("words", 0): 1})
            >>> session.admin.delete_groups(["old-reports", "no-such-group"])
            ('old-reports',)
        """
        def delete(name: str) -> None:
            future = self._client.delete_consumer_groups([name], request_timeout=self._seconds)[name]
            self._in_time(future, f"deleting the group {name!r}")

        gone = []
        for name in dict.fromkeys(names):
            try:
                _once_empty(partial(delete, name))
                gone.append(name)
            except KafkaException as error:
                inside = error_of(error)
                if inside is None or inside.code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise self._translated(error, f"deleting the group {name!r}") from error
        return tuple(gone)


def _once_empty(call: Callable[[], T]) -> T:
    """Make a call that needs a group without members, as soon as that of a driver that was killed has left."""
    deadline = time.monotonic() + _LEAVES_SECONDS
    while True:
        try:
            return call()
        except KafkaException as error:
            inside = error_of(error)
            if inside is None or inside.code() not in _HAS_MEMBERS or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
