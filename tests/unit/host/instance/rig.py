"""An instance of real tasks and stores in memory, whose consumer hands over what a test gives it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl import Topology
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.alignment_rules import alignment_rules
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.instance_clients import InstanceClients
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.table_files.instance_tables import InstanceTables
from tests.unit.engine.runtime.rig import Outbox, Rig


def rows(topic: str, count: int, *, partition: int = 0, size: int = 1, start: int = 0, timestamp: int = 1) -> list[Message]:
    """Records whose values, JSON text or a digit, take so many bytes, one after the other in time."""
    value = b"1" if size < 2 else b'"%s"' % (b"1" * (size - 2))
    return [
        Message(topic=topic, partition=partition, offset=at, key=b"k", value=value, timestamp=(1, timestamp + at))
        for at in range(start, start + count)
    ]


class Client:
    """A consumer. `polls` are handed over one by one, without the records of paused partitions, which come when they are resumed."""

    def __init__(self, *polls: list[Message]) -> None:
        self.polls = list(polls)
        self.paused: set[TopicPartition] = set()
        self.pauses: list[TopicPartition] = []
        self.markers: dict[TopicPartition, int] = {}
        """Where markers at the end of a partition end; they come with its records."""
        self.fetched: dict[TopicPartition, int] = {}
        """Ends of partitions as of the last fetch."""

    def consume(self, count: int, seconds: float) -> list[Message]:
        for number, poll in enumerate(self.polls):
            found = [message for message in poll if not self._is_paused(message)]
            if found:
                left = [message for message in poll if self._is_paused(message)]
                self.polls[number : number + 1] = [left] if left else []
                return found
        return []

    def _is_paused(self, message: Message) -> bool:
        return TopicPartition(message.topic(), message.partition()) in self.paused

    def poll(self, seconds: float) -> Message | None:
        """One record; nothing comes while it waits."""
        found = self.consume(1, 0)
        if not found:
            time.sleep(min(seconds, 0.002))
            return None
        self.polls.insert(0, found[1:])
        return found[0]

    def pause(self, places: list[Any]) -> None:
        paused = [TopicPartition(place.topic, place.partition) for place in places]
        self.paused.update(paused)
        self.pauses += paused

    def resume(self, places: list[Any]) -> None:
        self.paused.difference_update(TopicPartition(place.topic, place.partition) for place in places)

    def get_watermark_offsets(self, place: Any, *, cached: bool) -> tuple[int, int]:
        """Every partition goes on for ever, unless its end is given: an empty queue is waited for."""
        return 0, self.fetched.get(TopicPartition(place.topic, place.partition), 1 << 40)

    def position(self, places: list[Any]) -> list[Any]:
        """The positions beyond markers; -1001: unknown."""
        at = {(place.topic, place.partition): offset for place, offset in self.markers.items()}
        return [ClientTopicPartition(p.topic, p.partition, at.get((p.topic, p.partition), -1001)) for p in places]

    def consumer_group_metadata(self) -> None:
        """Nobody asks what it is."""


def uncommitted(instance: Instance) -> Instance:
    """Its commits say only that they were made, and there is nothing on disk."""

    def commit(*, more: bool = False) -> bool:
        for task in instance.tasks:
            task.touched = False
        return True

    committer: Any = instance.committer
    committer.commit, committer.settle = commit, lambda: None
    return instance


def instance_of(
    topology: Topology,
    client: Client,
    *,
    partitions: int = 1,
    stops: Any = None,
    instances: int = 1,
    outbox: Outbox | None = None,
    **config: Any,
) -> Instance:
    """An instance whose tasks run the first sub-topology.

    Args:
        outbox: of all tasks; the topology may then have more sub-topologies.
    """
    settings = StreamsConfig({"application.id": "app"}, **config)
    silent: Any = SimpleNamespace(poll=lambda seconds: 0, meanwhile=None)
    plan: Any = SimpleNamespace(
        config=settings, application_id="app", isolation="read_uncommitted", stops=stops, closes=None, settings=None,
        alignment=alignment_rules(topology.subtopologies(), settings), instances=instances,
    )  # fmt: skip
    none: Any = None
    clients = InstanceClients(plan, admin=none, consumer=client, producer=silent, fence=silent)
    collector: Any = SimpleNamespace(tables=InstanceTables("app"))
    instance = uncommitted(Instance(plan, 0, clients, collector))
    for partition in range(partitions):
        rig = Rig(topology, partition=partition, lags_known=False, calls=instance.call_runner, outbox=outbox)
        active = ActiveTask(rig.task, rig.task.environment, dict.fromkeys(rig.inputs, 0), frozenset())
        instance.add(active)
    return instance
