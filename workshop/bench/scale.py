"""Records per second of 1, 2, 4, ... instances up to the number of processors, over a number of partitions that all of these share
evenly, and the processors that each part keeps busy (`thread_times`); optionally beside as many threads of Kafka Streams.

Where broker and driver take processors from the instances, the rate says little about a machine with more of them. `without_queue` is the
rate without the time for which the poll loops (stream threads of the peer) could have run but got no processor.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click
import psutil

from kstreams_repl.engine.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from workshop.bench.peers.kafka_streams import KafkaStreamsPeer, PeerRun
from workshop.bench.rig import json_output, nexmark_events, thread_times
from workshop.bench.rig.comparison import Case, compare, comparison_options
from workshop.bench.rig.deployed import MeasuredRun, Settings
from workshop.bench.rig.nexmark_queries import QUERIES
from workshop.bench.rig.query_cases import QueryCase, query_case
from workshop.bench.rig.testbed import PARTITIONS, Testbed
from workshop.bench.rig.thread_times import BROKER, POLL_LOOP, STREAM_THREADS, ThreadSampler
from workshop.bench.rig.workloads import Row

BENCH = "scale"
DEFAULT_QUERIES = ("q1", "rekeyed")
_EVENTS_PER_INSTANCE = 1_000_000
_JVM, _OURS = "jvm", "ours"


@click.command(help="Deployed on Spark: records/s and processors used by 1, 2, 4, ... instances; --peer kafka-streams: on the JVM, too.")
@click.option("--query", "names", multiple=True, type=click.Choice(list(QUERIES)), help=f"Default: {', '.join(DEFAULT_QUERIES)}.")
@click.option("--instances", "counts", multiple=True, type=click.IntRange(1), help="Default: 1, 2, 4, ... and the number of processors.")
@click.option("--events", type=click.IntRange(50), help=f"Default: {_EVENTS_PER_INSTANCE} for each of the most instances, at least two.")
@click.option("--guarantee", type=click.Choice([EXACTLY_ONCE_V2, AT_LEAST_ONCE]), default=EXACTLY_ONCE_V2, show_default=True)
@comparison_options(runs=1, instances=False)
def main(
    names: tuple[str, ...],
    counts: tuple[int, ...],
    events: int | None,
    guarantee: str,
    commit_ms: int,
    max_seconds: int,
    **comparison: Any,
) -> None:
    """Print a line after each run, and one per query and number of instances with the ratio. Exit status 1 when outputs differ."""
    numbers = sorted(set(counts)) or counts_up_to(os.cpu_count() or 1)
    total = events or _EVENTS_PER_INSTANCE * max(2, *numbers)
    partitions = partitions_for(numbers)

    def cases(testbed: Testbed) -> Iterator[Case]:
        wide = replace(testbed, partitions=partitions)
        for name in names or DEFAULT_QUERIES:
            singles: dict[str, list[float]] = {}
            for number in numbers:
                settings = Settings(guarantee, number, commit_ms, max_seconds=max_seconds)
                yield _case(wide, settings, name, total, singles)

    compare(BENCH, cases, repeat="--query", **comparison)


def counts_up_to(processors: int) -> list[int]:
    """Return 1, 2, 4, ... and the number of processors.

    Example:
        >>> counts_up_to(12)
        [1, 2, 4, 8, 12]
    """
    return sorted({*(1 << power for power in range(processors.bit_length()) if 1 << power <= processors), processors})


def partitions_for(counts: Sequence[int]) -> int:
    """Return the number of partitions that each of the numbers of instances shares evenly, at least `PARTITIONS`.

    Example:
        >>> partitions_for([1, 2]), partitions_for([1, 2, 4, 6])
        (4, 12)
    """
    common = math.lcm(*counts)
    return common * math.ceil(PARTITIONS / common)


@dataclass(frozen=True, slots=True)
class ScaleCase(QueryCase):
    """A query on a number of instances; `singles` holds the rates of one instance, and of one thread of the peer."""

    singles: dict[str, list[float]] = field(default_factory=dict)

    def run(self, name: str, output: str) -> MeasuredRun:
        with ThreadSampler(self.testbed.parts) as threads:
            run = QueryCase.run(self, name, output)
        return replace(run, threads=thread_times.by_part(threads.between(run.began, run.ended), self.settings.instances))

    def run_peer(self, peer: KafkaStreamsPeer, name: str, output: str) -> PeerRun:
        before = {process.pid for process in self.testbed.own_processes()}

        def parts() -> dict[str, list[psutil.Process]]:
            started = [process for process in self.testbed.own_processes() if process.pid not in before]
            return {_JVM: started, BROKER: self.testbed.broker_processes()}

        with ThreadSampler(parts) as threads:
            run = QueryCase.run_peer(self, peer, name, output)
        return replace(run, threads=thread_times.by_part_of_jvm(threads.between(run.began, run.began + run.seconds), name))

    def run_fields(self, runs: Sequence[MeasuredRun] | Sequence[PeerRun]) -> dict[str, Any]:
        peers, count = isinstance(runs[-1], PeerRun), self.settings.instances
        rates = [run.rate for run in runs]
        if count == 1:
            self.singles[_JVM if peers else _OURS] = rates
        rate, single = statistics.median(rates), self.singles.get(_JVM if peers else _OURS)
        efficiency = None if single is None else round(rate / (count * statistics.median(single)), 2)
        used = [(run.threads, run.seconds) for run in runs]
        fields = thread_times.median_fields(used, STREAM_THREADS if peers else POLL_LOOP, count, rate)
        return {"efficiency": efficiency, "partitions": self.testbed.partitions, **fields}

    def ratio_fields(self, ours: Sequence[MeasuredRun], theirs: Sequence[PeerRun]) -> dict[str, Any]:
        rates = [self.run_fields(runs)["without_queue"] for runs in (ours, theirs)]
        costs = [json_output.median([run.records / max(run.cpu_seconds, 0.01) for run in runs]) for runs in (ours, theirs)]
        return {"ratio_without_queue": round(rates[0] / rates[1], 2), "ratio_per_core_second": round(costs[0] / costs[1], 2)}


def _case(testbed: Testbed, settings: Settings, name: str, events: int, singles: dict[str, list[float]]) -> ScaleCase:
    prefix = f"{BENCH}-{events}-{testbed.partitions}"
    first_ms = int(time.time() * 1000) // 60_000 * 60_000 - events // nexmark_events.EVENTS_PER_MS

    def rows(kind: str) -> tuple[int, Iterable[Row]]:
        return nexmark_events.records_of(kind, events), nexmark_events.rows_of(kind, events, first_ms=first_ms)

    label = f"{name}, {settings.instances} instance{'s' * (settings.instances > 1)}"
    case = query_case(testbed, settings, "nexmark", name, QUERIES[name], prefix, rows, label=label)
    values = {one: getattr(case, one) for one in QueryCase.__dataclass_fields__}
    numbered = f"{BENCH}-{name}-{settings.instances}"
    return ScaleCase(**values | {"application": numbered, "peer_application": f"peer-{numbered}"}, singles=singles)
