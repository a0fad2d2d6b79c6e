"""How fast an instance restores an empty store from its changelog, by its reports: from the first report of the restore to the
first report of the running loop. The benchmark writes the changelog itself, so that its size is known and nothing else is
measured.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.host.spark.instance_reports import InstanceReport
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import TopicPartition
from workshop.bench.rig import json_output, workloads
from workshop.bench.rig.probe import await_running
from workshop.bench.rig.testbed import PARTITIONS, Testbed, give_up, open_testbed, produce, where
from workshop.bench.rig.workloads import Row, Topics

BENCH = "restore"


@click.command(help="Changelog records per second and instance into an empty store; median of the runs.")
@click.option("--records", type=click.IntRange(1), default=2_000_000, show_default=True, help="Records in the changelog.")
@click.option("--keys", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
@where
def main(records: int, keys: int, instances: int, runs: int, bootstrap: str | None, directory: Path | None) -> None:
    """Print one line for a single instance, and one for all at once if more are requested."""
    json_output.emit_machine()
    with open_testbed(bootstrap, directory) as testbed:
        app = "bench-restore"
        topics = Topics(testbed.fresh_topic("bench-restore-in"), "", testbed.fresh_topic("bench-restore-out"))
        _make_changelog(testbed, app, topics, records, keys)
        for count in dict.fromkeys((1, instances)):
            rates: list[float] = []
            for number in range(1, runs + 1):
                rates += _restore(testbed, app, topics, count, f"restore-{count}-{number}")
            case = "count, one instance" if count == 1 else f"count, each of {count} instances"
            json_output.emit(
                BENCH, case, json_output.median(rates), "records/s", **json_output.spread(rates),
                records=records, keys=keys, instances=count
            )
        testbed.session.cleanup(app)
        testbed.admin.delete_topics([topics.input, topics.output])


def _make_changelog(testbed: Testbed, app: str, topics: Topics, records: int, keys: int) -> None:
    """Let the application create its topics and stop, then fill the changelog as the application would."""
    started = testbed.session.deploy(workloads.topology("count", topics), app, config=_config(1))
    await_running(started)
    started.stop()
    produce(testbed.settings, f"{app}-counts-changelog", changelog_rows(records, keys))


def changelog_rows(records: int, keys: int, *, seed: int = 1) -> Iterator[Row]:
    """Yield counts of uniform keys in the format of a store's changelog: (key, Java's long, the record's timestamp)."""
    pick, now = random.Random(seed).randrange, int(time.time() * 1000)
    for number in range(records):
        yield b"user-%d" % pick(keys), (number + 1).to_bytes(8, "big"), now


def _config(instances: int, state: Path | None = None) -> dict[str, object]:
    config: dict[str, object] = {"processing.guarantee": EXACTLY_ONCE_V2, "num.stream.threads": instances}
    return config if state is None else {**config, "state.dir": str(state)}


def _restore(testbed: Testbed, name: str, topics: Topics, instances: int, run: str, seconds: float = 120.0) -> list[float]:
    """Deploy on an empty state directory; returns the records per second of each instance."""
    partitions = [TopicPartition(f"{name}-counts-changelog", number) for number in range(PARTITIONS)]
    ends = testbed.admin.end_offsets(partitions)
    starts = testbed.admin.beginning_offsets(partitions)
    began: dict[int, int] = {}
    ready: dict[int, InstanceReport] = {}
    app = testbed.session.deploy(workloads.topology("count", topics), name, config=_config(instances, testbed.scratch / run))
    try:
        deadline = time.monotonic() + seconds
        while True:
            reports = app.reports.instances
            for slot, one in reports.items():
                if one.state == "restoring" and one.restore_remaining:
                    began.setdefault(slot, one.at_ms)
                elif one.state == "running":
                    ready.setdefault(slot, one)
            if len(ready) == instances:
                break
            if app.status == "failed":
                raise app.error or KStreamsError(f"{name} failed")
            if time.monotonic() > deadline:
                raise give_up("the restore", seconds)
            time.sleep(0.02)
    finally:
        app.stop()
    return rates_of(ready, began, {f"0_{at.partition}": ends[at] - starts[at] for at in partitions})


def rates_of(ready: Mapping[int, InstanceReport], began: Mapping[int, int], sizes: Mapping[str, int]) -> list[float]:
    """Return the records per second of each instance.

    Args:
        ready: its first report as running. began: time of its first report as restoring (ms). sizes: of changelogs, by task.

    Raises:
        KStreamsError: an instance was ready before a report of its restore was seen, so there is nothing to measure.
    """
    rates = []
    for slot, one in ready.items():
        records = sum(size for task, size in sizes.items() if task in one.tasks)
        if slot not in began or one.at_ms <= began[slot]:
            raise KStreamsError(
                f"instance {slot} had restored {records:,} records before its first report",
                hint="use more records: --records N",
                slot=slot,
            )
        rates.append(records / ((one.at_ms - began[slot]) / 1000))
    return rates
