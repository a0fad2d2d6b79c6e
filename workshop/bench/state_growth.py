"""The cost of a record as the store grows: counts over increasing numbers of uniform keys, each measured after the store is full; by key,
re-keyed or by key and window, with more stores, nodes before them, or partitions (`Shape`).

The topic of a size contains every key once, then uniform records; the clock covers the last of them, after a warm-up that is the
same for all sizes. After a plain count the workers are killed with kill -9 while more records are sent, and the time until every
instance runs again is measured. With a peer, Kafka Streams does the same over the same topic, in the same run of the command.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from kstreams_repl import StreamsBuilder, TimeWindows, Topology, serdes
from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.host.instance.state.state_directory import application_directory
from kstreams_repl.host.spark.instance_reports import ApplicationReport, InstanceReport
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.clients_alone import seconds_alone
from workshop.bench.peers.kafka_streams import KAFKA_STREAMS, KafkaStreamsPeer, chosen_jdk, peer_option
from workshop.bench.rig import json_output
from workshop.bench.rig.deployed import Settings, run_topology
from workshop.bench.rig.pace import Pace, uniform_rows
from workshop.bench.rig.processes import ProcessSampler, megabytes_in
from workshop.bench.rig.testbed import PARTITIONS, Testbed, give_up, open_testbed, produce, where
from workshop.bench.rig.workloads import Row, Topics

BENCH = "state-growth"
COUNT, REKEYED, WINDOW = "count", "rekeyed", "window"
_SETTLE_SECONDS = 1.5
SIZES = (10_000, 100_000, 1_000_000)
_LOAD_SECONDS = 2.0
_LOAD_RATE = 20_000.0
_READY_SECONDS = 120.0
_WINDOW_MS = 1000


@click.command(help="Microseconds per record of a count as its store grows, the store's bytes per key, and the time of a commit.")
@click.option(
    "--case",
    "case",
    type=click.Choice([COUNT, REKEYED, WINDOW]),
    default=COUNT,
    show_default=True,
    help="A count by key, by another key behind a repartition, or by key and window.",
)
@click.option("--stores", "stores", multiple=True, type=click.IntRange(1), help="Numbers of such counts of the same stream; default: 1.")
@click.option("--nodes", "nodes", multiple=True, type=click.IntRange(0), help="Numbers of map_values before them; default: 0.")
@click.option("--partitions", "partitions", multiple=True, type=click.IntRange(1), help=f"Of the topics; default: {PARTITIONS}.")
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
    case: str,
    stores: tuple[int, ...],
    nodes: tuple[int, ...],
    partitions: tuple[int, ...],
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
    """Print one line per shape, size and system, and one each with the ratio of the last size to the first."""
    json_output.emit_machine()
    sizes = sizes or SIZES
    settings = Settings(EXACTLY_ONCE_V2, instances, epoch_ms=60_000, max_seconds=max_seconds, cache_bytes=cache_bytes)
    shapes = [Shape(case, *numbers) for numbers in itertools.product(stores or (1,), nodes or (0,), partitions or (PARTITIONS,))]
    with ExitStack() as stack:
        jdk = chosen_jdk(peer)
        testbed = stack.enter_context(open_testbed(bootstrap, directory))
        jvm = None if jdk is None else stack.enter_context(KafkaStreamsPeer(jdk, scratch=testbed.scratch))
        testbed.session.spark  # noqa: B018 (Spark starts before the first measured run)
        for shape in shapes:
            costs: dict[str, list[float]] = defaultdict(list)
            sized = [_Size(replace(testbed, partitions=shape.partitions), shape, keys, warm, records, settings) for keys in sizes]
            for size in sized:
                size.fill()
                peers = None if jvm is None else size.measure_peer(jvm)  # first, because our own kill adds records
                costs[""].append(size.measure(peers))
                if peers is not None:
                    costs[f" {KAFKA_STREAMS}"].append(peers)
                if clients and size is sized[-1] and shape.is_plain:
                    size.measure_clients(costs[""][0])
                testbed.admin.delete_topics([size.input])
            if len(sized) > 1:
                for system, found in costs.items():
                    name = f"{shape.named(settings)}, largest to smallest{system}"
                    json_output.emit(BENCH, name, round(found[-1] / found[0], 2), "x", sizes=list(sizes))


@dataclass(frozen=True, slots=True)
class Shape:
    """What counts the records: the kind of the count, the number of counts, of nodes before them, and of partitions."""

    case: str = COUNT
    stores: int = 1
    nodes: int = 0
    partitions: int = PARTITIONS

    @property
    def is_plain(self) -> bool:
        return self == Shape()

    def named(self, settings: Settings, keys: int | None = None) -> str:
        """Return the name of its lines."""
        of_keys = [] if keys is None else [f"{keys:,} keys"]
        cache = [] if settings.cache_bytes is None else [f"record cache of {settings.cache_bytes:,} bytes"]
        more = [f"{number} {what}" for number, what, usual in (
            (self.stores, "stores", 1), (self.nodes, "nodes", 0), (self.partitions, "partitions", PARTITIONS)
        ) if number != usual]  # fmt: skip
        return ", ".join([self.case, *cache, *of_keys, *more])

    def topology(self, topics: Topics) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream(topics.input, key_serde=serdes.string, value_serde=serdes.string)
        for _ in range(self.nodes):
            stream = stream.map_values(_same)
        options: dict[str, Any] = {"key_serde": serdes.string, "value_serde": serdes.string}
        groups = stream.group_by(lambda key, value: value, **options) if self.case == REKEYED else stream.group_by_key(**options)
        key_serde = serdes.time_windowed(serdes.string, _WINDOW_MS) if self.case == WINDOW else serdes.string
        for number in range(self.stores):
            counted = groups.windowed_by(TimeWindows.of_size(_WINDOW_MS)) if self.case == WINDOW else groups
            counts = counted.count(store=f"counts-{number}").to_stream()
            counts.to(topics.output, key_serde=key_serde, value_serde=serdes.long)
        return builder.build()

    def rows(self, keys: int, records: int) -> Iterator[Row]:
        """Yield the input: `grown_rows`; to be re-keyed, the key is the value of a record with another key."""
        rows = grown_rows(keys, records)
        if self.case != REKEYED:
            return rows
        return ((b"%d" % number, key, at_ms) for number, (key, _, at_ms) in enumerate(rows))


def _repartitioned(report: ApplicationReport) -> int:
    """Return the number of committed records behind a repartition; the few markers of transactions among them count, too."""
    return sum(offset for at, offset in report.committed.items() if at.rpartition("-")[0].endswith("-repartition"))


def _same(value: str) -> str:
    return value


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


@dataclass(frozen=True, slots=True)
class _Size:
    """One number of keys: the input of both systems, and their measurements."""

    testbed: Testbed
    shape: Shape
    keys: int
    warm: int
    records: int
    settings: Settings

    @property
    def input(self) -> str:
        return f"bench-growth-{self.keys}"

    def fill(self) -> None:
        click.echo(f"producing {self.total:,} records ...", err=True)
        rows = self.shape.rows(self.keys, self.warm + self.records)
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
        state: dict[str, float | None] = {}
        rekeyed = self.shape.case == REKEYED

        def then(app: Application) -> None:
            files = application_directory(self.testbed.session.client.state_root, name)
            commits = [metric.value for metric in app.metrics.filter("commit-latency-avg") if isinstance(metric.value, float)]
            state.update(self._state(megabytes_in(files), statistics.mean(commits) if commits else 0.0))
            if self.shape.is_plain:
                self._kill(app)

        measured = run_topology(
            self.testbed,
            self.shape.topology(topics),
            {self.input: self.total},
            self.settings,
            name,
            during=workers,
            then=then,
            settle_seconds=_SETTLE_SECONDS if rekeyed else 0.0,
            counted=_repartitioned if rekeyed else None,
        )
        self.testbed.admin.delete_topics([topics.output])
        began = measured.time_of(self.before)
        fields = {"worker_private_mb": workers.peak_private_mb, "peak_rss_mb": measured.rss_mb + measured.broker_rss_mb}
        return self._emit("", measured.ended - began, self.records, fields | state, peers)

    def _state(self, megabytes: float, commit_ms: float) -> dict[str, float | None]:
        return {
            "disk_bytes_per_key": round(megabytes * 2**20 / (self.keys * self.shape.stores), 1) or None,
            "commit_ms": round(commit_ms, 1) or None,
        }

    def measure_peer(self, peer: KafkaStreamsPeer) -> float:
        """Return the microseconds per record of all the peer's threads together."""
        name = f"growing-peer-{self.keys}"
        topics = self._topics(name)
        options = {"stores": str(self.shape.stores), "nodes": str(self.shape.nodes)}
        run = peer.run(
            self.testbed,
            f"grown-{self.shape.case}",
            topics,
            self.total,
            self.settings,
            name,
            after=self.before,
            options=options,
        )
        self.testbed.admin.delete_topics([topics.output])
        if not run.complete:
            raise give_up(f"the peer's count over {self.keys:,} keys", self.settings.max_seconds)
        fields = {"peak_rss_mb": run.rss_mb, **self._state(run.state_mb, run.commit_ms)}
        return self._emit(f" {KAFKA_STREAMS}", run.seconds, run.records, fields)

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

    def _emit(
        self, system: str, seconds: float, records: int, fields: Mapping[str, float | None], peers: float | None = None
    ) -> float:
        cost = seconds / records * 1e6
        json_output.emit(
            BENCH,
            f"{self.shape.named(self.settings, self.keys)}{system}",
            round(cost, 3),
            "us/record",
            of_peer=None if peers is None else round(cost / peers, 2),
            records_per_second=round(records / seconds),
            **fields,
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
            f"{self.shape.named(self.settings, self.keys)}, kill -9 to ready",
            round(seconds, 2),
            "s",
            restored=restored,
            keys=self.keys,
            instances=len(former),
        )
