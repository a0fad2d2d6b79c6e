"""Several applications in one session: the time until all of them have processed a record, and their cost while idle.

The clock starts at the first `deploy`, before Spark runs. The idle cost is the difference of processor seconds over an interval
that includes the end of an epoch, so it hardly depends on other load on the machine. Memory is the proportional set size: pages
shared by forked workers count once.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import psutil

from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig import json_output, workloads
from workshop.bench.rig.testbed import Testbed, give_up, open_testbed, produce, where
from workshop.bench.rig.workloads import Topics

BENCH = "many-applications"
_RECORDS = 200
_POLL_SECONDS = 0.02


@click.command(help="Several applications at once: seconds until all have processed a record, processor and memory while idle.")
@click.option("--applications", type=click.IntRange(1), default=8, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option("--pool", type=click.Choice(["own", "shared"]), default="own", show_default=True, help="repl.worker.pool.")
@click.option("--settle-seconds", type=click.FloatRange(0), default=5, show_default=True, help="Seconds before the idle measurement.")
@click.option("--idle-seconds", type=click.FloatRange(1), default=60, show_default=True, help="Seconds of the idle measurement.")
@click.option("--epoch-ms", type=click.IntRange(500), help="Length of an epoch; default: that of repl.epoch.ms.")
@click.option("--max-seconds", type=click.IntRange(1), default=180, show_default=True)
@where
def main(
    applications: int,
    instances: int,
    pool: str,
    settle_seconds: float,
    idle_seconds: float,
    epoch_ms: int | None,
    max_seconds: int,
    bootstrap: str | None,
    directory: Path | None,
) -> None:
    """Print one line each for start, processor, memory and the take-overs at epoch ends."""
    json_output.emit_machine()
    config = {
        "processing.guarantee": EXACTLY_ONCE_V2,
        "num.stream.threads": instances,
        "repl.worker.pool": pool,
        **({} if epoch_ms is None else {"repl.epoch.ms": epoch_ms}),
    }
    about = {"applications": applications, "instances": instances, "pool": pool}
    with open_testbed(bootstrap, directory) as testbed:
        names = [f"bench-many-{number}" for number in range(applications)]
        topics = [_fed(testbed, number) for number in range(applications)]
        apps: list[Any] = []
        try:
            start, used = time.perf_counter(), _cpu_by_part(testbed)
            for name, each in zip(names, topics, strict=True):
                apps.append(testbed.session.deploy(workloads.topology("count", each), name, config=config))
            _await_all(apps, max_seconds)
            taken = round(time.perf_counter() - start, 2)
            spent = _cpu_by_part(testbed)
            json_output.emit(
                BENCH,
                f"all run, {pool} pool",
                taken,
                "s",
                **{f"{part}_cpu_seconds": round(spent[part] - used[part], 1) for part in sorted(spent)},
                **about,
            )
            time.sleep(settle_seconds)
            _measure_idle(testbed, apps, pool, idle_seconds, about)
        finally:
            for app in apps:
                app.stop()
                testbed.session.cleanup(app.name)
        testbed.admin.delete_topics([topic for each in topics for topic in (each.input, each.output)])


def _fed(testbed: Testbed, number: int) -> Topics:
    """Create an application's topics, with some records in each partition of its input."""
    topics = Topics(testbed.fresh_topic(f"bench-many-in-{number}"), "", testbed.fresh_topic(f"bench-many-out-{number}"))
    now = int(time.time() * 1000)
    produce(testbed.settings, topics.input, workloads.stream_rows(_RECORDS, _RECORDS, first_ms=now))
    return topics


def _await_all(apps: list[Any], seconds: float) -> None:
    """Wait until every task of every application has committed all records of its input."""
    deadline = time.monotonic() + seconds
    waiting = list(apps)
    while waiting:
        for app in waiting:
            if app.status == "failed":
                raise app.error or KStreamsError(f"{app.name} failed")
        waiting = [app for app in waiting if sum(app.reports.committed.values()) < _RECORDS]
        if time.monotonic() > deadline:
            raise give_up(f"a first record in {', '.join(app.name for app in waiting)}", seconds)
        time.sleep(_POLL_SECONDS)


def _measure_idle(testbed: Testbed, apps: list[Any], pool: str, seconds: float, about: dict[str, Any]) -> None:
    before, places = _cpu_by_part(testbed), _processes_of(apps)
    began = time.monotonic()
    time.sleep(seconds)
    after, span = _cpu_by_part(testbed), time.monotonic() - began
    moved = sum(there != places.get(slot) for slot, there in _processes_of(apps).items())
    shares = {part: round(100 * (after[part] - before[part]) / span, 1) for part in sorted(after)}
    total = round(sum(share for part, share in shares.items() if part != "broker"), 1)
    json_output.emit(
        BENCH,
        f"idle processor, {pool} pool",
        total,
        "% of a core",
        seconds=round(span, 1),
        **{f"{part}_percent": share for part, share in shares.items()},
        **about,
    )
    json_output.emit(BENCH, f"instances that changed their process, {pool} pool", moved, "instances", seconds=round(span, 1), **about)
    memory = _memory_by_part(testbed)
    json_output.emit(
        BENCH,
        f"memory, {pool} pool",
        round(sum(mb for part, mb in memory.items() if part != "broker")),
        "MB",
        **{f"{part}_mb": round(mb) for part, mb in sorted(memory.items())},
        processes=len(testbed.own_processes()),
        **about,
    )


def _processes_of(apps: list[Any]) -> dict[tuple[str, int], int]:
    return {(app.name, slot): one.pid for app in apps for slot, one in app.reports.instances.items()}


def _cpu_by_part(testbed: Testbed) -> dict[str, float]:
    used = dict.fromkeys(("driver", "jvm", "workers", "broker"), 0.0)
    for part, processes in testbed.parts().items():
        for process in processes:
            try:
                times = process.cpu_times()
            except psutil.Error:  # the process ended after it was listed
                continue
            used[part] = used.get(part, 0.0) + times.user + times.system
    return used


def _memory_by_part(testbed: Testbed) -> dict[str, float]:
    used: dict[str, float] = {}
    for part, processes in testbed.parts().items():
        for process in processes:
            try:
                used[part] = used.get(part, 0.0) + process.memory_full_info().pss / 2**20
            except psutil.Error:
                continue
    return used
