"""The cost of a record as the store grows: counts over increasing numbers of uniform keys, each measured after the store is full.

The topic of a size contains every key once, then uniform records; the clock covers the last of them, after a warm-up that is the
same for all sizes. Afterwards the workers are killed with kill -9 while more records are sent, and the time until every instance
runs again is measured. With a peer, Kafka Streams does the same over the same topic, in the same run of the command.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.host.spark.instance_reports import InstanceReport
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.clients_alone import seconds_alone
from workshop.bench.peers.kafka_streams import KAFKA_STREAMS, KafkaStreamsPeer, chosen_jdk, peer_option
from workshop.bench.rig import json_output
from workshop.bench.rig.deployed import Settings, run_workload
from workshop.bench.rig.pace import Pace, uniform_rows
from workshop.bench.rig.processes import ProcessSampler
from workshop.bench.rig.testbed import PARTITIONS, Testbed, give_up, open_testbed, produce, where
from workshop.bench.rig.workloads import Row, Topics

BENCH = "state-growth"
SIZES = (10_000, 100_000, 1_000_000)
_LOAD_SECONDS = 2.0
_LOAD_RATE = 20_000.0
_READY_SECONDS = 120.0


@click.command(help="Microseconds per record of a count as its store grows.")
@click.option(
    "--keys",
    "sizes",
    multiple=True,
    type=click.IntRange(1),
    help="Numbers of keys; default: 10 k, 100 k, 1 M (10000000 takes some minutes).",
)
@click.option("--records", type=click.IntRange(1), default=1_000_000, show_default=True, help="Measured records, at the end.")
@click.option(
    "--warm",
    type=click.IntRange(0),
    default=500_000,
    show_default=True,
    help="Warm-up records, after each key has occurred once.",
)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option("--max-seconds", type=click.IntRange(1), default=600, show_default=True, help="Seconds allowed for one size.")
@click.option(
    "--cache-bytes",
    type=click.IntRange(0),
    help="statestore.cache.max.bytes of both systems; 0: every record is a separate update.",
)
@click.option(
    "--clients",
    is_flag=True,
    help="Also measure the Kafka clients alone at the last size: two records sent for each one read, nothing counted.",
)
@peer_option
@where
def main(
    sizes: tuple[int, ...],
    records: int,
    warm: int,
    instances: int,
    max_seconds: int,
    cache_bytes: int | None,
    clients: bool,
    peer: str | None,
    bootstrap: str | None,
    directory: Path | None,
) -> None:
    """Print one line per size and system, and one each with the ratio of the last to the first."""
    json_output.emit_machine()
    sizes = sizes or SIZES
    settings = Settings(EXACTLY_ONCE_V2, instances, epoch_ms=60_000, max_seconds=max_seconds, cache_bytes=cache_bytes)
    with ExitStack() as stack:
        jdk = chosen_jdk(peer)
        testbed = stack.enter_context(open_testbed(bootstrap, directory))
        jvm = None if jdk is None else stack.enter_context(KafkaStreamsPeer(jdk, scratch=testbed.scratch))
        testbed.session.spark  # noqa: B018 (Spark starts before the first measured run)
        sized = [_Size(testbed, keys, warm, records, settings) for keys in sizes]
        costs: dict[str, list[float]] = defaultdict(list)
        for size in sized:
            size.fill()
            peers = None if jvm is None else size.measure_peer(jvm)  # first, because our own kill adds records
            costs[""].append(size.measure(peers))
            if peers is not None:
                costs[f" {KAFKA_STREAMS}"].append(peers)
            if clients and size is sized[-1]:
                size.measure_clients(costs[""][0])
            testbed.admin.delete_topics([size.input])
    if len(sized) > 1:
        for system, found in costs.items():
            case = f"{_what(settings)}, largest to smallest{system}"
            json_output.emit(BENCH, case, round(found[-1] / found[0], 2), "x", sizes=list(sizes))


def grown_rows(keys: int, records: int, *, seed: int = 1) -> Iterator[Row]:
    """Yield every key once, then the given number of records of uniform keys."""
    pick, now = random.Random(seed).randrange, int(time.time() * 1000)
    for key in range(keys):
        yield b"user-%d" % key, b"1", now
    for _ in range(records):
        yield b"user-%d" % pick(keys), b"1", now


def restored_of(reports: Mapping[int, InstanceReport], keys: int, commit_ms: int) -> int:
    """Return the number of changelog records that all instances restored; an intact store lacks at most a commit or two.

    Raises:
        KStreamsError: an instance restored as much as its share of the keys, so its store had been wiped.
    """
    for slot, one in reports.items():
        share = keys * len(one.tasks) // PARTITIONS
        if one.restored >= share + 2 * _LOAD_RATE * commit_ms / 1000:
            raise KStreamsError(
                f"instance {slot} restored {one.restored:,} records after the kill, for {share:,} keys of its own: its store was deleted",
                hint="the figures of this run are invalid; the application's log says why the store was deleted",
                slot=slot,
            )
    return sum(one.restored for one in reports.values())


def _what(settings: Settings) -> str:
    return "count" if settings.cache_bytes is None else f"count, record cache of {settings.cache_bytes:,} bytes"


@dataclass(frozen=True, slots=True)
class _Size:
    """One number of keys: the input of both systems, and their measurements."""

    testbed: Testbed
    keys: int
    warm: int
    records: int
    settings: Settings

    @property
    def input(self) -> str:
        return f"bench-growth-{self.keys}"

    def fill(self) -> None:
        click.echo(f"producing {self.total:,} records ...", err=True)
        rows = grown_rows(self.keys, self.warm + self.records)
        produce(self.testbed.settings, self.testbed.fresh_topic(self.input), rows)

    @property
    def before(self) -> int:
        """Return the number of records before the clock starts."""
        return self.keys + self.warm

    @property
    def total(self) -> int:
        return self.before + self.records

    def _topics(self, name: str) -> Topics:
        return Topics(self.input, "", self.testbed.fresh_topic(f"{name}-out"))

    def measure(self, peers: float | None) -> float:
        """Return the microseconds per record of all instances together; `peers` are those of the peer."""
        name = f"growing-{self.keys}"
        topics = self._topics(name)
        workers = ProcessSampler(lambda: self.testbed.parts()["workers"])
        measured = run_workload(self.testbed, "count", topics, self.total, self.settings, name, during=workers, then=self._kill)
        self.testbed.admin.delete_topics([topics.output])
        began = measured.time_of(self.before)
        memory = {
            "worker_private_mb": workers.peak_private_mb,
            "peak_rss_mb": measured.rss_mb + measured.broker_rss_mb,
        }
        return self._emit("", measured.ended - began, self.records, memory, peers)

    def measure_peer(self, peer: KafkaStreamsPeer) -> float:
        """Return the microseconds per record of all the peer's threads together."""
        name = f"growing-peer-{self.keys}"
        topics = self._topics(name)
        run = peer.run(self.testbed, "count", topics, self.total, self.settings, name, after=self.before)
        self.testbed.admin.delete_topics([topics.output])
        if not run.complete:
            raise give_up(f"the peer's count over {self.keys:,} keys", self.settings.max_seconds)
        return self._emit(f" {KAFKA_STREAMS}", run.seconds, run.records, {"peak_rss_mb": run.rss_mb})

    def measure_clients(self, smallest: float) -> None:
        """Measure the floor: read, and send a changelog record and a result per record; `smallest` is the cost at the first
        size."""
        outputs = [self.testbed.fresh_topic(f"clients-{self.keys}-{kind}") for kind in ("changelog", "out")]
        seconds = seconds_alone(self.testbed, self.input, outputs, self.settings, f"clients-{self.keys}")
        self.testbed.admin.delete_topics(outputs)
        cost = seconds / self.total * 1e6
        json_output.emit(
            BENCH,
            f"Kafka clients alone, {self.keys:,} keys",
            round(cost, 3),
            "us/record",
            times_smallest=round(cost / smallest, 2),
            records=self.total,
            seconds=round(seconds, 1),
            keys=self.keys,
            instances=self.settings.instances,
        )

    def _emit(self, system: str, seconds: float, records: int, memory: dict[str, int], peers: float | None = None) -> float:
        cost = seconds / records * 1e6
        json_output.emit(
            BENCH,
            f"{_what(self.settings)}, {self.keys:,} keys{system}",
            round(cost, 3),
            "us/record",
            of_peer=None if peers is None else round(cost / peers, 2),
            records_per_second=round(records / seconds),
            **memory,
            records=records,
            seconds=round(seconds, 1),
            keys=self.keys,
            instances=self.settings.instances,
        )
        return cost

    def _kill(self, app: Application) -> None:
        """Kill every worker (kill -9) while records are sent; print when all instances run again, and what they restored."""
        with Pace(self.testbed, self.input, uniform_rows(self.keys), _LOAD_RATE) as pace:
            time.sleep(_LOAD_SECONDS)
            former = {slot: one.pid for slot, one in app.reports.instances.items()}
            began = time.monotonic()
            for pid in set(former.values()):
                os.kill(pid, signal.SIGKILL)
            while True:
                reports = app.reports.instances
                if all(one.pid != former[slot] and one.state == "running" for slot, one in reports.items()):
                    break
                if app.status == "failed":
                    raise app.error or KStreamsError(f"{app.name} failed")
                if time.monotonic() > began + _READY_SECONDS:
                    raise give_up("the instances to run again", _READY_SECONDS)
                time.sleep(0.01)
            seconds = time.monotonic() - began
            pace.check()
        restored = restored_of(reports, self.keys, self.settings.commit_ms)
        json_output.emit(
            BENCH,
            f"{_what(self.settings)}, {self.keys:,} keys, kill -9 to ready",
            round(seconds, 2),
            "s",
            restored=restored,
            keys=self.keys,
            instances=len(former),
        )
