"""The duration of control operations as a user sees it: deploy in a warm session until the first record is written and committed,
pause, resume until the next record is written, an edit of one function until a record that passed the new function is written,
stop.

Every ten seconds Spark ends the workers that have been idle for more than a minute, so a worker may live for 70 seconds; the
resume after a long pause comes later than that, and its line reports how many processes are new.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.host.spark.instance_reports import ApplicationReport
from workshop.bench.rig import json_output
from workshop.bench.rig.probe import Probe, await_running, check_of, edited, passing, warm_up
from workshop.bench.rig.testbed import Testbed, open_testbed, where

BENCH = "control"
DEPLOY, PAUSE, RESUME, EDIT, STOP = "deploy to first record", "pause", "resume to first record", "edit to first record", "stop"
_SETTLED_SECONDS = 1.0


@click.command(help="Seconds: deploy in a warm session to first record, pause, resume and edit to first record, stop; median of the runs.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(0),
    default=75,
    show_default=True,
    help="Pause of one additional resume, in seconds; Spark drops idle workers after 60 to 70 s. 0: skip it.",
)
@where
def main(runs: int, instances: int, idle_seconds: float, bootstrap: str | None, directory: Path | None) -> None:
    """Print one line per step."""
    json_output.emit_machine()
    taken = _Taken()
    with open_testbed(bootstrap, directory) as testbed:
        warm_up(testbed, instances=instances)
        for number in range(1, runs + 1):
            _live(testbed, f"bench-control-{number}", instances, idle_seconds if number == runs else 0.0, taken)
    taken.emit(instances)


class _Taken:
    """Seconds of each step, one value per run; for a resume also the number of new processes."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}
        self._new: dict[str, list[int]] = {}

    def add(self, step: str, seconds: float, new_processes: int | None = None) -> None:
        self._seconds.setdefault(step, []).append(seconds)
        if new_processes is not None:
            self._new.setdefault(step, []).append(new_processes)

    def emit(self, instances: int) -> None:
        """Print one line per step; `new_processes` is the maximum over its runs."""
        for step, values in self._seconds.items():
            fields = {"instances": instances, "new_processes": max(self._new[step]) if step in self._new else None}
            json_output.emit(BENCH, step, json_output.median(values, digits=3), "s", **json_output.spread(values, digits=3), **fields)


def _live(testbed: Testbed, name: str, instances: int, idle_seconds: float, taken: _Taken) -> None:
    """Measure one application from deploy to stop."""
    source, sink = testbed.fresh_topic("bench-control-in"), testbed.fresh_topic("bench-control-out")
    config = {"processing.guarantee": EXACTLY_ONCE_V2, "num.stream.threads": instances}
    app: Any = None
    with Probe(testbed.settings, source, sink) as probe:
        probe.send()  # available on the topic when the application starts
        topology = passing(source, sink)
        start = time.perf_counter()
        app = testbed.session.deploy(topology, name, config=config)
        try:
            probe.await_arrivals(1, check_of(app))
            taken.add(DEPLOY, time.perf_counter() - start)
            time.sleep(_SETTLED_SECONDS)
            former = pids_of(app.reports)
            taken.add(PAUSE, _timed(app.pause))
            taken.add(RESUME, *_resumed(probe, app, former))
            time.sleep(_SETTLED_SECONDS)
            negated = passing(source, sink, lambda value: b"-" + value)
            taken.add(EDIT, edited(probe, app, negated, is_new=lambda arrival: arrival.sent < 0))
            if idle_seconds:
                await_running(app)
                former = pids_of(app.reports)
                app.pause()
                time.sleep(idle_seconds)
                taken.add(f"{RESUME} after {idle_seconds:g} s", *_resumed(probe, app, former))
            time.sleep(_SETTLED_SECONDS)
            taken.add(STOP, _timed(app.stop))
        finally:
            app.stop()
            testbed.session.cleanup(name)
    testbed.admin.delete_topics([source, sink])


def pids_of(report: ApplicationReport) -> set[int]:
    """Return the ids of the instances' worker processes, as they report them."""
    return {one.pid for one in report.instances.values()}


def _resumed(probe: Probe, app: Any, former: set[int]) -> tuple[float, int]:
    """Return the seconds from the call until a record that is on the topic already is written, and the number of new
    processes."""
    probe.send()
    wanted = probe.sent

    def resume() -> None:
        app.resume()
        probe.await_arrivals(wanted, check_of(app))

    seconds = _timed(resume)
    await_running(app)
    return seconds, len(pids_of(app.reports) - former)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
