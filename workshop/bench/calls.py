"""Asynchronous nodes, deployed on Spark under exactly once, on one partition: calls that wait, many at a time.

Each call's result holds when it began and when it ended, and the clock runs from the first beginning to the last end. Every record's
result is in the output exactly once, or the run is an error. Ideal: the sum of all waits divided by the calls in flight, or by the keys if
there are fewer.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from kstreams_repl import StreamsBuilder
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.peers.kafka_streams import chosen_jdk
from workshop.bench.peers.parallel_consumer import PARALLEL_CONSUMER, ParallelConsumerPeer
from workshop.bench.rig import json_output
from workshop.bench.rig.deployed import Settings
from workshop.bench.rig.testbed import Testbed, give_up, open_testbed, produce, where
from workshop.bench.rig.workloads import Row

BENCH = "async"
_TABLE_RECORDS, _TABLE_IN_FLIGHT, _TABLE_MICROSECONDS = 10_000, 100, 5_000
_MAX_SECONDS = 120


async def waited(microseconds: str) -> str:
    """Wait as a service would; return when the call began and ended (seconds since 1970)."""
    began = time.time()
    await asyncio.sleep(int(microseconds) / 1e6)
    return f"{began:.6f} {time.time():.6f}"


def topology(source: str, sink: str, in_flight: int) -> Any:
    """Return a topology that calls `waited` for each record of a topic."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde="string", value_serde="string")
    stream.map_values_async(waited, in_flight=in_flight, name="call").to(sink, key_serde="string", value_serde="string")
    return builder.build()


def fixed_rows(records: int, microseconds: int) -> list[Row]:
    """Return records with a key of their own and the same wait."""
    return [(b"key-%d" % at, b"%d" % microseconds, 1_700_000_000_000 + at) for at in range(records)]


def random_rows(records: int, keys: int, most: int = _TABLE_MICROSECONDS) -> list[Row]:
    """Return records whose waits are random between 0 and `most` microseconds."""
    pick = random.Random(keys)
    return [(b"key-%d" % (at % keys), b"%d" % pick.randrange(most), 1_700_000_000_000 + at) for at in range(records)]


def seconds_alone(rows: list[Row], in_flight: int) -> float:
    """Return how long the calls take in an event loop that does nothing else, without order."""

    async def all_calls() -> None:
        left: Iterator[Row] = iter(rows)

        async def worker() -> None:
            for _, value, _ in left:
                await waited(value.decode())

        await asyncio.gather(*(worker() for _ in range(in_flight)))

    began = time.perf_counter()
    asyncio.run(all_calls())
    return time.perf_counter() - began


def seconds_deployed(testbed: Testbed, source: str, records: int, in_flight: int, settings: Settings, name: str) -> float:
    """Deploy, wait until every result is committed, and return the seconds from the first call to the end of the last.

    Raises:
        KStreamsError: the application failed, did not finish in time, or lost or doubled a result.
    """
    sink = testbed.fresh_topic(f"{name}-out", 1)
    app = testbed.session.deploy(topology(source, sink, in_flight), name, config=settings.config())
    try:
        deadline = time.monotonic() + settings.max_seconds
        while True:
            if app.status == "failed":
                raise app.error or KStreamsError(f"{name} failed")
            if time.monotonic() > deadline:
                raise give_up(f"{records:,} results", settings.max_seconds)
            time.sleep(0.5)
            committed = read_ranges(testbed.settings, ranges_of(testbed.admin, sink, settled=True))
            found = [value for _, batch in committed for value in batch.values]
            if len(found) >= records:
                break
    finally:
        app.stop()
        testbed.session.cleanup(name)
    testbed.admin.delete_topics([sink])
    if len(found) != records:
        raise KStreamsError(f"{records:,} records have {len(found):,} results", hint="this is an error of kstreams_repl: report it")
    times = [tuple(map(float, value.split())) for value in found if value is not None]
    return max(ended for _, ended in times) - min(began for began, _ in times)


def ideal(rows: list[Row], in_flight: int) -> float:
    """Return the seconds of a machine without any cost."""
    places = min(in_flight, len({key for key, _, _ in rows}))
    return sum(int(value) for _, value, _ in rows) / 1e6 / places


@click.command(help="Asynchronous calls: records/s on one partition, against one call at a time and against the ideal.")
@click.option("--records", default=60_000, show_default=True, help="Records of the case with 1,000 calls in flight.")
@click.option("--runs", default=3, show_default=True, help="Runs of each case; the value is the median.")
@click.option("--keys", multiple=True, type=int, default=(20, 100, 1_000, 10_000), show_default=True, help="Keys of the table.")
@click.option("--commit-ms", default=100, show_default=True)
@click.option("--peer", type=click.Choice([PARALLEL_CONSUMER]), help="Also run this peer; needs a JDK (javac).")
@where
def main(
    records: int, runs: int, keys: tuple[int, ...], commit_ms: int, peer: str | None, bootstrap: str | None, directory: Path | None
) -> None:
    """Print one line per case and system."""
    json_output.emit_machine()
    settings = Settings(instances=1, commit_ms=commit_ms, max_seconds=_MAX_SECONDS)
    jdk = chosen_jdk(peer)
    with ExitStack() as stack:
        testbed = stack.enter_context(open_testbed(bootstrap, directory))
        other = None if jdk is None else stack.enter_context(ParallelConsumerPeer(jdk, scratch=testbed.scratch))
        case = _Case(testbed, settings, runs, other)
        case.measure("1,000 in flight, 50 ms", fixed_rows(records, 50_000), 1_000)
        many = case.measure("64 in flight, 50 ms", fixed_rows(12_800, 50_000), 64)
        one = case.measure("1 in flight, 50 ms", fixed_rows(200, 50_000), 1)
        json_output.emit(BENCH, "64 in flight to 1", round(many / one, 1), "x")
        for number in keys:
            case.measure(f"table, {number:,} keys", random_rows(_TABLE_RECORDS, number), _TABLE_IN_FLIGHT)


class _Case:
    """Measures cases on one testbed; the systems take turns."""

    def __init__(self, testbed: Testbed, settings: Settings, runs: int, peer: ParallelConsumerPeer | None) -> None:
        self._testbed, self._settings, self._runs, self._peer = testbed, settings, runs, peer
        self._number = 0

    def measure(self, case: str, rows: list[Row], in_flight: int) -> float:
        """Print a line per system; return our median rate."""
        source = self._testbed.fresh_topic("bench-async-in", 1)
        produce(self._testbed.settings, source, rows)
        times: dict[str, list[float]] = {case: [], f"{case} event loop alone": [], f"{case} {PARALLEL_CONSUMER}": []}
        for _ in range(self._runs):
            self._number += 1
            name = f"bench-async-{self._number}"
            found = iter(times.values())
            next(found).append(seconds_deployed(self._testbed, source, len(rows), in_flight, self._settings, name))
            next(found).append(seconds_alone(rows, in_flight))
            if self._peer is not None:
                next(found).append(self._peer.run(self._testbed, source, len(rows), in_flight, f"peer-{name}"))
        self._testbed.admin.delete_topics([source])
        best = ideal(rows, in_flight)
        for system, taken in times.items():
            if taken:
                rates = [len(rows) / seconds for seconds in taken]
                seconds = statistics.median(taken)
                json_output.emit(
                    BENCH,
                    system,
                    json_output.median(rates),
                    "records/s",
                    **json_output.spread(rates),
                    seconds=round(seconds, 3),
                    of_ideal=round(best / seconds, 2),
                    records=len(rows),
                    in_flight=in_flight,
                )
        return statistics.median([len(rows) / seconds for seconds in times[case]])
