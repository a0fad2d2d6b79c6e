"""Latency of a record from the call that sends it to a reader of committed output: at a slow and a fast pace, within one epoch and across
the ends of short epochs, which are counted; under both guarantees; beside a bare client's transactions of one record and Kafka Streams.

The cases of a turn run one after the other, so that a ratio compares what was measured within minutes.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from kstreams_repl.engine.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.peers.kafka_streams import KAFKA_STREAMS, KafkaStreamsPeer, chosen_jdk, peer_option
from workshop.bench.rig import json_output
from workshop.bench.rig.deployed import Settings
from workshop.bench.rig.probe import Probe, TransactionProbe, await_running, check_of, passing, warm_up
from workshop.bench.rig.testbed import Testbed, open_testbed, where
from workshop.bench.rig.timeline import Stamps, Times, medians, read_stamps, slowest
from workshop.bench.rig.workloads import Topics

BENCH = "latency"
_LONG_EPOCH_MS = 600_000
_SHORT_EPOCH_MS = 2_000
_TURN_SECONDS = 0.25
_WARM_SECONDS = 1.0
_PEER_WARM_SECONDS = 5.0
"""The JVM compiles what it runs."""
_MORE_SECONDS = 1.0
"""Extra time of sending if fewer epochs ended than expected."""
_EAGER_MS = 5
"""Commit interval of the peer's second case at the slow pace: our instances commit this often while no records wait."""
_STAMPED = 400
"""Records per second whose times are noted for the timeline, about."""
_FLOOR, _HOP = "a bare client's transaction", "a bare client's record"
_PEER = f" {KAFKA_STREAMS}"

_numbers = itertools.count()
Running = tuple[Probe, Callable[[], None], Callable[[], int]]
"""A probe of what runs, a function that raises if it failed, and one that returns the number of epochs that ended."""


@dataclass(slots=True)
class _Case:
    """What is measured in each turn.

    Attributes:
        name: of its line.
        open: makes what runs, for the length of a block.
        multiples: quantiles of this case as a multiple of another's: the field, the quantile, and the other's name.
    """

    name: str
    rate: float
    open: Callable[[], Any]
    fields: dict[str, Any]
    warm_seconds: float = _WARM_SECONDS
    turns: int = 0
    multiples: tuple[tuple[str, str, str], ...] = ()
    timeline: Callable[[Any, dict[int, int]], list[Times]] | None = None
    taken: list[list[float]] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)
    turned: int = 0


@click.command(help="Input record to read_committed output, in ms: p50 (the value), p95, p99, max; medians of the runs' quantiles.")
@click.option("--slow", type=click.FloatRange(1), default=50, show_default=True, help="Records per second of the slow cases.")
@click.option("--fast", type=click.FloatRange(1), default=20_000, show_default=True, help="Records per second of the fast case.")
@click.option("--seconds", type=click.FloatRange(1), default=15, show_default=True, help="Seconds of each case within an epoch.")
@click.option("--turns", type=click.IntRange(0), default=20, show_default=True, help="Number of epoch ends to run over; 0: skip this case.")
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option("--commit-ms", type=click.IntRange(0), default=100, show_default=True, help="commit.interval.ms of both systems.")
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True)
@click.option("--timeline", is_flag=True, help="Also print where the time of a record goes.")
@click.option("--case", "wanted", multiple=True, metavar="TEXT", help="Only cases whose name contains this; may be repeated.")
@peer_option
@where
def main(
    slow: float,
    fast: float,
    seconds: float,
    turns: int,
    instances: int,
    commit_ms: int,
    runs: int,
    timeline: bool,
    wanted: tuple[str, ...],
    peer: str | None,
    bootstrap: str | None,
    directory: Path | None,
) -> None:
    """Print one line per case."""
    json_output.emit_machine()
    with ExitStack() as stack:
        jdk = chosen_jdk(peer)
        testbed = stack.enter_context(open_testbed(bootstrap, directory))
        jvm = None if jdk is None else stack.enter_context(KafkaStreamsPeer(jdk, scratch=testbed.scratch))
        stamps = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-stamps-"))) if timeline else None
        warm_up(testbed, instances=instances)
        cases = [
            each
            for each in _cases(testbed, jvm, Settings(instances=instances, commit_ms=commit_ms), slow, fast, turns, stamps)
            if not wanted or any(text in each.name for text in wanted)
        ]
        for _ in range(runs):
            for case in cases:
                _measure(case, seconds)
                _emit(case, {each.name: each for each in cases})


def _cases(
    testbed: Testbed, jvm: KafkaStreamsPeer | None, settings: Settings, slow: float, fast: float, turns: int, stamps: Path | None
) -> Iterator[_Case]:
    def ours(name: str, rate: float, guarantee: str, epoch_ms: int = _LONG_EPOCH_MS, **more: Any) -> _Case:
        config = {
            "processing.guarantee": guarantee,
            "num.stream.threads": settings.instances,
            "commit.interval.ms": settings.commit_ms,
            "repl.epoch.ms": epoch_ms,
        }
        stamped = None if stamps is None else Path(tempfile.mkdtemp(dir=stamps))
        function = {} if stamped is None else {"function": Stamps(stamped, max(1, int(rate / _STAMPED)))}
        timeline = None if stamped is None else lambda probe, read: read_stamps(stamped, read)
        fields = {"epoch_ms": epoch_ms, "instances": settings.instances}
        return _Case(name, rate, lambda: _deployed(testbed, config, function), fields, timeline=timeline, **more)

    def theirs(name: str, rate: float, guarantee: str, commit_ms: int) -> _Case:
        assert jvm is not None
        chosen = Settings(guarantee=guarantee, instances=settings.instances, commit_ms=commit_ms)
        fields = {"instances": settings.instances, "commit_interval_ms": commit_ms}
        return _Case(name, rate, lambda: _peer(testbed, jvm, chosen), fields, warm_seconds=_PEER_WARM_SECONDS)

    def bare(floor: str, kind: type[Probe]) -> _Case:
        return _Case(floor, slow, lambda: _floor(testbed, kind), {}, timeline=None if stamps is None else kind.timeline)

    slowly, fastly, at_least_once = f"{slow:g}/s within an epoch", f"{fast:g}/s within an epoch", f"{slow:g}/s at least once"
    floor, hop = f"{slow:g}/s {_FLOOR}", f"{slow:g}/s {_HOP}"
    if jvm is not None:
        yield theirs(f"{slowly}{_PEER}", slow, EXACTLY_ONCE_V2, settings.commit_ms)
        yield theirs(f"{slowly}, a commit every {_EAGER_MS} ms{_PEER}", slow, EXACTLY_ONCE_V2, _EAGER_MS)
        yield theirs(f"{at_least_once}{_PEER}", slow, AT_LEAST_ONCE, settings.commit_ms)
        yield theirs(f"{fastly}{_PEER}", fast, EXACTLY_ONCE_V2, settings.commit_ms)
    yield bare(floor, TransactionProbe)
    yield ours(slowly, slow, EXACTLY_ONCE_V2, multiples=(("of_floor", "p50", floor), ("of_peer", "p50", f"{slowly}{_PEER}")))
    yield bare(hop, Probe)
    yield ours(at_least_once, slow, AT_LEAST_ONCE, multiples=(("of_floor", "p50", hop), ("of_peer", "p50", f"{at_least_once}{_PEER}")))
    if turns:
        yield ours(f"{slow:g}/s over {turns} epoch turns", slow, EXACTLY_ONCE_V2, _SHORT_EPOCH_MS, turns=turns)
    yield ours(fastly, fast, EXACTLY_ONCE_V2, multiples=(("of_peer", "p99", f"{fastly}{_PEER}"),))


def _measure(case: _Case, seconds: float) -> None:
    span = max(seconds, case.turns * (_SHORT_EPOCH_MS / 1000 + _TURN_SECONDS)) if case.turns else seconds
    with case.open() as (probe, check, ended):
        probe.send_at(case.rate, case.warm_seconds)
        probe.await_arrivals(probe.sent, check)
        warm = probe.arrived
        first, began = ended(), time.perf_counter()
        probe.send_at(case.rate, span)
        while ended() - first < case.turns and time.perf_counter() - began < 2 * span:
            probe.send_at(case.rate, _MORE_SECONDS)
        probe.await_arrivals(probe.sent, check)
        case.turned += ended() - first
        arrivals = probe.arrivals[warm:]
        case.taken.append([arrival.milliseconds for arrival in arrivals])
    if case.timeline is not None:
        case.times += case.timeline(probe, {arrival.sent: arrival.arrived for arrival in arrivals})


def _emit(case: _Case, cases: dict[str, _Case]) -> None:
    runs = [json_output.quantiles(taken) for taken in case.taken]
    found = {name: round(statistics.median(run[name] for run in runs), 2) for name in ("p50", "p95", "p99")}
    more: dict[str, Any] = {"max": max(run["max"] for run in runs)}
    if len(runs) > 1:
        more |= {"runs": len(runs)} | {f"{name}s": [run[name] for run in runs] for name in ("p50", "p99")}
    for multiple, quantile, other in case.multiples:
        if other in cases:  # measured before this one in each turn
            pairs = zip(runs, map(json_output.quantiles, cases[other].taken), strict=False)
            ratios = [run[quantile] / base[quantile] for run, base in pairs]
            more |= {multiple: round(statistics.median(ratios), 2)} if ratios else {}
    counts = {"records": sum(map(len, case.taken)), "pace": case.rate, "turns": case.turned}
    json_output.emit(BENCH, case.name, found["p50"], "ms", **found, **more, **counts, **case.fields)
    if case.times:
        json_output.emit(BENCH, f"{case.name}, steps", found["p50"], "ms", **medians(case.times))
        json_output.emit(BENCH, f"{case.name}, steps of the slowest percent", found["p99"], "ms", **medians(slowest(case.times)))


# ---- what runs


@contextmanager
def _topics(testbed: Testbed) -> Iterator[tuple[str, str]]:
    number = next(_numbers)  # of a peer's name, too: it would begin at the offsets of the one before
    source, sink = testbed.fresh_topic(f"bench-latency-in-{number}"), testbed.fresh_topic(f"bench-latency-out-{number}")
    try:
        yield source, sink
    finally:
        testbed.admin.delete_topics([source, sink])


@contextmanager
def _deployed(testbed: Testbed, config: dict[str, Any], function: dict[str, Any]) -> Iterator[Running]:
    with _topics(testbed) as (source, sink):
        app = testbed.session.deploy(passing(source, sink, **function), "bench-latency", config=config)
        try:
            with Probe(testbed.settings, source, sink) as probe:
                await_running(app)
                yield probe, check_of(app), lambda: _ended(testbed, app)
        finally:
            app.stop()
            testbed.session.cleanup("bench-latency")


@contextmanager
def _floor(testbed: Testbed, kind: type[Probe]) -> Iterator[Running]:
    """Run nothing: the probe's records go to the topic that it reads."""
    with _topics(testbed) as (_, sink), kind(testbed.settings, sink, sink) as probe:
        yield probe, lambda: None, lambda: 0


@contextmanager
def _peer(testbed: Testbed, jvm: KafkaStreamsPeer, settings: Settings) -> Iterator[Running]:
    """Run Kafka Streams, whose producer does not linger: its records are sent at once, not only by a commit."""
    with (
        _topics(testbed) as (source, sink),
        jvm.running(
            testbed,
            "passing",
            Topics(source, "", sink),
            settings,
            source.replace("-in-", "-peer-"),
            options={"linger-ms": 0, "compression": "none"},
        ) as check,
        Probe(testbed.settings, source, sink) as probe,
    ):
        probe.send()
        probe.await_arrivals(1, check)
        yield probe, check, lambda: 0


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
