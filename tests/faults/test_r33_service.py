"""R33: a supervised service on a cluster of two executors, while everything that can end does, in random order and under load.

The supervisor starts the command again whenever it ends, as systemd's ``Restart=always``. Output is looked at by a plain
consumer of committed records: without caches each input record gives one output record, the next count of its key.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import TopicPartition

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_consumer, make_producer
from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster
from tests.faults.counts import full
from tests.faults.reliability import note
from tests.spark.hosting import settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(4 * 3600)]
ROOT = Path(__file__).parents[2]
PARTITIONS, KEYS, PER_SECOND = 4, 50, 100
FLOWS_SECONDS = 180.0
MODULE = """
import kstreams_repl as ks

def counted(keep):
    builder = ks.StreamsBuilder()
    kept = builder.stream("in", key_serde="string", value_serde="string").filter(keep, name="kept")
    kept.group_by_key().count(store="counts").to_stream().to("out", key_serde="string", value_serde="long")
    return builder

builder = counted(lambda key, value: True)
upgraded = counted(lambda key, value: value is not None)
"""
SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "statestore.cache.max.bytes": "0",
    "commit.interval.ms": "100",
    "num.stream.threads": "2",
}


def start_service(folder: Path, broker: str, *options: str, job: str = "builder") -> subprocess.Popen[bytes]:
    """Start the service, which writes to a log in the folder."""
    command = [sys.executable, "-m", "kstreams_repl.cli", "run", f"jobs:{job}", "--name", "app", "--broker", broker]
    command += ["--directory", str(folder), *options]
    command += [word for key, value in SETTINGS.items() for word in ("--config", f"{key}={value}")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(folder / "spark")}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


class Supervisor:
    """Starts the service again whenever it ends, until `end`."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._start = start
        self._over = threading.Event()
        self.statuses: list[int] = []
        self.seen: set[psutil.Process] = set()
        """Every process below the service that `look` has found."""
        self.process = self._start()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        while True:
            status = self.process.wait()
            self.statuses.append(status)
            if self._over.wait(0.5):
                return
            self.process = self._start()

    def look(self) -> list[psutil.Process]:
        """The processes below the service."""
        try:
            below: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self.seen.update(below)
        return below

    def end(self) -> int:
        self._over.set()
        self.process.terminate()
        self._thread.join(120)
        return self.statuses[-1]


class Traffic:
    """Writes records at a steady pace, and reads the committed output as it comes."""

    def __init__(self, broker: str, per_second: int = PER_SECOND) -> None:
        self._settings = ClientSettings(broker)
        self._per_second = per_second
        self._over = threading.Event()
        self.sent = 0
        self.counts: dict[str, list[int]] = defaultdict(list)
        self.arrivals: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._write, self._read)]
        self.writing = threading.Event()
        self.writing.set()
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        producer = make_producer(self._settings, linger_ms=5, message_timeout_ms=600_000)
        began, before = time.monotonic(), 0
        while not self._over.is_set():
            if self.writing.is_set():
                due = int((time.monotonic() - began) * self._per_second) - before
                for _ in range(max(0, due - self.sent)):
                    producer.produce("in", b"%d" % self.sent, b"k%d" % (self.sent % KEYS))
                    self.sent += 1
            producer.poll(0.02)
        assert producer.flush(120) == 0
        producer.close()

    def _read(self) -> None:
        consumer = make_consumer(self._settings, group_id="watch", isolation="read_committed")
        consumer.assign([TopicPartition("out", partition, 0) for partition in range(PARTITIONS)])
        while not self._over.is_set():
            for message in consumer.consume(5_000, 0.05):
                if message.error() is None:
                    self.arrivals[message.partition()].append(time.monotonic())
                    self.counts[message.key().decode()].append(int.from_bytes(message.value(), "big"))
        consumer.close()

    @property
    def received(self) -> int:
        return sum(map(len, self.arrivals))

    def caught_up(self, sent: int, since: float, story: Callable[[], object]) -> float:
        """Wait until so many records are counted and return the longest silence of a partition since that time, in seconds."""
        settle(lambda: self.received >= sent, f"{sent} outputs", FLOWS_SECONDS, story=lambda: (self.received, story()))
        times = [[since, *(each for each in one if each > since)] for one in self.arrivals]
        return max((after - before for one in times for before, after in itertools.pairwise(one)), default=0.0)

    def violations(self) -> list[str]:
        """Counts of a key that are not 1, 2, 3, … once each."""
        wanted = Counter(f"k{n % KEYS}" for n in range(self.sent))
        return [
            f"{key}: expected 1 to {wanted[key]}, got {len(found)} outputs, {sorted(set(range(1, wanted[key] + 1)) ^ set(found))[:5]}"
            for key, found in ((key, self.counts[key]) for key in wanted)
            if found != list(range(1, wanted[key] + 1))
        ]

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(130)


class Bench:
    """The broker, the cluster and the service, and what can end of them."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.dice = dice
        self.broker = EmbeddedBroker(folder / "broker").start()
        self.cluster = StandaloneCluster(folder / "cluster", workers=2).start()
        admin = Admin(ClientSettings(self.broker.bootstrap_servers))
        for topic in ("in", "out"):
            admin.create_topic(topic, PARTITIONS)
        self.folder = folder / "service"
        self.folder.mkdir()
        (self.folder / "jobs.py").write_text(MODULE)
        self.supervisor = Supervisor(
            lambda: start_service(self.folder, self.broker.bootstrap_servers, "--spark", self.cluster.master)
        )

    def driver(self) -> None:
        self.supervisor.process.kill()

    def drain(self) -> None:
        process = self.supervisor.process
        process.terminate()
        assert process.wait(60) == 0

    def spark(self) -> None:
        self._kill([each for each in self.supervisor.look() if each.name() == "java"])

    def instance(self) -> None:
        below = [each for number in (0, 1) for executor in self.cluster.executors(number) for each in executor.children(recursive=True)]
        self._kill([each for each in below if each.ppid() in {other.pid for other in below}])  # the fork of a daemon

    def executor(self) -> None:
        self._kill([each for number in (0, 1) for each in self.cluster.executors(number)])

    def worker(self) -> None:
        number = self.dice.randrange(2)
        self.cluster.kill(number)
        self.cluster.add_worker(number)

    def broker_process(self) -> None:
        self.broker.kill()
        self.broker.start()

    def _kill(self, candidates: list[psutil.Process]) -> None:
        assert candidates
        self.dice.choice(candidates).send_signal(signal.SIGKILL)

    def look(self) -> None:
        self.supervisor.look()
        for number in (0, 1):
            for executor in self.cluster.executors(number):
                self.supervisor.seen.update((executor, *executor.children(recursive=True)))

    def story(self) -> object:
        return self.supervisor.statuses[-3:], (self.folder / "log").read_text()[-3000:]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, random.Random(33))
    yield made
    if made.supervisor.process.poll() is None:
        made.supervisor.end()
    made.cluster.stop()
    made.broker.stop()


def test_a_service_loses_and_doubles_nothing_whatever_ends(bench: Bench) -> None:
    faults: list[Callable[[], None]] = [
        bench.driver, bench.drain, bench.spark, bench.instance, bench.executor, bench.worker, bench.broker_process
    ]  # fmt: skip
    count = full(50)
    order = [faults[number % len(faults)] for number in range(count)]
    bench.dice.shuffle(order)
    silent: dict[str, list[float]] = defaultdict(list)
    traffic = Traffic(bench.broker.bootstrap_servers)
    traffic.caught_up(200, time.monotonic(), bench.story)
    for number, fault in enumerate(order):
        bench.look()
        began = time.monotonic()
        fault()
        sent = traffic.sent + PER_SECOND
        seconds = traffic.caught_up(sent, began, bench.story)
        silent[fault.__name__].append(seconds)
        print(f"{number}: {fault.__name__}, {seconds:.1f} s without output, statuses {bench.supervisor.statuses[-1:]}", flush=True)
        bench.look()
        time.sleep(bench.dice.uniform(0, 2))
    traffic.writing.clear()
    time.sleep(0.1)
    traffic.caught_up(traffic.sent, time.monotonic(), bench.story)
    bench.look()
    assert bench.supervisor.end() == 0
    traffic.close()
    wrong = traffic.violations()
    left = [each for each in psutil.wait_procs(bench.supervisor.seen, timeout=30)[1] if each.status() != psutil.STATUS_ZOMBIE]
    figures = {kind: f"{statistics.median(all_):.1f}, at most {max(all_):.1f}" for kind, all_ in sorted(silent.items())}
    print(f"seconds in which a partition had no output: {figures}; {traffic.sent} records")
    what = "what a service on two executors consists of ends, in random order; seconds without output of a partition"
    note("R33", what, count, len(wrong) + len(left), records=traffic.sent, **figures)
    assert not wrong, wrong[:5]
    assert not left, left


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(tmp_path / "broker").start()
    admin = Admin(ClientSettings(broker.bootstrap_servers))
    for topic in ("in", "out"):
        admin.create_topic(topic, PARTITIONS)
    yield broker
    broker.stop()


def test_an_upgrade_and_a_rollback_under_load_lose_and_double_nothing(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(MODULE)
    log, per_second = tmp_path / "log", full(20_000)
    running = start_service(tmp_path, own_broker.bootstrap_servers)
    traffic = Traffic(own_broker.bootstrap_servers, per_second)
    silent = []
    try:
        traffic.caught_up(per_second, time.monotonic(), log.read_text)
        for job, version in (("upgraded", 2), ("builder", 3)):
            began, before = time.monotonic(), running
            running = start_service(tmp_path, own_broker.bootstrap_servers, "--take-over", job=job)
            settle(lambda version=version: f"runs, version {version}" in log.read_text(), job, FLOWS_SECONDS, story=log.read_text)
            silent.append(traffic.caught_up(traffic.sent + per_second, began, log.read_text))
            assert before.wait(60) == 0
        traffic.writing.clear()
        time.sleep(0.1)
        traffic.caught_up(traffic.sent, time.monotonic(), log.read_text)
    finally:
        running.terminate()
    assert running.wait(60) == 0
    traffic.close()
    wrong = traffic.violations()
    print(f"seconds without output of a partition: upgrade {silent[0]:.2f}, rollback {silent[1]:.2f}; {traffic.sent} records")
    note("R33", f"upgrade and rollback by --take-over at {per_second:,} records/s", 2, len(wrong), records=traffic.sent,
         upgrade_s=round(silent[0], 2), rollback_s=round(silent[1], 2))  # fmt: skip
    assert not wrong, wrong[:5]
