"""Latency of a record from the call that sends it to a reader of committed output, under exactly once: at a slow and a fast pace,
within one epoch and across the ends of short epochs, which are counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig import json_output
from workshop.bench.rig.probe import Probe, await_running, passing, warm_up
from workshop.bench.rig.testbed import Testbed, open_testbed, where

BENCH = "latency"
_LONG_EPOCH_MS = 600_000
_SHORT_EPOCH_MS = 2_000
_TURN_SECONDS = 0.25
_WARM_SECONDS = 1.0
_MORE_SECONDS = 1.0
"""Extra time of sending if fewer epochs ended than expected."""


@click.command(help="Input record to read_committed output under exactly_once_v2, in ms: p50 (the value), p95, p99, max.")
@click.option("--slow", type=click.FloatRange(1), default=50, show_default=True, help="Records per second of the slow cases.")
@click.option("--fast", type=click.FloatRange(1), default=20_000, show_default=True, help="Records per second of the fast case.")
@click.option("--seconds", type=click.FloatRange(1), default=15, show_default=True, help="Seconds of each case within an epoch.")
@click.option("--turns", type=click.IntRange(0), default=20, show_default=True, help="Number of epoch ends to run over; 0: skip this case.")
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@where
def main(
    slow: float, fast: float, seconds: float, turns: int, instances: int, bootstrap: str | None, directory: Path | None
) -> None:
    """Print one line per pace and kind of epoch."""
    json_output.emit_machine()
    with open_testbed(bootstrap, directory) as testbed:
        warm_up(testbed, instances=instances)
        _case(testbed, f"{slow:g}/s within an epoch", slow, seconds, _LONG_EPOCH_MS, instances)
        if turns:
            span = turns * (_SHORT_EPOCH_MS / 1000 + _TURN_SECONDS)
            _case(testbed, f"{slow:g}/s over {turns} epoch turns", slow, span, _SHORT_EPOCH_MS, instances, turns)
        _case(testbed, f"{fast:g}/s within an epoch", fast, seconds, _LONG_EPOCH_MS, instances)


def _case(testbed: Testbed, case: str, rate: float, seconds: float, epoch_ms: int, instances: int, turns: int = 0) -> None:
    source, sink = testbed.fresh_topic("bench-latency-in"), testbed.fresh_topic("bench-latency-out")
    config = {"processing.guarantee": EXACTLY_ONCE_V2, "num.stream.threads": instances, "repl.epoch.ms": epoch_ms}
    app = testbed.session.deploy(passing(source, sink), "bench-latency", config=config)
    try:
        with Probe(testbed.settings, source, sink) as probe:
            await_running(app)
            probe.send_at(rate, _WARM_SECONDS)
            probe.await_arrivals(probe.sent, app)
            warm = probe.arrived
            first, began = _ended(testbed, app), time.perf_counter()
            probe.send_at(rate, seconds)
            while _ended(testbed, app) - first < turns and time.perf_counter() - began < 2 * seconds:
                probe.send_at(rate, _MORE_SECONDS)
            probe.await_arrivals(probe.sent, app)
            turned, lasted = _ended(testbed, app) - first, time.perf_counter() - began
            taken = [arrival.milliseconds for arrival in probe.arrivals[warm:]]
    finally:
        app.stop()
        testbed.session.cleanup("bench-latency")
        testbed.admin.delete_topics([source, sink])
    found = json_output.quantiles(taken)
    json_output.emit(
        BENCH,
        case,
        found["p50"],
        "ms",
        **found,
        records=len(taken),
        pace=rate,
        epoch_ms=epoch_ms,
        instances=instances,
        turns=turned,
        seconds=round(lasted, 1),
    )


def _ended(testbed: Testbed, app: Application) -> int:
    return epochs_ended(testbed.session.spark.streams.active, f"{app.name}-{app.reports.generation}")


def epochs_ended(queries: Iterable[Any], name: str) -> int:
    """Return how many epochs of a generation's query have ended, as Spark counts its micro-batches.

    Raises:
        KStreamsError: no query of this name is running.
    """
    for query in queries:
        if query.name == name:
            last = query.lastProgress
            return 0 if last is None else int(last["batchId"]) + 1
    raise KStreamsError(f"no query {name!r} runs, so its epochs cannot be counted", hint="the application was paused or stopped meanwhile")
