"""Comparison with other stream processors for Python: the same topics on the same broker, in one run of the command."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click

from kstreams_repl.engine.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.peers.kafka_streams import PeerRun
from workshop.bench.peers.python_peer import PEERS, PythonPeer, peers_of
from workshop.bench.rig import json_output
from workshop.bench.rig.deployed import Settings, run_workload
from workshop.bench.rig.testbed import Testbed, open_testbed, where
from workshop.bench.rig.workloads import WORKLOADS, Topics

BENCH = "python-peers"
OURS = "kstreams_repl"


@click.command(help="Compared with Quix Streams, Bytewax and Faust; --python names an environment that contains one of them.")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A Python with quixstreams, bytewax or faust-streaming (and orjson); may be given several times.",
)
@click.option("--workload", "chosen", multiple=True, type=click.Choice(list(WORKLOADS)), help="Only these; default: all.")
@click.option("--records", type=click.IntRange(1), default=2_000_000, show_default=True)
@click.option("--keys", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True, help="Instances; processes of a peer.")
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True)
@click.option("--peer-seconds", type=click.IntRange(1), default=15, show_default=True, help="Maximum seconds of one run of a peer.")
@where
def main(
    pythons: tuple[Path, ...],
    chosen: tuple[str, ...],
    records: int,
    keys: int,
    instances: int,
    runs: int,
    peer_seconds: int,
    bootstrap: str | None,
    directory: Path | None,
) -> None:
    """Print one line per workload and system, and one per workload with the ratio of the slower of our guarantees to the fastest
    peer."""
    peers = {peer.name: (peer, python) for python in pythons for peer in peers_of(python)}
    if not peers:
        raise KStreamsError(
            f"none of {', '.join(peer.package for peer in PEERS.values())} can be imported by {', '.join(map(str, pythons))}",
            hint="python -m venv peers && peers/bin/pip install quixstreams bytewax orjson",
        )
    json_output.emit_machine()
    with ExitStack() as stack:
        testbed = stack.enter_context(open_testbed(bootstrap, directory))
        topics = testbed.input_topics(records, keys)
        testbed.session.spark  # noqa: B018 (Spark starts before the first measured run)
        for workload in chosen or tuple(WORKLOADS):
            sitting = _Comparison(testbed, workload, topics, records, instances, runs)
            slowest = min(sitting.ours(guarantee) for guarantee in (EXACTLY_ONCE_V2, AT_LEAST_ONCE))
            fastest = max(
                sitting.theirs(peer, python, guarantee, peer_seconds)
                for peer, python in peers.values()
                for guarantee in peer.guarantees
            )
            json_output.emit(BENCH, f"{workload} ratio", round(slowest / fastest, 2), "x", records=records)


class _Comparison:
    """One workload, measured with this package and with the peers."""

    def __init__(self, testbed: Testbed, workload: str, topics: Topics, records: int, instances: int, runs: int) -> None:
        self._site, self._workload, self._topics = testbed, workload, topics
        self._records, self._instances, self._runs = records, instances, runs

    def ours(self, guarantee: str) -> float:
        """Return the median rate of this package."""
        settings = Settings(guarantee, self._instances)
        rates, cpu = [], []
        for number in range(1, self._runs + 1):
            name = f"bench-{self._workload}-{guarantee.replace('_', '-')}-{number}"
            topics = self._output(name)
            run = run_workload(self._site, self._workload, topics, self._records, settings, name)
            self._site.admin.delete_topics([topics.output])
            rates.append(run.rate)
            cpu.append(run.cpu_seconds)
        return self._emit(f"{self._workload} {guarantee} {OURS}", rates, cpu, [self._records] * self._runs)

    def theirs(self, peer: PythonPeer, python: Path, guarantee: str, seconds: int) -> float:
        """Return the median rate of a peer; a run that timed out counts with the records processed by then."""
        settings = Settings(guarantee, self._instances, max_seconds=seconds)
        runs: list[PeerRun] = []
        for number in range(1, self._runs + 1):
            name = f"{peer.name}-{self._workload}-{guarantee.replace('_', '-')}-{number}"
            topics = self._output(name)
            runs.append(peer.run(python, self._site, self._workload, topics, self._records, settings, name))
            self._site.admin.delete_topics([topics.output])
        name = f"{self._workload} {guarantee} {peer.name}"
        return self._emit(name, [run.rate for run in runs], [run.cpu_seconds for run in runs], [run.records for run in runs])

    def _output(self, name: str) -> Topics:
        return replace(self._topics, output=self._site.fresh_topic(f"out-{name}"))

    def _emit(self, case: str, rates: list[float], cpu: list[float], processed: list[int]) -> float:
        value = json_output.median(rates)
        json_output.emit(
            BENCH,
            case,
            value,
            "records/s",
            **json_output.spread(rates),
            records=min(processed),
            cpu_us_per_record=json_output.median([1e6 * used / count for used, count in zip(cpu, processed, strict=True)], digits=1),
            instances=self._instances,
        )
        return value
