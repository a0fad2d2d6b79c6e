"""`./kstreams bench theodolite`: Theodolite's use cases UC1 to UC4 and ShuffleBench's routing to stateful consumers, deployed on Spark;
optionally compared with their twins on Kafka Streams.

Without `--load` the records are on the topic before the start, and the clock is that of `query_cases`. With it they arrive at a steady
rate, and the criterion is that of `lag_trend`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

from kstreams_repl.engine.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from workshop.bench.lag_trend import LagTrend, observe_lag
from workshop.bench.peers.kafka_streams import KAFKA_STREAMS, KafkaStreamsPeer
from workshop.bench.rig import json_output
from workshop.bench.rig.comparison import Case, both_systems, compare, comparison_options
from workshop.bench.rig.deployed import Clients, Settings
from workshop.bench.rig.probe import check_of
from workshop.bench.rig.query_cases import QueryCase, query_case
from workshop.bench.rig.testbed import Testbed
from workshop.bench.rig.theodolite_queries import QUERIES, group_rows, rows_of
from workshop.bench.rig.workloads import Row, Topics

BENCH, LOADS = "theodolite", "lag-trend"
_BEFORE_MS = 3_600_000
"""The groups of sensors are older than their records."""


@click.command(
    help="Theodolite's UC1 to UC4 and ShuffleBench deployed on Spark: records/s, or with --load whether a steady load is held; "
    "--peer kafka-streams also runs their twins on the JVM."
)
@click.option("--query", "names", multiple=True, type=click.Choice(list(QUERIES)), help="Only these; default: all.")
@click.option("--records", type=click.IntRange(1), default=200_000, show_default=True, help="uc1, uc2: ten times; uc4: twice; shuffle: 5.")
@click.option("--sensors", type=click.IntRange(1), default=10_000, show_default=True, help="One record each per second; --load sets it.")
@click.option("--load", type=click.IntRange(1), help="Records per second that arrive: does the lag grow?")
@click.option("--doublings", type=click.IntRange(0), default=0, show_default=True, help="Double a held load so many times.")
@click.option("--seconds", type=click.FloatRange(2), default=60, show_default=True, help="Of one load, after the warm-up.")
@click.option("--warm-seconds", type=click.FloatRange(0), default=30, show_default=True, help="Of one load, before the lag counts.")
@click.option("--guarantee", type=click.Choice([EXACTLY_ONCE_V2, AT_LEAST_ONCE]), default=EXACTLY_ONCE_V2, show_default=True)
@comparison_options(runs=1)
def main(
    names: tuple[str, ...],
    records: int,
    sensors: int,
    load: int | None,
    doublings: int,
    seconds: float,
    warm_seconds: float,
    guarantee: str,
    instances: int,
    commit_ms: int,
    max_seconds: int,
    peer: str | None,
    bootstrap: str | None,
    directory: Path | None,
    runs: int,
    clients: tuple[Clients, ...],
) -> None:
    """Print a line after each run, and one per query with the ratio. Exit status 1 when outputs differ, or cannot be compared."""
    settings = Settings(guarantee, instances, commit_ms, max_seconds=max_seconds)
    chosen = names or tuple(QUERIES)
    if load is None:

        def cases(testbed: Testbed) -> Iterator[Case]:
            for name in chosen:
                yield _case(testbed, settings, name, records * QUERIES[name].scale, sensors)

        compare(BENCH, cases, runs=runs, peer=peer, bootstrap=bootstrap, directory=directory, clients=clients, repeat="--query")
        return
    settings = replace(settings, clients=clients[-1])
    loads = [load << number for number in range(doublings + 1)]
    with both_systems(peer, bootstrap, directory) as (testbed, jvm):
        for name in chosen:
            _search(_Steady(testbed, settings, name, warm_seconds, seconds), jvm, loads)


def _case(testbed: Testbed, settings: Settings, name: str, records: int, sensors: int) -> QueryCase:
    first_ms = int(time.time() * 1000) - _BEFORE_MS - records * 1000 // sensors
    groups = group_rows(sensors, at_ms=first_ms - _BEFORE_MS)

    def rows(kind: str) -> tuple[int, Iterable[Row]]:
        return (len(groups), groups) if kind == "groups" else (records, rows_of(name, sensors, first_ms=first_ms, records=records))

    prefix = f"{name.partition('-')[0]}-{records}-{sensors}"
    return query_case(testbed, settings, BENCH, name, QUERIES[name], prefix, rows)


@dataclass(frozen=True, slots=True)
class _Steady:
    """One query under steady loads."""

    testbed: Testbed
    settings: Settings
    name: str
    warm_seconds: float
    seconds: float

    def observe(self, load: int, peer: KafkaStreamsPeer | None) -> LagTrend:
        """Run it under one load, on the peer if there is one, and delete what the run made."""
        testbed, query = self.testbed, QUERIES[self.name]
        name = f"{BENCH}-{'' if peer is None else 'peer-'}{self.name}-{load}"
        prefix = f"load-{name}"
        inputs = [testbed.fresh_topic(f"{prefix}-input"), testbed.fresh_topic(f"{prefix}-out")]
        try:
            if query.tables:
                groups = group_rows(load, at_ms=int(time.time() * 1000) - _BEFORE_MS)
                testbed.fill(f"{prefix}-groups", len(groups), groups)
                inputs.append(f"{prefix}-groups")
            with query.feedback(testbed, inputs[1]) as fed_back:
                topics = Topics(prefix, "", inputs[1])
                running: AbstractContextManager[Callable[[], None]] = (
                    self._running(name, topics)
                    if peer is None
                    else peer.running(testbed, self.name, topics, self.settings, name, twins=BENCH)
                )
                with running as check:
                    return observe_lag(
                        testbed,
                        name,
                        [inputs[0], *fed_back],
                        lambda first_ms: rows_of(self.name, load, first_ms=first_ms),
                        load,
                        warm_seconds=self.warm_seconds,
                        seconds=self.seconds,
                        max_seconds=self.settings.max_seconds,
                        check=check,
                    )
        finally:
            testbed.admin.delete_topics(inputs)

    @contextmanager
    def _running(self, name: str, topics: Topics) -> Iterator[Callable[[], None]]:
        """Run the query on Spark for as long as the block lasts; yields a function that raises if it has failed."""
        topology = QUERIES[self.name].topology(topics.input, topics.output)
        app = self.testbed.session.deploy(topology, name, config=self.settings.config())
        try:
            yield check_of(app)
        finally:
            app.stop()
            self.testbed.session.cleanup(name)


def _search(steady: _Steady, peer: KafkaStreamsPeer | None, loads: list[int]) -> None:
    """Try the loads in ascending order, each system until it does not hold one; print a line per load, and the largest one held."""
    systems = {"": None} | ({} if peer is None else {f" {KAFKA_STREAMS}": peer})
    held: dict[str, int] = dict.fromkeys(systems, 0)
    ended: dict[str, LagTrend] = {}
    for load in loads:
        for system, jvm in systems.items():
            if system in ended:
                continue
            trend = steady.observe(load, jvm)
            _emit(steady, system, trend)
            if trend.held:
                held[system] = load
            else:
                ended[system] = trend
    for system, most in held.items():
        last = ended.get(system)
        tried = None if last is None else last.load
        why = None if last is None else "lag" if last.held is False else "producer"
        json_output.emit(LOADS, f"{steady.name} load held{system}", most, "records/s", not_held=tried, limited_by=why)
    if peer is not None and all(held.values()):
        json_output.emit(LOADS, f"{steady.name} load held ratio", round(held[""] / held[f" {KAFKA_STREAMS}"], 2), "x")


def _emit(steady: _Steady, system: str, trend: LagTrend) -> None:
    lags = [lag for _, lag in trend.samples]
    json_output.emit(
        LOADS,
        f"{steady.name} at {trend.load:,}/s{system}",
        trend.slope,
        "records/s",
        held=trend.held,
        below=trend.threshold,
        reached=trend.reached,
        mean_lag=json_output.rounded(sum(lags) / max(len(lags), 1), 0),
        last_lag=lags[-1] if lags else None,
        seconds=steady.seconds,
        instances=steady.settings.instances,
    )
