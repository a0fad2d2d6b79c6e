"""A task goes on without one of its partitions only when that one is known to have no more (KIP-695, max.task.idle.ms=0).

Real broker, real clients, the instance and its loop without Spark. Only the way of the table's records from the client to the loop is
made long: they are held back for some rounds, as a slow fetch would.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.initialization.task_initialization import open_instance
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.instance.polling.processing_threads import ThreadedPollLoop
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer, make_transactional_producer
from kstreams_repl.host.kafka.group_offsets import known_end
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.system.types import TopicPartition

pytestmark = pytest.mark.kafka
KEYS = 50


class SlowFetch:
    """A consumer whose records of one topic, its ends included, arrive some rounds later than the others'."""

    def __init__(self, consumer: Any, topic: str, rounds: int = 40) -> None:
        self._consumer = consumer
        self._topic = topic
        self._rounds = rounds
        self._held: list[Any] = []
        self._ready: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def consume(self, count: int, seconds: float) -> list[Any]:
        self._take(self._consumer.consume(count, seconds))
        ready, self._ready = self._ready, []
        return ready

    def poll(self, seconds: float) -> Any:
        self._take(self._consumer.consume(1, seconds))
        return self._ready.pop(0) if self._ready else None

    def _take(self, messages: list[Any]) -> None:
        self._held += [message for message in messages if message.topic() == self._topic]
        self._ready += [message for message in messages if message.topic() != self._topic]
        self._rounds -= 1
        if self._rounds < 0:
            self._ready, self._held = [*self._held, *self._ready], []


class Corner:
    """One application over a stream and a table of its own, generation after generation."""

    def __init__(self, admin: Admin, settings: ClientSettings, name: str, directory: Path) -> None:
        self.admin, self.settings, self.name, self.directory = admin, settings, name, directory
        self.stream, self.table, self.sink = f"{name}-stream", f"{name}-table", f"{name}-sink"
        for topic in (self.stream, self.table, self.sink):
            admin.create_topic(topic, 1)
        self.generation = 0
        self.at_ms = int(time.time() * 1000)

    def write(self, topic: str, value: bytes, count: int = KEYS, *, transaction: bool = False) -> None:
        """The value for each key, later than everything before."""
        if transaction:
            producer = make_transactional_producer(self.settings, transactional_id=f"{self.name}-writer")
            producer.init_transactions(20)
            producer.begin_transaction()
        else:
            producer = make_producer(self.settings)
        for number in range(count):
            self.at_ms += 1
            producer.produce(topic, value, b"k%d" % (number % KEYS), timestamp=self.at_ms)
        if transaction:
            producer.commit_transaction(20)
            self.admin.settled_end_offsets([TopicPartition(topic, 0)])  # until its marker is there, nobody can read what it wrote
        assert producer.flush(20) == 0
        producer.close()

    def open(self, threads: int = 1) -> Instance:
        """A take-over."""
        self.generation += 1
        config = StreamsConfig({
            "application.id": self.name, "bootstrap.servers": self.settings.bootstrap_servers,
            "processing.guarantee": "exactly_once_v2", "state.dir": str(self.directory), "num.stream.threads": 1,
            "num.processing.threads": threads,
        })  # fmt: skip
        plan = make_plan(
            joining(self.stream, self.table, self.sink), config, self.settings,
            admin=self.admin, generation=self.generation, state_root=self.directory,
        )  # fmt: skip
        return open_instance(plan, 0, in_force=lambda: True)

    def run(self, instance: Instance, wanted: int) -> list[bytes | None]:
        """Run one stretch, the table's records late, until so many results are in the sink; all of them."""
        given = instance.clients.consumer
        instance.clients.consumer = SlowFetch(given, self.table)
        deadline = time.monotonic() + 30

        def signal(now: float) -> Signal:
            return Signal.PAUSE if instance.counters.records >= wanted or now > deadline else Signal.RUN

        kind = PollLoop if instance.plan.config["num.processing.threads"] == 1 else ThreadedPollLoop
        try:
            kind(instance, signal=signal, report=lambda instance: None).run(deadline + 5)
        finally:
            instance.clients.consumer = given
        assert instance.counters.records >= wanted, "the task waits for something that never comes"
        return [value for _, batch in read_ranges(self.settings, ranges_of(self.admin, self.sink, settled=True)) for value in batch.values]


def joining(stream: str, table: str, sink: str) -> Topology:
    builder = StreamsBuilder()
    names = builder.table(table, key_serde=serdes.string, value_serde=serdes.string, store="names")
    rows = builder.stream(stream, key_serde=serdes.string, value_serde=serdes.string)
    rows.left_join(names, lambda left, right: f"{left}/{right}").to(sink, key_serde=serdes.string, value_serde=serdes.string)
    return builder.build()


@pytest.fixture
def corner(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path) -> Corner:
    return Corner(admin, settings, name, tmp_path)


@pytest.fixture
def opened(corner: Corner) -> Any:
    """Instances that are closed in the end."""
    made: list[Instance] = []

    def take_over(threads: int = 1) -> Instance:
        for instance in made:
            instance.close()
        made[:] = [corner.open(threads)]
        return made[0]

    yield take_over
    for instance in made:
        instance.close()


def test_first_start_waits_for_a_table_made_a_moment_before(corner: Corner, opened: Callable[[], Instance]) -> None:
    corner.write(corner.table, b"a")
    corner.write(corner.stream, b"1", 500)
    assert set(corner.run(opened(), KEYS + 500)) == {b"1/a"}


def test_table_written_by_a_transaction_is_waited_for_and_no_longer(corner: Corner, opened: Callable[[], Instance]) -> None:
    """Its last offset is a marker, so the last record is not the end; the task must neither miss the table nor wait for ever."""
    corner.write(corner.table, b"a", transaction=True)
    corner.write(corner.stream, b"1", 500)
    assert set(corner.run(opened(), KEYS + 500)) == {b"1/a"}


@pytest.mark.slow
def test_take_over_waits_for_what_the_table_got_meanwhile(corner: Corner, opened: Callable[[], Instance]) -> None:
    corner.write(corner.table, b"a")
    corner.write(corner.stream, b"1")
    corner.run(opened(), 2 * KEYS)
    corner.write(corner.table, b"b")
    corner.write(corner.stream, b"2")
    assert set(corner.run(opened(), 2 * KEYS)) == {b"1/a", b"2/b"}


@pytest.mark.parametrize("transaction", [False, True])
def test_next_epoch_waits_for_what_the_table_got_since_the_last_one(
    corner: Corner, opened: Callable[[], Instance], transaction: bool
) -> None:
    """The warm instance remembers that the table had no more; the client knows better as soon as it has fetched."""
    instance = opened()
    corner.write(corner.table, b"a", transaction=transaction)
    corner.write(corner.stream, b"1")
    corner.run(instance, 2 * KEYS)
    corner.write(corner.table, b"b", transaction=transaction)
    corner.write(corner.stream, b"2")
    wait_until_fetched(instance, corner.table)
    assert set(corner.run(instance, 4 * KEYS)) == {b"1/a", b"2/b"}


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_open_transaction_on_the_table_holds_nothing_up_and_counts_as_no_lag(
    corner: Corner, opened: Callable[..., Instance], threads: int
) -> None:
    """Its writer may have died; nobody can read what it wrote, and the broker aborts it only when its time is over. Nothing of the
    table may be missed for it: neither what is before it, nor, once it is committed, its own.
    """
    corner.write(corner.table, b"a")
    writer = make_transactional_producer(corner.settings, transactional_id=f"{corner.name}-dead", transaction_timeout_ms=60_000)
    writer.init_transactions(20)
    writer.begin_transaction()
    corner.at_ms += 1
    writer.produce(corner.table, b"b", b"k0", timestamp=corner.at_ms)
    writer.flush(20)
    corner.write(corner.stream, b"1")
    instance = opened(threads)
    assert set(corner.run(instance, 2 * KEYS)) == {b"1/a"}
    assert set(instance.input.lags().values()) == {0}
    table = next(at for at in instance.input.by_partition if at.topic == corner.table)
    end = known_end(instance.clients.consumer, table)
    writer.commit_transaction(20)
    corner.write(corner.stream, b"2", 1)
    wait_until_fetched(instance, corner.table, end)
    assert [value for value in corner.run(instance, 2 * KEYS + 2) if value != b"1/a"] == [b"2/b"]


def wait_until_fetched(instance: Instance, topic: str, before: int | None = None) -> None:
    """Until the client, which reads ahead between epochs, has seen the table's new end."""
    table = next(at for at in instance.input.by_partition if at.topic == topic)
    before = instance.input._reached[table] if before is None else before
    deadline = time.monotonic() + 20
    while (known_end(instance.clients.consumer, table) or 0) <= before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
