"""`Admin`: topics, offsets and groups of one cluster as plain values.

Every call returns its result or raises a typed error within its timeout. A topic that was created is visible to clients, with leaders,
when the call returns. Offsets exist in both isolation levels: the *read_uncommitted* end is the end of the log, the *read_committed* end
is the first open transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kstreams_repl.host.kafka.clients import Isolation
from kstreams_repl.host.kafka.failures import error_of, unknown_topic
from kstreams_repl.host.kafka.group_admin import GroupAdmin
from kstreams_repl.system.errors import AuthorizationError, TopicExistsError
from kstreams_repl.system.types import TopicPartition

_ISOLATION = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the broker describes it. ``id`` changes when a topic is deleted and recreated under the same name."""

    name: str
    id: str
    partitions: int
    internal: bool


@dataclass(frozen=True, slots=True)
class NewTopicSpec:
    """A topic to create; replication None uses the broker's default."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    replication: int | None = None


class Admin(GroupAdmin):
    """Manages topics, offsets and groups. Thread-safe; the connection is closed when the object is garbage-collected.

    Args:
        seconds: timeout of one call, which then raises `BrokerUnavailableError`.
    """

    # -- topics

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic.

        Raises:
            UnknownTopicError: the topic does not exist; the hint is the most similar name.
            BrokerUnavailableError: no answer in time.

        Example:
            >>> session.admin.partitions("words")
            2
        """
        counts = self.topics(internal=True)
        if topic not in counts:
            raise unknown_topic(topic, (name for name in counts if not name.startswith("__")))
        return counts[topic]

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Return the descriptions of those topics that exist, by name.

        Args:
            names: topics; those that do not exist are left out of the result.

        Raises:
            BrokerUnavailableError: no answer in time.

        Example:
            >>> session.admin.describe_topics(["words", "no-such-topic"])["words"].partitions
            2
        """
        topics = list(dict.fromkeys(names))
        if not topics:
            return {}
        futures = self._client.describe_topics(TopicCollection(topics), request_timeout=self._seconds)
        descriptions = {}
        for name, future in futures.items():
            described = self._result(future, "describing a topic", topic=name, missing=None)
            if described is not None:
                descriptions[name] = TopicDescription(name, str(described.topic_id), len(described.partitions), described.is_internal)
        return descriptions

    def missing_rights(self, *, reads: Collection[str], writes: Collection[str], group: str) -> tuple[str, ...]:
        """Return which rights (ACLs) of an application the user lacks, each as text: ``READ on topic words``.

        Args:
            reads: existing topics that it reads.
            writes: existing topics that it writes.
            group: its consumer group, the application.id.

        Returns:
            Nothing if the cluster has no ACLs. The rights on transactional ids cannot be asked for.

        Raises:
            BrokerUnavailableError: no answer in time.

        Example:
            >>> session.admin.missing_rights(reads=["words"], writes=[], group="reports")
            ()
        """
        needed = {name: {AclOperation.READ} for name in reads}
        for name in writes:
            needed.setdefault(name, set()).add(AclOperation.WRITE)
        lacking = []
        options = {"include_authorized_operations": True, "request_timeout": self._seconds}
        for name, future in self._client.describe_topics(TopicCollection(list(needed)), **options).items() if needed else ():
            try:
                allowed = self._result(future, "describing a topic", topic=name).authorized_operations
            except AuthorizationError:
                allowed = ()
            if allowed is not None:
                lacking += [f"{right.name} on topic {name}" for right in sorted(needed[name] - set(allowed), key=lambda right: right.name)]
        for name, future in self._client.describe_consumer_groups([group], **options).items():
            try:
                allowed = self._in_time(future, "describing a consumer group").authorized_operations
            except KafkaException as error:  # a group that does not exist yet has no description; a hidden one is refused
                inside = error_of(error)
                allowed = () if inside is not None and inside.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else None
            if allowed is not None and AclOperation.READ not in allowed:
                lacking.append(f"READ on group {name}")
        return tuple(lacking)

    def create_topics(self, specs: Iterable[NewTopicSpec], *, exist_ok: bool = False) -> tuple[str, ...]:
        """Create topics and wait until each is visible with leaders.

        Args:
            specs: name, number of partitions, settings and replication of each topic.
            exist_ok: whether topics that exist already are left as they are; otherwise they raise an error.

        Returns:
            The names of the created topics.

        Raises:
            TopicExistsError: a topic exists already.
            KStreamsError: the broker rejected its settings.
            BrokerUnavailableError: no answer in time.

        Example:
            >>> from kstreams_repl.host.kafka.admin import NewTopicSpec
            >>> session.admin.create_topics([NewTopicSpec("notes", 1), NewTopicSpec("drafts", 1)])
            ('notes', 'drafts')
        """
        by_name = {spec.name: spec for spec in specs}
        if not by_name:
            return ()
        new = [
            NewTopic(spec.name, spec.partitions, replication_factor=spec.replication or -1, config=dict(spec.configs))
            for spec in by_name.values()
        ]
        created = []
        for name, future in self._client.create_topics(new, request_timeout=self._seconds).items():
            try:
                self._in_time(future, f"creating the topic {name!r}")
                created.append(name)
            except KafkaException as error:
                inside = error_of(error)
                exists = inside is not None and inside.code() == KafkaError.TOPIC_ALREADY_EXISTS
                if exists and exist_ok:
                    continue
                if exists:
                    raise TopicExistsError(
                        f"topic {name!r} exists already", hint="delete it first, or pass exist_ok=True", topic=name
                    ) from error
                raise self._translated(error, f"creating the topic {name!r}", topic=name) from error
        partitions = {spec.name: spec.partitions if spec.name in created else 1 for spec in by_name.values()}
        self._await("the new topics to become visible", lambda: self._are_visible(partitions))
        return tuple(created)

    def create_topic(
        self, name: str, partitions: int, *, configs: Mapping[str, str] | None = None, exist_ok: bool = False
    ) -> bool:
        """Create one topic and wait until it is visible with leaders.

        Args:
            name: name of the topic.
            partitions: number of partitions.
            configs: settings of the topic; None: the broker's defaults.
            exist_ok: whether a topic that exists already is left as it is; otherwise it raises an error.

        Returns:
            Whether it was created: False if it exists already and `exist_ok` is given.

        Raises:
            KStreamsError: the topic exists already, or the broker rejected its settings.
            BrokerUnavailableError: no answer in time.

        Example:
            >>> session.admin.create_topic("letters", 1, configs={"retention.ms": "-1"})
            True
        """
        return bool(self.create_topics([NewTopicSpec(name, partitions, configs or {})], exist_ok=exist_ok))

    def add_partitions(self, topic: str, total: int) -> None:
        """Increase a topic's number of partitions, and wait until the new ones are visible with leaders.

        Args:
            topic: name of the topic.
            total: number of partitions afterwards; more than it has now.

        Raises:
            KStreamsError: the topic has as many partitions already.
            UnknownTopicError: the topic does not exist.
            BrokerUnavailableError: no answer in time.

        Example:
            >>> _ = session.admin.create_topic("growing", 1)
            >>> session.admin.add_partitions("growing", 2)
            >>> session.admin.partitions("growing")
            2
        """
        futures = self._client.create_partitions([NewPartitions(topic, total)], request_timeout=self._seconds)
        self._result(futures[topic], f"adding partitions to {topic!r}", topic=topic)
        self._await("the new partitions to become visible", lambda: self._are_visible({topic: total}))

    def delete_topics(self, names: Iterable[str]) -> tuple[str, ...]:
        """Delete the topics that exist, and wait until they are no longer listed.

        Returns:
            The names of the deleted topics.

        Raises:
            BrokerUnavailableError: no answer in time.

        Example:
            >>> _ = session.admin.create_topic("temporary", 1)
            >>> session.admin.delete_topics(["temporary", "no-such-topic"])
            ('temporary',)
        """
        topics = list(dict.fromkeys(names))
        if not topics:
            return ()
        gone = []
        for name, future in self._client.delete_topics(topics, request_timeout=self._seconds).items():
            if self._result(future, f"deleting the topic {name!r}", topic=name, missing=_ABSENT) is not _ABSENT:
                gone.append(name)
        self._await("the topics to be deleted", lambda: not set(gone) & set(self.topics(internal=True)))
        return tuple(gone)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the effective configuration of each topic that exists, by name.

        Args:
            names: topics; those that do not exist are left out of the result.

        Raises:
            BrokerUnavailableError: no answer in time.

        Example:
            >>> session.admin.topic_configs(["words"])["words"]["cleanup.policy"]
            'delete'
        """
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in dict.fromkeys(names)]
        if not resources:
            return {}
        configs = {}
        for resource, future in self._client.describe_configs(resources, request_timeout=self._seconds).items():
            entries = self._result(future, f"reading the configuration of {resource.name!r}", missing=None)
            if entries is not None:
                configs[resource.name] = {name: entry.value for name, entry in entries.items()}
        return configs

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set these configurations of a topic, leave the others unchanged, and wait until the broker reports the new values.

        Args:
            topic: name of the topic.
            configs: new values by name of the setting.

        Raises:
            UnknownTopicError: the topic does not exist.
            KStreamsError: the broker rejected a setting.
            BrokerUnavailableError: no answer in time.

        Example:
            >>> session.admin.alter_topic_configs("words", {"retention.ms": "-1"})
        """
        entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        futures = self._client.incremental_alter_configs([resource], request_timeout=self._seconds)
        for future in futures.values():
            self._result(future, f"configuring the topic {topic!r}", topic=topic)
        self._await("the new settings to become visible", lambda: self._are_set(topic, configs))

    # -- offsets

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, isolation: Isolation = "read_committed"
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition, including markers; see the module on the two isolation levels.

        Args:
            partitions: partitions of existing topics.
            isolation: "read_committed" ends at the first open transaction, "read_uncommitted" at the end of the log.

        Raises:
            UnknownTopicError: a topic does not exist.
            BrokerUnavailableError: no answer in time.

        Example:
            >>> from kstreams_repl.types import TopicPartition
            >>> session.admin.end_offsets([TopicPartition("words", 0)])[TopicPartition("words", 0)] > 0
            True
        """
        return self._list_offsets({partition: OffsetSpec.latest() for partition in partitions}, isolation)

    def ask_end_offsets(
        self, partitions: Iterable[TopicPartition], *, isolation: Isolation = "read_committed"
    ) -> Callable[[], dict[TopicPartition, int] | None]:
        """Ask for the ends without waiting: as `end_offsets`, for a caller that must not stand still while the broker is away.

        Returns:
            A function that returns the answer, or None while there is none. It raises KStreamsError if a leader is not known, or did
            not answer in time: ask again then.

        Example:
            >>> from kstreams_repl.types import TopicPartition
            >>> answer = session.admin.ask_end_offsets([TopicPartition("words", 0)])
            >>> answer() is None or answer()[TopicPartition("words", 0)] > 0
            True
        """
        specs = {ClientTopicPartition(partition.topic, partition.partition): OffsetSpec.latest() for partition in partitions}
        futures = self._client.list_offsets(specs, isolation_level=_ISOLATION[isolation], request_timeout=self._seconds) if specs else {}

        def answer() -> dict[TopicPartition, int] | None:
            if not all(future.done() for future in futures.values()):
                return None
            try:
                return {TopicPartition(of.topic, of.partition): future.result().offset for of, future in futures.items()}
            except KafkaException as error:
                inside = error_of(error)
                if inside is not None and inside.code() in _LEADERLESS:
                    self._reconnect()
                raise self._translated(error, "reading the ends of partitions") from error

        return answer

    def settled_end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of the log at the time of the call, once no transaction is open below it: everything committed before the
        call is then readable.

        A commit is acknowledged *before* its markers are in the topics, so `end_offsets` right after a commit may still return a
        smaller offset.

        Args:
            partitions: partitions of existing topics.

        Raises:
            BrokerUnavailableError: a transaction stayed open for longer than this client's timeout.

        Example:
            >>> from kstreams_repl.types import TopicPartition
            >>> ends = session.admin.settled_end_offsets([TopicPartition("words", 0), TopicPartition("words", 1)])
            >>> len(ends)
            2
        """
        ends = self.end_offsets(partitions, isolation="read_uncommitted")

        def settled() -> bool:
            stable = self.end_offsets(ends, isolation="read_committed")
            return all(stable[partition] >= end for partition, end in ends.items())

        self._await("an open transaction to end", settled)
        return ends

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that is still in the log of each partition.

        Args:
            partitions: partitions of existing topics.

        Raises:
            UnknownTopicError: a topic does not exist.
            BrokerUnavailableError: no answer in time.

        Example:
            >>> from kstreams_repl.types import TopicPartition
            >>> session.admin.beginning_offsets([TopicPartition("words", 0)])[TopicPartition("words", 0)]
            0
        """
        return self._list_offsets({partition: OffsetSpec.earliest() for partition in partitions}, "read_uncommitted")

    def offsets_for_time(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record whose timestamp is at or after the given one; None if there is none.

        For times before 1970 it is the first offset in the log: brokers give negative times a special meaning or refuse them.

        Args:
            times: milliseconds since 1970 by partition.

        Raises:
            UnknownTopicError: a topic does not exist.
            BrokerUnavailableError: no answer in time.

        Example:
            >>> from kstreams_repl.types import TopicPartition
            >>> session.admin.offsets_for_time({TopicPartition("words", 0): 0})[TopicPartition("words", 0)]
            0
        """
        specs = {partition: OffsetSpec.earliest() if at < 0 else OffsetSpec.for_timestamp(at) for partition, at in times.items()}
        found = self._list_offsets(specs, "read_uncommitted")
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records below the given offsets (used to purge repartition topics).

        Args:
            before: the first offset to keep, by partition.

        Raises:
            KStreamsError: an offset is after the end of its partition.
            BrokerUnavailableError: no answer in time.

        Example:
            >>> from kstreams_repl.types import TopicPartition
            >>> _ = session.admin.create_topic("purged", 1)
            >>> session.admin.delete_records({TopicPartition("purged", 0): 0})
        """
        requests = [ClientTopicPartition(partition.topic, partition.partition, offset) for partition, offset in before.items()]
        if not requests:
            return
        self._of_leaders(lambda: self._client.delete_records(requests, request_timeout=self._seconds), "purging")

    # -- inside

    def _list_offsets(self, specs: Mapping[TopicPartition, OffsetSpec], isolation: Isolation) -> dict[TopicPartition, int]:
        if not specs:
            return {}
        request = {ClientTopicPartition(partition.topic, partition.partition): spec for partition, spec in specs.items()}
        options = {"isolation_level": _ISOLATION[isolation], "request_timeout": self._seconds}
        listings = self._of_leaders(lambda: self._client.list_offsets(request, **options), "reading offsets of")
        return {partition: listed.offset for partition, listed in listings.items()}

    def _of_leaders(self, call: Callable[[], Mapping[ClientTopicPartition, Future[object]]], doing: str) -> dict[TopicPartition, Any]:
        """Return what the partitions' leaders answer; the call is repeated while one is not known, or not yet leader of a new topic."""
        deadline = time.monotonic() + self._seconds
        while True:
            results, answers = {}, call()
            try:
                for partition, future in answers.items():
                    what = f"{doing} {partition.topic}-{partition.partition}"
                    results[TopicPartition(partition.topic, partition.partition)] = self._in_time(future, what)
                return results
            except KafkaException as error:
                inside = error_of(error)
                if inside is None or inside.code() not in _LEADERLESS or time.monotonic() > deadline:
                    raise self._translated(error, what, topic=partition.topic) from error
                # The client keeps the leader epochs that it learnt: after a broker restart it is refused for minutes (an instance then
                # stays in "restoring"), and only a new client requests the metadata again.
                self._reconnect()
                time.sleep(0.1)

    def _are_visible(self, partitions: Mapping[str, int]) -> bool:
        """Return whether each topic is listed with as many partitions, or more, and all of them have leaders."""
        listed = self._call("listing topics", lambda: self._client.list_topics(timeout=self._seconds)).topics
        for name, least in partitions.items():
            topic = listed.get(name)
            if topic is None or topic.error is not None or len(topic.partitions) < max(least, 1):
                return False
            if any(partition.leader < 0 for partition in topic.partitions.values()):
                return False
        return True

    def _are_set(self, topic: str, configs: Mapping[str, str]) -> bool:
        """Return whether the broker reports these values: the controller confirms a change before its brokers have it."""
        reported = self.topic_configs([topic]).get(topic, {})
        return all(_in_one_form(reported.get(name, value)) == _in_one_form(value) for name, value in configs.items())


def _in_one_form(value: str) -> str | float:
    """Return a setting without what a broker may write in another way: spaces in lists, zeros of numbers, capitals."""
    try:
        return float(value)
    except ValueError:
        return "".join(value.split()).lower()


_ABSENT = object()
_LEADERLESS = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
}
