"""Whether memory grows while records are processed: a line fitted to samples of the resident memory, in MB per minute.

An application processes uniform keys at an even pace; its store has all of them after the warm-up, which is not measured. Private
memory (without file pages, such as those of memory-mapped stores) shows a leak; the total shows what a machine needs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig import json_output, workloads
from workshop.bench.rig.pace import Pace, uniform_rows
from workshop.bench.rig.probe import await_running
from workshop.bench.rig.processes import resident_and_private
from workshop.bench.rig.testbed import Testbed, open_testbed, where
from workshop.bench.rig.workloads import Topics

BENCH = "memory"
GROUPS = {"workers": "workers", "driver": "driver", "Spark's JVM": "jvm"}
"""Name of each group of processes in a line, and in `Testbed.parts`."""
_SAMPLE_SECONDS = 1.0
_LEAST_WARM_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class MemorySample:
    """One sample, at a time in seconds since the start: resident bytes, and the private bytes among them."""

    at: float
    rss: int
    private: int


@click.command(help="Growth of memory in MB per minute while records are processed at an even pace, after a warm-up.")
@click.option("--seconds", type=click.FloatRange(5), default=600, show_default=True, help="Seconds of the measurement, after the warm-up.")
@click.option("--warm", type=click.FloatRange(0), help="Seconds of the warm-up; default: a fifth of the measurement, at least 15.")
@click.option("--workload", type=click.Choice(["count", "sum", "window"]), default="count", show_default=True)
@click.option("--keys", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--rate", type=click.FloatRange(1), default=20_000, show_default=True, help="Records per second.")
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@where
def main(
    seconds: float,
    warm: float | None,
    workload: str,
    keys: int,
    rate: float,
    instances: int,
    bootstrap: str | None,
    directory: Path | None,
) -> None:
    """Print one line per group of processes."""
    json_output.emit_machine()
    warm = max(_LEAST_WARM_SECONDS, seconds / 5) if warm is None else warm
    with open_testbed(bootstrap, directory) as testbed:
        topics = Topics(testbed.fresh_topic("bench-memory-in"), "", testbed.fresh_topic("bench-memory-out"))
        config = {"processing.guarantee": EXACTLY_ONCE_V2, "num.stream.threads": instances}
        app = testbed.session.deploy(workloads.topology(workload, topics), "bench-memory", config=config)
        try:
            await_running(app)
            with Pace(testbed, topics.input, uniform_rows(keys), rate) as pace:
                samples = _sampled(testbed, app, pace, warm, seconds)
                sent, processed = pace.sent, app.reports.records
        finally:
            app.stop()
            testbed.session.cleanup("bench-memory")
            testbed.admin.delete_topics([topics.input, topics.output])
    for group in GROUPS:
        _emit_growth(group, samples[group], workload=workload, keys=keys, pace=rate, sent=sent, processed=processed, instances=instances)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the straight line fitted to the points (least squares), per unit of x; 0 for fewer than two points.

    Example:
        >>> slope([(0, 5.0), (1, 7.0), (2, 9.0)])
        2.0
    """
    count = len(points)
    if count < 2:
        return 0.0
    middle = sum(x for x, _ in points) / count
    level = sum(y for _, y in points) / count
    spread = sum((x - middle) ** 2 for x, _ in points)
    return sum((x - middle) * (y - level) for x, y in points) / spread if spread else 0.0


def per_minute(samples: Sequence[MemorySample]) -> float:
    """Return the growth of private memory in MB per minute."""
    return round(slope([(sample.at / 60, sample.private / 2**20) for sample in samples]), 3)


def _emit_growth(group: str, samples: list[MemorySample], **fields: object) -> None:
    half = samples[len(samples) // 2 :]
    json_output.emit(
        BENCH,
        f"{group}, private memory",
        per_minute(samples),
        "MB/min",
        second_half=per_minute(half),
        first_mb=round(samples[0].private / 2**20),
        last_mb=round(samples[-1].private / 2**20),
        peak_rss_mb=round(max(sample.rss for sample in samples) / 2**20),
        samples=len(samples),
        seconds=round(samples[-1].at - samples[0].at),
        **fields,
    )


def _sampled(testbed: Testbed, app: Application, pace: Pace, warm: float, seconds: float) -> dict[str, list[MemorySample]]:
    """Return the samples of each group, without the warm-up."""
    found: dict[str, list[MemorySample]] = {group: [] for group in GROUPS}
    began = time.monotonic()
    while (at := time.monotonic() - began) < warm + seconds:
        if app.status == "failed":
            raise app.error or KStreamsError(f"{app.name} failed")
        pace.check()
        if at >= warm:
            for group, (rss, private) in memory_by_group(testbed).items():
                found[group].append(MemorySample(at, rss, private))
        time.sleep(_SAMPLE_SECONDS)
    return found


def memory_by_group(testbed: Testbed) -> dict[str, tuple[int, int]]:
    """Return (resident, private) bytes of each group."""
    parts = testbed.parts()
    return {group: resident_and_private(parts[part]) for group, part in GROUPS.items()}
