"""One application that is run by Kafka Streams on the JVM and by this project in turns, and what both leave behind.

Actors: `Jvm`, one process that runs applications on command (Handover.java); `Ours`, an instance and its loop without Spark; `Case`,
the topics of one test and its input in stretches of event time. The oracle is an application that stays on the JVM, bytes and all; it is
stopped and started there between stretches, too, for a restart alone changes on the JVM when unmatched records of a left join leave.
A stream-table join with a grace period is left out: there a restart changes more (docs/tasks/migration.md).

The input leaves nothing to chance that Kafka Streams leaves to it: no two topics have records of the same time, whose order would be that
of their arrival, and orders and people change only as the foreign-key join's protocol can follow (`Case._order`).
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kstreams_repl import EmitStrategy, JoinWindows, Materialized, SessionWindows, StreamsBuilder, Suppressed, TimeWindows, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.reports.epoch_result import EpochResult
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.embedded.jars import ensure_jars
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.system.types import TopicPartition
from workshop.bench.peers.kafka_streams import peer_jars

INPUTS = ("in", "right", "rates", "orders", "people")
SINKS = ("counts", "windows", "sessions", "suppressed", "closed", "pairs", "rated", "owned")
RACING = frozenset({"owned", "owned-changelog"})
"""Two tables meet there over internal topics, in an order left to chance: only the rows that there are in the end are compared, without
their times, which are the left row's or the right one's as it comes.
"""
SOURCE_HEADER = "n"
PARTITIONS = 2
STRETCH_MS = 40_000
JOIN_RETENTION_MS = 5_000
LASTING = ("p0", "p1")
"""People that are never deleted."""


class Jvm:
    """A JVM with Kafka Streams that does what it is told, one answer for each line."""

    def __init__(self, jdk: Path, bootstrap: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="kstreams-handover-"))
        jars = os.pathsep.join(map(str, ensure_jars(jars=peer_jars())))
        source = Path(__file__).with_name("Handover.java")
        subprocess.run([jdk / "bin" / "javac", "-nowarn", "-cp", jars, "-d", self._directory, source], check=True, timeout=120)
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = [str(jdk / "bin" / "java"), *options, "-cp", f"{jars}{os.pathsep}{self._directory}"]
        with open(self._directory / "log", "wb") as log:
            self._process = subprocess.Popen(
                [*command, "Handover", bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def ask(self, *words: object) -> str:
        """The answer to one command."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n").replace("\\n", "\n")
        assert answer and not answer.startswith("error"), f"{words}: {answer}\n{(self._directory / 'log').read_text()[-2000:]}"
        return answer

    def state(self, name: str) -> Path:
        return self._directory / name

    def close(self) -> None:
        self._process.communicate(timeout=60)  # closes its standard input
        shutil.rmtree(self._directory, ignore_errors=True)


class Ours:
    """The same application here, from `start` to `stop`."""

    def __init__(self, settings: ClientSettings, directory: Path) -> None:
        self._settings, self._directory = settings, directory
        self._admin = Admin(settings)
        self._generation = 0
        self._outcomes: list[EpochResult] = []

    def start(self, application: str, source: str, guarantee: str) -> None:
        self._generation += 1
        config = StreamsConfig({
            "application.id": application, "bootstrap.servers": self._settings.bootstrap_servers, "state.dir": str(self._directory),
            "processing.guarantee": guarantee, "num.stream.threads": 1, "statestore.cache.max.bytes": 0,
            "repl.outer.join.emit.interval.ms": 0,
            "default.key.serde": serdes.string, "default.value.serde": serdes.string,
        })  # fmt: skip
        plan = make_plan(
            topology(application, source), config, self._settings,
            admin=self._admin, generation=self._generation, state_root=self._directory,
        )  # fmt: skip
        self._lease = FileChannel(Path(plan.control_directory))
        self._lease.signal(plan.generation, Signal.RUN)
        control = FileInstanceControl(plan.control_directory, plan.generation, 0)
        self._thread = threading.Thread(
            target=lambda: self._outcomes.append(run_instance(plan, 0, until=time.monotonic() + 120, control=control))
        )
        self._thread.start()

    def stop(self) -> None:
        self._lease.signal(self._generation, Signal.STOP)
        self._thread.join(60)
        outcome = self._outcomes.pop()
        assert outcome.failure is None and outcome.state == "stopped", outcome


class Case:
    """Input of one test, written stretch by stretch; each stretch's times lie after those of the one before."""

    def __init__(self, admin: Admin, settings: ClientSettings, name: str, jvm: Jvm, directory: Path) -> None:
        self.admin, self.settings, self.name, self.jvm = admin, settings, name, jvm
        self.ours = Ours(settings, directory)
        self._random = random.Random(name[-1])
        self._stretch = 0
        self._began_ms = int(time.time()) * 1000 - 600_000
        self._owners: dict[str, str] = {}
        self._lives: dict[str, int] = {}
        for topic in INPUTS:
            admin.create_topic(f"{name}-{topic}", PARTITIONS)

    def create_sinks(self, application: str) -> None:
        for sink in SINKS:
            self.admin.create_topic(f"{application}-{sink}", PARTITIONS)

    def write(self) -> None:
        """The next stretch: a third of a stream's records are late, some by more than the windows' grace. No two topics share a time."""
        start = self._began_ms + self._stretch * (STRETCH_MS + 1_000)
        self._stretch += 1
        producer = make_producer(self.settings)
        inputs = (("in", 200, 6), ("right", 100, 6), ("rates", 40, 6), ("orders", 40, 15), ("people", 15, 5))
        for digit, (topic, count, keys) in enumerate(inputs):
            for number in range(count):
                late = self._random.randrange(8_000) if topic in ("in", "right") and self._random.random() < 0.3 else 0
                at = max(start, start + number * STRETCH_MS // count - late) // 10 * 10 + digit
                key = f"p{self._random.randrange(keys)}" if topic == "people" else f"k{self._random.randrange(keys)}"
                value = f"{topic}{self._stretch}.{number}"
                gone = topic in ("orders", "people", "rates") and key not in LASTING and self._random.random() < 0.15
                if topic == "orders":
                    key, person = self._order(key, gone)
                    value = f"{person}:{value}"
                headers = [(SOURCE_HEADER, b"%d" % number)]
                producer.produce(f"{self.name}-{topic}", None if gone else value.encode(), key.encode(), timestamp=at, headers=headers)
        assert producer.flush(20) == 0
        producer.close()

    def _order(self, key: str, gone: bool) -> tuple[str, str]:
        """The key and the person of a change to an order. Kafka Streams' protocol drops an answer whose order has changed meanwhile, and
        asks for none where no row is known to be replaced: a deleted order never comes back, and only people who stay keep an order.
        """
        own = f"{key}.{self._lives.get(key, 0)}"
        before = self._owners.get(own)
        person = f"p{self._random.randrange(5)}"
        if person == before and person not in LASTING:
            person = LASTING[0]
        self._owners[own] = person
        if gone:
            self._lives[key] = self._lives.get(key, 0) + 1
        return own, person

    def on_the_jvm(self, application: str, guarantee: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Start, process what there is, stop."""
        self.jvm.ask("start", application, self.name, guarantee, self.jvm.state(application))
        meanwhile()
        self.settle(application, lambda: self.jvm.ask("state", application))
        assert self.jvm.ask("stop", application) == "stopped"

    def here(self, application: str, guarantee: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """As `on_the_jvm`, by this project."""
        self.ours.start(application, self.name, guarantee)
        try:
            meanwhile()
            self.settle(application)
        finally:
            self.ours.stop()

    def settle(self, application: str, state: Callable[[], object] = lambda: None, seconds: float = 60.0) -> None:
        """Wait until all input is committed and nothing has been written for a second."""
        inputs = [TopicPartition(f"{self.name}-{topic}", number) for topic in INPUTS for number in range(PARTITIONS)]
        wanted = self.admin.end_offsets(inputs)
        deadline, seen, since = time.monotonic() + seconds, None, time.monotonic()
        while True:
            committed = self.admin.committed_offsets(application, inputs, stable=False)
            done = all(at in committed and committed[at].offset >= end for at, end in wanted.items() if end)
            ends = self.admin.end_offsets(self._partitions(self.topics_of(application)), isolation="read_uncommitted")
            if not done or ends != seen:
                seen, since = ends, time.monotonic()
            elif time.monotonic() - since > 1.0:
                return
            assert time.monotonic() < deadline, f"{application}: {state()}, {committed} of {wanted}"
            state()
            time.sleep(0.1)

    def topics_of(self, application: str) -> list[str]:
        return [topic for topic in self.admin.topics() if topic.startswith(f"{application}-")]

    def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]

    def written(self, topic: str) -> dict[TopicPartition, list[tuple[Any, ...]]]:
        """(key, value, time, headers) of each record, partition by partition."""
        found: dict[TopicPartition, list[tuple[Any, ...]]] = {}
        for at, batch in read_ranges(self.settings, ranges_of(self.admin, topic, settled=True)):
            headers = batch.headers or [None] * len(batch.keys)
            rows = zip(batch.keys, batch.values, batch.timestamps, (tuple(own or ()) for own in headers), strict=True)
            found.setdefault(TopicPartition("", at.partition), []).extend(rows)
        return found

    def times(self) -> dict[str, int]:
        """The largest time in each partition of the input that has any."""
        read = [(topic, self.written(f"{self.name}-{topic}")) for topic in INPUTS]
        return {f"{topic}-{at.partition}": max(row[2] for row in rows) for topic, of in read for at, rows in of.items()}

    def times_read_by_the_jvm(self, application: str) -> dict[str, int]:
        """What Kafka Streams finds beside the committed offsets of this input; those it knows."""
        pairs = (pair.split("=") for pair in self.jvm.ask("times", application).split())
        own = {at.removeprefix(f"{self.name}-"): int(time) for at, time in pairs if not at.startswith(application)}
        return {at: time for at, time in own.items() if time >= 0}

    def results(self, application: str) -> dict[str, Any]:
        """All that the application wrote: its sinks in order, of changelogs the last record of each key, which is what a restore makes of
        them. Times of buffers' changelogs are the clock's and left out, and so are the source record's headers, which the JVM repeats in
        changelogs and never reads there (docs/reference/divergences.md).
        """
        found: dict[str, Any] = {}
        for topic in self.topics_of(application):
            name = topic.removeprefix(f"{application}-")
            if name in SINKS and name not in RACING:
                found[name] = self.written(topic)
            elif name in RACING:
                rows = [(at.partition, *row) for at, of in self.written(topic).items() for row in of]
                last = {(partition, key): value for partition, key, value, _, _ in rows}
                found[name] = {key: value for key, value in last.items() if value is not None}  # some are deleted twice
            elif name.endswith("-changelog"):
                untimed = "final-store" in name
                last = {(at.partition, row[0]): row for at, of in self.written(topic).items() for row in of}
                # Windows of joins number their records, from 0 again after each start, which only keeps the keys apart.
                numbered = any(part in name for part in ("-this-join", "-other-join"))
                found[name] = {
                    (partition, key[:-4] + value if numbered else key): (value, None if untimed else time, own_headers(headers))
                    for (partition, _), (key, value, time, headers) in last.items()
                    if value is not None or not numbered
                }
                if numbered:
                    found[name] = kept_by_a_restore(found[name])
        return found


def kept_by_a_restore(rows: dict[Any, Any]) -> dict[Any, Any]:
    """Rows of a join's window that have not expired. Kafka Streams writes also those that its store refused, being late by then."""
    latest = {at: max((row[1] for (other, _), row in rows.items() if other == at), default=0) for at in range(PARTITIONS)}
    return {key: row for key, row in rows.items() if row[1] // 60_000 >= (latest[key[0]] - JOIN_RETENTION_MS) // 60_000}


def own_headers(headers: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    return [header for header in headers if header[0] != SOURCE_HEADER]


def topology(application: str, source: str) -> Topology:
    """As `Handover.topology`."""
    text, long = serdes.string, serdes.long
    builder = StreamsBuilder()
    texts: dict[str, Any] = {"key_serde": text, "value_serde": text}
    stream = builder.stream(f"{source}-in", **texts)
    grouped = stream.group_by_key

    def to(table: Any, sink: str, key_serde: Any) -> None:
        table.to_stream().to(f"{application}-{sink}", key_serde=key_serde, value_serde=long)

    to(grouped().count(store="counts"), "counts", text)
    hopping = TimeWindows.of_size(10_000, grace=5_000, advance=5_000)
    to(grouped().windowed_by(hopping).count(store="windows"), "windows", serdes.time_windowed(text, 10_000))
    sessions = grouped().windowed_by(SessionWindows.of_inactivity_gap(3_000, grace=5_000))
    to(sessions.count(store="sessions"), "sessions", serdes.session_windowed(text))
    held = grouped().windowed_by(TimeWindows.of_size(7_000, grace=2_000)).count(store="held")
    to(held.suppress(Suppressed.until_window_closes(name="final")), "suppressed", serdes.time_windowed(text, 7_000))
    closing = grouped().windowed_by(TimeWindows.of_size(8_000, grace=2_000)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    to(closing.count(store=Materialized("closed", retention=600_000)), "closed", serdes.time_windowed(text, 8_000))
    right = builder.stream(f"{source}-right", **texts)
    windows = JoinWindows.of_time_difference(2_000, grace=1_000)
    pairs = stream.left_join(
        right, lambda left, right: f"{left}/{'null' if right is None else right}", windows,
        key_serde=text, value_serde=text, other_value_serde=text, name="pairing", store="pairs",
    )  # fmt: skip
    pairs.to(f"{application}-pairs", **texts)
    rates = builder.table(f"{source}-rates", store=Materialized("rates", history=60_000), **texts)
    rated = stream.join(rates, lambda value, rate: f"{value}*{rate}", name="rating", **texts)
    rated.to(f"{application}-rated", **texts)
    orders = builder.table(f"{source}-orders", store="orders", **texts)
    people = builder.table(f"{source}-people", store="people", **texts)
    owned = orders.join(people, lambda order, person: f"{order}@{person}", foreign_key=lambda order: order[:2], store="owned", name="owner")
    owned.to_stream().to(f"{application}-owned", **texts)
    return builder.build()
