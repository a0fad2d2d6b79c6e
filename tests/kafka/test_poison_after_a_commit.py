"""A poison record at the head of what comes right after a commit: its dead letter goes into the next transaction, not in between.

Real broker, real clients, the instance and its loop without Spark. Only how much the loop gets at a time is decided here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.initialization.task_initialization import open_instance
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan

pytestmark = pytest.mark.kafka
BATCH, BATCHES = 20, 6
GOOD, POISON = b"\0\0\0\0\0\0\0\7", b"poison"


class OneBatchEachCommit:
    """A consumer that gives a batch in the round that follows a commit, and nothing more before the next one."""

    def __init__(self, consumer: Any, instance: Instance) -> None:
        self._consumer = consumer
        self._instance = instance
        self._given_at = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def consume(self, count: int, seconds: float) -> list[Any]:
        commits = self._instance.counters.commits
        if self._given_at == commits or self._given_at >= 0 and self._instance.clients.fence.in_transaction:
            return []
        found: list[Any] = self._consumer.consume(min(count, BATCH), 5)
        if found:
            self._given_at = commits
        return found

    def poll(self, seconds: float) -> Any:
        return None


class Place:
    """One application, stream to sink, poison to a topic of its own."""

    def __init__(self, admin: Admin, settings: ClientSettings, name: str, directory: Path) -> None:
        self.admin, self.settings, self.name, self.directory = admin, settings, name, directory
        self.source, self.other, self.sink, self.dead = (f"{name}-{each}" for each in ("in", "other", "out", "dead"))
        for topic in (self.source, self.other, self.sink, self.dead):
            admin.create_topic(topic, 1)
        self.generation = 0

    def write(self, values: list[bytes]) -> None:
        producer = make_producer(self.settings)
        for value in values:
            producer.produce(self.source, value, b"k")
        assert producer.flush(20) == 0
        producer.close()

    def open(self, *, merged: bool = False, **settings: Any) -> Instance:
        builder = StreamsBuilder()
        stream = builder.stream(self.source, key_serde=serdes.bytes, value_serde=serdes.long)
        if merged:
            stream = stream.merge(builder.stream(self.other, key_serde=serdes.bytes, value_serde=serdes.long))
        stream.to(self.sink, key_serde=serdes.bytes, value_serde=serdes.long)
        config = StreamsConfig({
            "application.id": self.name, "bootstrap.servers": self.settings.bootstrap_servers,
            "processing.guarantee": "exactly_once_v2", "state.dir": str(self.directory), "num.stream.threads": 1,
            "deserialization.exception.handler": "continue", "errors.dead.letter.queue.topic.name": self.dead,
            "commit.interval.ms": 50, **{key.replace("_", "."): value for key, value in settings.items()},
        })  # fmt: skip
        self.generation += 1
        plan = make_plan(
            builder.build(), config, self.settings, admin=self.admin, generation=self.generation, state_root=self.directory
        )
        return open_instance(plan, 0, in_force=lambda: True)

    def read(self, topic: str) -> list[bytes | None]:
        """What is committed of the topic."""
        ranges = ranges_of(self.admin, topic, settled=True)
        return [value for _, batch in read_ranges(self.settings, ranges) for value in batch.values]

    def offset(self) -> int:
        """The committed offset of the one input that has records."""
        found = self.admin.committed_offsets(self.name, [at for at in self.partitions() if at.topic == self.source])
        return next(iter(found.values())).offset

    def partitions(self) -> list[Any]:
        from kstreams_repl.system.types import TopicPartition

        return [TopicPartition(self.source, 0), TopicPartition(self.other, 0)]


def run(instance: Instance, done: Any) -> None:
    deadline = time.monotonic() + 30
    PollLoop(
        instance,
        signal=lambda now: Signal.PAUSE if done() or now > deadline else Signal.RUN,
        report=lambda instance: None,
    ).run(deadline + 5)
    assert done(), "it took too long"


@pytest.fixture
def place(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path) -> Place:
    return Place(admin, settings, name, tmp_path)


@pytest.fixture
def opened(place: Place) -> Iterator[Any]:
    made: list[Instance] = []

    def take_over(**options: Any) -> Instance:
        for instance in made:
            instance.close()
        made[:] = [place.open(**options)]
        return made[0]

    yield take_over
    for instance in made:
        instance.close()


def test_the_instance_goes_on_and_each_dead_letter_is_there_once(place: Place, opened: Any) -> None:
    """A refusal would leave the loop as `OutputRejectedError`, and the runner would take the tasks over to process carefully."""
    batch = [POISON, *[GOOD] * (BATCH - 1)]
    place.write(batch * BATCHES)
    instance = opened()
    instance.clients.consumer = OneBatchEachCommit(instance.clients.consumer, instance)
    run(instance, lambda: instance.counters.commits >= BATCHES)
    assert not instance.collector.careful
    assert place.read(place.dead) == [POISON] * BATCHES
    assert place.read(place.sink) == [GOOD] * (BATCH - 1) * BATCHES
    assert place.offset() == BATCH * BATCHES


def test_records_taken_while_the_last_commit_waited_may_begin_with_poison(place: Place, opened: Any) -> None:
    """They are routed after that commit, when the loop ends; the next epoch of the same instance goes on with them."""
    place.write([GOOD] * BATCH)
    instance = opened()
    run(instance, lambda: instance.counters.records >= BATCH)
    assert place.offset() == BATCH
    place.write([POISON, *[GOOD] * (BATCH - 1)])
    loop = PollLoop(instance, signal=lambda now: Signal.PAUSE, report=lambda instance: None)
    deadline = time.monotonic() + 20
    while len(loop._ahead) < BATCH:  # as a commit does that waits
        loop._read_ahead()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    loop.run(deadline)
    assert place.read(place.dead) == [POISON]
    run(instance, lambda: instance.counters.records >= 2 * BATCH - 1)
    assert place.read(place.sink) == [GOOD] * (2 * BATCH - 1)
    assert place.read(place.dead) == [POISON]


def test_a_dead_letter_is_committed_while_its_task_waits_and_not_sent_again_after_a_take_over(place: Place, opened: Any) -> None:
    """Nothing but poison came, and the task waits for its other partition: the letter must not stay in an open transaction."""
    place.write([POISON] * 3)
    instance = opened(merged=True, **{"max_task_idle_ms": 3_600_000})
    run(instance, lambda: instance.counters.commits >= 1 and not instance.committer.touched)
    assert instance.counters.records == 0
    assert place.read(place.dead) == [POISON] * 3
    assert place.offset() == 3
    place.write([POISON])
    instance = opened(merged=True, **{"max_task_idle_ms": 0})
    run(instance, lambda: instance.counters.commits >= 1 and place.offset() == 4)
    assert place.read(place.dead) == [POISON] * 4
