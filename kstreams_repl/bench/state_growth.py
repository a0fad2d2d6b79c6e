"""What a record costs as the store grows: counts over more and more uniform keys, each measured only after the store is full.

The topic of a size holds every key once, then uniform records; the clock runs over the second part.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import click

from kstreams_repl.bench import lines
from kstreams_repl.bench.deployed import Settings, run_workload
from kstreams_repl.bench.site import Site, open_site, produce, where
from kstreams_repl.bench.workloads import Row, Topics
from kstreams_repl.config import EXACTLY_ONCE_V2

BENCH = "state-growth"
SIZES = (10_000, 100_000, 1_000_000)


@click.command(help="Microseconds per record of a count as its store grows from 10 k keys on.")
@click.option(
    "--keys",
    "sizes",
    multiple=True,
    type=click.IntRange(1),
    help="Sizes; default: 10 k, 100 k, 1 M (10000000 needs some minutes).",
)
@click.option(
    "--records", type=click.IntRange(1), default=1_000_000, show_default=True, help="Measured, after every key was there once."
)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option("--max-seconds", type=click.IntRange(1), default=600, show_default=True, help="Of one size.")
@where
def main(
    sizes: tuple[int, ...], records: int, instances: int, max_seconds: int, bootstrap: str | None, directory: Path | None
) -> None:
    """One line per size, and one with the ratio of the last to the first."""
    lines.emit_machine()
    settings = Settings(EXACTLY_ONCE_V2, instances, epoch_ms=60_000, max_seconds=max_seconds)
    costs: list[float] = []
    with open_site(bootstrap, directory) as site:
        site.session.spark  # noqa: B018 (a cold Spark is no part of any run)
        for keys in sizes or SIZES:
            costs.append(_size(site, keys, records, settings))
    if len(costs) > 1:
        lines.emit(BENCH, "largest to smallest", round(costs[-1] / costs[0], 2), "x", sizes=list(sizes or SIZES))


def grown_rows(keys: int, records: int, *, seed: int = 1) -> Iterator[Row]:
    """Every key once, then so many records of uniform keys."""
    pick, now = random.Random(seed).randrange, int(time.time() * 1000)
    for key in range(keys):
        yield b"user-%d" % key, b"1", now
    for _ in range(records):
        yield b"user-%d" % pick(keys), b"1", now


def _size(site: Site, keys: int, records: int, settings: Settings) -> float:
    """Microseconds of all instances together per record, at a size."""
    topics = Topics(site.fresh_topic(f"bench-growth-{keys}"), "", site.fresh_topic(f"bench-growth-{keys}-out"))
    click.echo(f"producing {keys + records:,} records ...", err=True)
    produce(site.settings, topics.input, grown_rows(keys, records))
    measured = run_workload(site, "count", topics, keys + records, settings, f"bench-growth-{keys}")
    site.admin.delete_topics([topics.input, topics.output])
    filled = measured.moment_of(keys)
    seconds = measured.ended - filled
    cost = seconds / records * 1e6
    lines.emit(
        BENCH,
        f"count, {keys:,} keys",
        round(cost, 3),
        "us/record",
        records_per_second=round(records / seconds),
        fill_records_per_second=round(keys / (filled - measured.began)),
        peak_rss_mb=measured.rss_mb + measured.broker_rss_mb,
        records=records,
        keys=keys,
        instances=settings.instances,
    )
    return cost
