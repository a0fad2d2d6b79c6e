"""Follows single records through a running application: each record contains the time it was sent, and a reader of committed
output takes the time it arrives. Both ends are in this process, so they use one clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer as BareConsumer
from confluent_kafka import Producer as BareProducer
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.host.kafka.clients import ClientSettings, make_consumer, make_producer
from kstreams_repl.host.kafka.group_offsets import assign, is_partition_end, is_passing
from kstreams_repl.host.kafka.reading import READ_GROUP
from kstreams_repl.host.kafka.record_batch import columns
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import TopicPartition
from workshop.bench.rig.testbed import PARTITIONS, Testbed, give_up
from workshop.bench.rig.timeline import Times

_TICK_SECONDS = 0.001
_FEED_RATE = 200.0
"""Records per second sent while an application is edited."""


def passing(source: str, sink: str, function: Callable[[bytes], bytes] = lambda value: value) -> Any:
    """Return a topology of one operator that writes each record, by default unchanged."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.bytes, value_serde=serdes.bytes)
    stream.map_values(function).to(sink, key_serde=serdes.bytes, value_serde=serdes.bytes)
    return builder.build()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record that arrived: when it was sent and when it arrived (ns of the process's clock)."""

    sent: int
    arrived: int

    @property
    def milliseconds(self) -> float:
        return (self.arrived - self.sent) / 1e6


class Probe:
    """Sends to one topic and reads the committed records of another; a context manager.

    The reader starts at the beginning of its topic and runs on its own thread, so an arrival is noticed at once.
    """

    def __init__(self, settings: ClientSettings, source: str, sink: str, *, linger_ms: int = 0) -> None:
        self.source = source
        self._producer = make_producer(settings, linger_ms=linger_ms)
        self._consumer = make_consumer(settings, group_id=READ_GROUP, fetch_wait_max_ms=10)
        assign(self._consumer, {TopicPartition(sink, number): 0 for number in range(PARTITIONS)})
        self._arrivals: list[Arrival] = []
        self._error: KStreamsError | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, name="bench-probe", daemon=True)
        self.sent = 0

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()
        self._consumer.close()
        self._producer.flush(10)
        self._producer.close()

    @property
    def arrived(self) -> int:
        return len(self._arrivals)

    @property
    def arrivals(self) -> list[Arrival]:
        return list(self._arrivals)

    def send(self) -> None:
        """Send one record with the current time as its value."""
        self._producer.produce(self.source, b"%d" % time.perf_counter_ns(), b"%d" % self.sent)
        self.sent += 1
        self._producer.poll(0)

    def send_at(self, rate: float, seconds: float) -> None:
        """Send records at an even pace; above a thousand per second in small bursts, one each millisecond."""
        start, before = time.perf_counter(), self.sent
        while (now := time.perf_counter() - start) < seconds:
            for _ in range(int(now * rate) - (self.sent - before)):
                self.send()
            following = (self.sent - before + 1) / rate
            time.sleep(max(_TICK_SECONDS, following - (time.perf_counter() - start)))

    def await_arrivals(self, count: int, check: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until this many records have arrived in total.

        Args:
            check: raises the error of what should send them (`check_of`).

        Raises:
            KStreamsError: they did not arrive in time, or the topic could not be read.
        """
        deadline = time.monotonic() + seconds
        while len(self._arrivals) < count:
            if self._error is not None:
                raise self._error
            check()
            if time.monotonic() > deadline:
                raise give_up(f"the arrival of {count:,} records ({len(self._arrivals):,} are there)", seconds)
            time.sleep(0.001)

    def timeline(self, read: Mapping[int, int]) -> list[Times]:
        """Return the times of the records that arrived.

        Args:
            read: when each arrived, by the time at which it was sent.
        """
        return []

    def _read(self) -> None:
        poll, consume = self._consumer.poll, self._consumer.consume
        append = self._arrivals.append
        try:
            while not self._end.is_set():
                message = poll(0.05)
                if message is None:
                    continue
                messages = [message, *consume(10_000, 0)]
                now = time.perf_counter_ns()
                for _, batch in columns(messages, _on_error):
                    for value in batch.values:
                        append(Arrival(int(value or b"0"), now))
        except KStreamsError as error:
            self._error = error


class TransactionProbe(Probe):
    """Sends each record to the topic that it reads, in a transaction of its own with an offset of the topic, by the client alone: the
    floor of an application under exactly once. `times` has when each call returned.
    """

    def __init__(self, settings: ClientSettings, source: str, sink: str) -> None:
        super().__init__(settings, source, sink)
        servers = {"bootstrap.servers": settings.bootstrap_servers}
        self._transactions = BareProducer({**servers, "transactional.id": "bench-bare", "linger.ms": 0})
        self._transactions.init_transactions(30)
        self._group = BareConsumer({**servers, "group.id": "bench-bare"}).consumer_group_metadata()
        self.times: list[Times] = []

    def send(self) -> None:
        """Send one record, and wait until it is committed."""
        producer, times = self._transactions, {"sent": time.perf_counter_ns()}
        producer.begin_transaction()
        producer.produce(self.source, b"%d" % times["sent"], b"%d" % self.sent)
        producer.flush()
        times["acknowledged"] = time.perf_counter_ns()
        offset = ClientTopicPartition(self.source, 0, self.sent)
        producer.send_offsets_to_transaction([offset], self._group)
        times["offsets added"] = time.perf_counter_ns()
        producer.commit_transaction()
        times["committed"] = time.perf_counter_ns()
        self.times.append(times)
        self.sent += 1

    def timeline(self, read: Mapping[int, int]) -> list[Times]:
        return [times | {"read": read[times["sent"]]} for times in self.times if times["sent"] in read]


def _on_error(message: object, error: Any) -> None:
    if not is_partition_end(error) and not is_passing(error):
        raise KStreamsError(f"the probe's topic cannot be read: {error.str()}")


def check_of(app: Application) -> Callable[[], None]:
    """Return a function that raises if the application has failed."""

    def check() -> None:
        if app.status == "failed":
            raise app.error or KStreamsError(f"{app.name} failed")

    return check


def await_running(app: Application, seconds: float = 60.0) -> None:
    """Wait until every instance runs its poll loop.

    Raises:
        KStreamsError: the application failed, or it took too long.
    """
    wanted, check = app.config["num.stream.threads"], check_of(app)
    deadline = time.monotonic() + seconds
    while sum(one.state == "running" for one in app.reports.instances.values()) < wanted:
        check()
        if time.monotonic() > deadline:
            raise give_up(f"the start of {wanted} instances", seconds)
        time.sleep(0.02)


def edited(probe: Probe, app: Application, changed: object, *, is_new: Callable[[Arrival], bool], max_seconds: float = 60.0) -> float:
    """Return the seconds from the call of `edit` until a committed record has passed the new code, while records are sent all the
    time.

    Args:
        changed: the builder or topology with the new code.
        is_new: returns whether a record that arrived passed the new code.

    Raises:
        KStreamsError: no such record arrived in time.
    """
    end = threading.Event()

    def feed() -> None:
        while not end.is_set():
            probe.send_at(_FEED_RATE, 0.1)

    feeder = threading.Thread(target=feed, name="bench-feeder")
    feeder.start()
    try:
        time.sleep(0.2)
        before = probe.arrived
        start = time.perf_counter()
        app.edit(changed)
        deadline = time.monotonic() + max_seconds
        while True:
            found = next(filter(is_new, probe.arrivals[before:]), None)
            if found is not None:
                return found.arrived / 1e9 - start
            if time.monotonic() > deadline:
                raise give_up("a record through the new code", max_seconds)
            time.sleep(0.001)
    finally:
        end.set()
        feeder.join()
        probe.await_arrivals(probe.sent, check_of(app))


def warm_up(testbed: Testbed, *, instances: int = 2) -> None:
    """Start Spark and its worker pool by running one short application."""
    source, sink = testbed.fresh_topic("bench-warm-in"), testbed.fresh_topic("bench-warm-out")
    config = {"processing.guarantee": "exactly_once_v2", "num.stream.threads": instances}
    app = testbed.session.deploy(passing(source, sink), "bench-warm", config=config)
    try:
        with Probe(testbed.settings, source, sink) as probe:
            await_running(app)
            probe.send()
            probe.await_arrivals(1, check_of(app))
    finally:
        app.stop()
        testbed.session.cleanup("bench-warm")
        testbed.admin.delete_topics([source, sink])
