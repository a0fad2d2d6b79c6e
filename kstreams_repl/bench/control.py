"""How long control takes, as a user waits for it: deploy in a session that is warm until the first record is out and
committed, pause, resume until the next record is out, an edit of one function until a record is out that went through the new one, stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kstreams_repl.bench import lines
from kstreams_repl.bench.probe import Probe, edited, passing, warm_up
from kstreams_repl.bench.site import Site, open_site, where
from kstreams_repl.config import EXACTLY_ONCE_V2

BENCH = "control"
DEPLOY, PAUSE, RESUME, EDIT, STOP = "deploy to first record", "pause", "resume to first record", "edit to first record", "stop"
_SETTLED_SECONDS = 1.0


@click.command(help="Seconds: deploy in a warm session to first record, pause, resume and edit to first record, stop; median of the runs.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(0),
    default=65,
    show_default=True,
    help="One more resume, so long after its pause; Spark drops idle workers after a minute. 0 leaves it out.",
)
@where
def main(runs: int, instances: int, idle_seconds: float, bootstrap: str | None, directory: Path | None) -> None:
    """One line per step."""
    lines.emit_machine()
    taken: dict[str, list[float]] = {}
    with open_site(bootstrap, directory) as site:
        warm_up(site, instances=instances)
        for number in range(1, runs + 1):
            idle = idle_seconds if number == runs else 0.0
            for step, seconds in _life(site, f"bench-control-{number}", instances, idle).items():
                taken.setdefault(step, []).append(seconds)
    for step, values in taken.items():
        lines.emit(BENCH, step, lines.median(values, digits=3), "s", **lines.spread(values, digits=3), instances=instances)


def _life(site: Site, name: str, instances: int, idle_seconds: float) -> dict[str, float]:
    """One application from deploy to stop; seconds of each step."""
    source, sink = site.fresh_topic("bench-control-in"), site.fresh_topic("bench-control-out")
    config = {"processing.guarantee": EXACTLY_ONCE_V2, "num.stream.threads": instances}
    taken: dict[str, float] = {}
    app: Any = None
    with Probe(site.settings, source, sink) as probe:
        probe.send()  # it waits on the topic when the application comes
        topology = passing(source, sink)
        start = time.perf_counter()
        app = site.session.deploy(topology, name, config=config)
        try:
            probe.await_arrivals(1, app)
            taken[DEPLOY] = time.perf_counter() - start
            time.sleep(_SETTLED_SECONDS)
            taken[PAUSE] = _timed(app.pause)
            taken[RESUME] = _resumed(probe, app)
            time.sleep(_SETTLED_SECONDS)
            negated = passing(source, sink, lambda value: b"-" + value)
            taken[EDIT] = edited(probe, app, negated, is_new=lambda arrival: arrival.sent < 0)
            if idle_seconds:
                app.pause()
                time.sleep(idle_seconds)
                taken[f"{RESUME} after {idle_seconds:g} s"] = _resumed(probe, app)
            time.sleep(_SETTLED_SECONDS)
            taken[STOP] = _timed(app.stop)
        finally:
            app.stop()
            site.session.cleanup(name, confirm=True)
    site.admin.delete_topics([source, sink])
    return taken


def _resumed(probe: Probe, app: Any) -> float:
    """Seconds from the call until a record that waits on the topic is out."""
    probe.send()
    wanted = probe.sent

    def resume() -> None:
        app.resume()
        probe.await_arrivals(wanted, app)

    return _timed(resume)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
