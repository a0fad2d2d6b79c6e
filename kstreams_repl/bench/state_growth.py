"""What a record costs as the store grows: counts over more and more uniform keys, each measured only after the store is full.

The topic of a size holds every key once, then uniform records; the clock runs over the second part. After it the workers are killed with
kill -9 while more records come in, and the time is taken until every instance runs again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import click

from kstreams_repl.bench import lines
from kstreams_repl.bench.deployed import Settings, run_workload
from kstreams_repl.bench.memory import Pace
from kstreams_repl.bench.site import Site, give_up, open_site, produce, where
from kstreams_repl.bench.workloads import Row, Topics
from kstreams_repl.config import EXACTLY_ONCE_V2
from kstreams_repl.errors import KStreamsError
from kstreams_repl.session.application import Application

BENCH = "state-growth"
SIZES = (10_000, 100_000, 1_000_000)
_LOAD_SECONDS = 2.0
_LOAD_RATE = 20_000.0
_READY_SECONDS = 120.0


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
    name = f"bench-growth-{keys}"
    measured = run_workload(
        site, "count", topics, keys + records, settings, name, then=lambda app: _kill(site, app, topics.input, keys)
    )
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


def _kill(site: Site, app: Application, topic: str, keys: int) -> None:
    """kill -9 of every worker while records come in; tells when all instances run again, and what they restored."""
    with Pace(site, topic, keys, _LOAD_RATE) as pace:
        time.sleep(_LOAD_SECONDS)
        former = {slot: one.pid for slot, one in app.reports.instances.items()}
        began = time.monotonic()
        for pid in set(former.values()):
            os.kill(pid, signal.SIGKILL)
        while True:
            told = app.reports.instances
            if all(one.pid != former[slot] and one.state == "running" for slot, one in told.items()):
                break
            if app.status == "failed":
                raise app.error or KStreamsError(f"{app.name} failed")
            if time.monotonic() > began + _READY_SECONDS:
                raise give_up("the instances to run again", _READY_SECONDS)
            time.sleep(0.01)
        seconds = time.monotonic() - began
        pace.check()
    restored = sum(one.restored for one in told.values())
    lines.emit(
        BENCH, f"kill -9 to ready, {keys:,} keys", round(seconds, 2), "s", restored=restored, keys=keys, instances=len(former)
    )
