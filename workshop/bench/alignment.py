"""Records that windows without grace lose behind a repartition, of history in order in each partition: a day of events, re-keyed and
counted by the hour, in several shapes, with one instance or more. The measure is the difference to a plain computation over the source.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from kstreams_repl import StreamsBuilder, TimeWindows, serdes
from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.host.kafka.clients import make_producer
from kstreams_repl.system.errors import ProductionError
from workshop.bench.peers.kafka_streams import KAFKA_STREAMS, KafkaStreamsPeer, chosen_jdk, peer_option
from workshop.bench.rig import json_output
from workshop.bench.rig.deployed import Settings, run_topology
from workshop.bench.rig.outputs import Compared, read_output
from workshop.bench.rig.testbed import Testbed, open_testbed, where
from workshop.bench.rig.workloads import Topics

BENCH = "alignment"
SHAPES = ("even", "skewed", "empty", "gap")
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_FIRST_MS = 1_700_000_000_000 // _DAY_MS * _DAY_MS
_GROUPS = 50
_SETTLE_SECONDS = 4.0


@click.command(help="Records that hourly windows lose behind a repartition, of history in order in each partition.")
@click.option("--records", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--partitions", "sizes", multiple=True, type=click.IntRange(3), help="Numbers of partitions; default: 4 and 16.")
@click.option("--instances", "instances", multiple=True, type=click.IntRange(1), help="Numbers of instances; default: 1, 2 and 4.")
@click.option("--shape", "shapes", multiple=True, type=click.Choice(SHAPES), help="Only these; default: all.")
@click.option("--grace", "grace", type=click.IntRange(0), default=0, show_default=True, help="Grace of the windows in ms.")
@click.option("--window", "window", type=click.IntRange(1), default=_HOUR_MS, show_default=True, help="Size of the windows in ms.")
@click.option("--max-seconds", type=click.IntRange(1), default=600, show_default=True, help="Seconds allowed for one run.")
@peer_option
@where
def main(
    records: int,
    sizes: tuple[int, ...],
    instances: tuple[int, ...],
    shapes: tuple[str, ...],
    grace: int,
    window: int,
    max_seconds: int,
    peer: str | None,
    bootstrap: str | None,
    directory: Path | None,
) -> None:
    """Print one line per shape, number of partitions and number of instances, and the same for the peer."""
    if peer is not None and window != _HOUR_MS:
        raise click.UsageError("the peer counts by the hour: give --peer or --window, not both")
    json_output.emit_machine()
    with ExitStack() as stack:
        jdk = chosen_jdk(peer)
        testbed = stack.enter_context(open_testbed(bootstrap, directory))
        jvm = None if jdk is None else stack.enter_context(KafkaStreamsPeer(jdk, scratch=testbed.scratch))
        for shape in shapes or SHAPES:
            for partitions in sizes or (4, 16):
                history = _History(testbed, shape, times_of(shape, partitions, records), grace, window)
                history.fill()
                for count in instances or (1, 2, 4):
                    settings = Settings(EXACTLY_ONCE_V2, count, max_seconds=max_seconds)
                    history.measure(settings)
                    if jvm is not None:
                        history.measure_peer(jvm, settings)
                testbed.admin.delete_topics([history.topic])


def times_of(shape: str, partitions: int, records: int) -> list[list[int]]:
    """Return the timestamps of each partition, in order: even; one partition ten times larger; one empty; one with a gap of a day."""

    def day(count: int, seed: int, *, begin: int = 0, end: int = _DAY_MS) -> list[int]:
        pick = random.Random(seed).randrange
        return sorted(_FIRST_MS + pick(begin, end) for _ in range(count))

    if shape == "skewed":
        each = records // (partitions + 9)
        return [day(10 * each, 0), *(day(each, seed) for seed in range(1, partitions))]
    times = [day(records // partitions, seed) for seed in range(partitions)]
    if shape == "empty":
        times[1] = []
    if shape == "gap":
        half = records // partitions // 2
        times[1] = day(half, 1) + day(half, 1, begin=2 * _DAY_MS, end=3 * _DAY_MS)
        times[2] = day(2 * half, 2, end=3 * _DAY_MS)
    return times


def topology(topics: Topics, grace: int, window: int) -> Any:
    """Return the topology: re-keyed by the value, counted by windows of a size (ms)."""
    builder = StreamsBuilder()
    stream = builder.stream(topics.input, key_serde=serdes.string, value_serde=serdes.string)
    grouped = stream.select_key(lambda key, value: value).group_by_key(key_serde=serdes.string, value_serde=serdes.string)
    counts = grouped.windowed_by(TimeWindows.of_size(window, grace=grace)).count(store="hours", retention=timedelta(days=10))
    counts.to_stream().to(topics.output, key_serde=serdes.time_windowed(serdes.string, window), value_serde=serdes.long)
    return builder.build()


@dataclass(frozen=True, slots=True)
class _History:
    """One topic of history and the runs over it."""

    testbed: Testbed
    shape: str
    times: Sequence[Sequence[int]]
    grace: int
    window: int

    @property
    def topic(self) -> str:
        return f"alignment-{self.shape}-{len(self.times)}"

    @property
    def records(self) -> int:
        return sum(map(len, self.times))

    def rows(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (partition, timestamp, value)."""
        for partition, stamps in enumerate(self.times):
            for number, stamp in enumerate(stamps):
                yield partition, stamp, b"g%d" % (number * 7 % _GROUPS)

    def fill(self) -> None:
        """Write the topic."""
        click.echo(f"producing {self.records:,} records to {self.topic} ...", err=True)
        self.testbed.fresh_topic(self.topic, len(self.times))
        failed: list[Any] = []
        producer = make_producer(self.testbed.settings, on_delivery_error=lambda error, message: failed.append(error))
        try:
            for partition, stamp, value in self.rows():
                while True:
                    try:
                        producer.produce(self.topic, value, b"k", partition, None, None, stamp)
                        break
                    except BufferError:
                        producer.poll(0.05)
            left = producer.flush(60)
        finally:
            producer.close()
        if failed or left:
            raise ProductionError(f"{len(failed) + left} records for topic {self.topic!r} are not on the broker", topic=self.topic)

    def expected(self) -> dict[bytes, int]:
        """Return the count of each window: a plain computation over the source."""
        counts: Counter[bytes] = Counter()
        for _, stamp, value in self.rows():
            counts[value + (stamp // self.window * self.window).to_bytes(8, "big")] += 1
        return counts

    def measure(self, settings: Settings) -> None:
        """Run it here and print a line."""
        topics = Topics(self.topic, output=self.testbed.fresh_topic("alignment-out"))
        run = run_topology(
            self.testbed,
            topology(topics, self.grace, self.window),
            {self.topic: self.records},
            settings,
            "bench-alignment",
            settle_seconds=_SETTLE_SECONDS,
        )
        self._emit("", topics, settings, run.seconds)

    def measure_peer(self, peer: KafkaStreamsPeer, settings: Settings) -> None:
        """Run it on the peer and print a line."""
        topics = Topics(self.topic, output=self.testbed.fresh_topic("alignment-out-peer"))
        settle = int(_SETTLE_SECONDS * 1000)
        options = {"grace-ms": str(self.grace)}
        run = peer.run(self.testbed, "hours", topics, self.records, settings, "peer-alignment", settle_ms=settle, options=options)
        self._emit(f" {KAFKA_STREAMS}", topics, settings, run.seconds)

    def _emit(self, system: str, topics: Topics, settings: Settings, seconds: float) -> None:
        output = read_output(self.testbed, topics.output, Compared.TABLE)
        found = {key: int.from_bytes(value or b"", "big") for key, value in output.last.items()}
        expected = self.expected()
        lost = sum(count - found.get(window, 0) for window, count in expected.items())
        wrong = sum(count != found.get(window) for window, count in expected.items()) + len(found.keys() - expected.keys())
        case = f"{self.shape}, {len(self.times)} partitions, {settings.instances} instances{system}"
        fields = {"lost": lost, "records": self.records, "wrong_windows": wrong, "windows": len(expected), "grace_ms": self.grace}
        fields["window_ms"] = self.window
        json_output.emit(BENCH, case, round(100 * lost / self.records, 4), "% lost", seconds=round(seconds, 1), **fields)
