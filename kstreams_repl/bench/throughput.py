"""Records per second of the deployed workloads, from the first record processed to the last one committed; optionally compared
with Kafka Streams on the JVM: same broker, same topic, same commit interval, linger and compression, and the final outputs
compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from kstreams_repl.bench import json_output, outputs
from kstreams_repl.bench.deployed import Measured, Settings, run_workload
from kstreams_repl.bench.outputs import Output
from kstreams_repl.bench.peers.kafka_streams import KAFKA_STREAMS, KafkaStreamsPeer, PeerRun, chosen_jdk, peer_option
from kstreams_repl.bench.testbed import Testbed, open_testbed, where
from kstreams_repl.bench.workloads import WORKLOADS, Topics
from kstreams_repl.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from kstreams_repl.errors import KStreamsError

BENCH = "throughput"
BOTH = "both"
RECORDS = 2_000_000
RECORDS_WITH_PEER = 10_000_000


@click.command(help="Deployed on Spark: records/s per workload and guarantee; --peer kafka-streams also runs Kafka Streams on the JVM.")
@click.option("--workload", "workloads", multiple=True, type=click.Choice(list(WORKLOADS)), help="Only these; default: all.")
@click.option("--guarantee", type=click.Choice([EXACTLY_ONCE_V2, AT_LEAST_ONCE, BOTH]), default=BOTH, show_default=True)
@click.option(
    "--records",
    type=click.IntRange(1),
    help=f"Default: {RECORDS}, and {RECORDS_WITH_PEER} with --peer (the JVM needs time to warm up).",
)
@click.option("--keys", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True, help="Instances; threads of the peer.")
@click.option("--commit-ms", type=click.IntRange(0), default=100, show_default=True)
@click.option("--epoch-ms", type=click.IntRange(500), default=10_000, show_default=True, help="Length of an epoch.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--max-seconds", type=click.IntRange(1), default=300, show_default=True, help="Of one run.")
@peer_option
@where
def main(
    workloads: tuple[str, ...],
    guarantee: str,
    records: int | None,
    keys: int,
    instances: int,
    commit_ms: int,
    epoch_ms: int,
    runs: int,
    max_seconds: int,
    peer: str | None,
    bootstrap: str | None,
    directory: Path | None,
) -> None:
    """Print one line per workload, guarantee and system, and one with the ratio of the two. Exit status 1 when the outputs
    differ, or cannot be compared because the peer did not finish.
    """
    json_output.emit_machine()
    records = records_of(records, peer)
    guarantees = (EXACTLY_ONCE_V2, AT_LEAST_ONCE) if guarantee == BOTH else (guarantee,)
    faults: list[str] = []
    with ExitStack() as stack:
        jdk = chosen_jdk(peer)
        testbed = stack.enter_context(open_testbed(bootstrap, directory))
        jvm = None if jdk is None else stack.enter_context(KafkaStreamsPeer(jdk, scratch=testbed.scratch))
        topics = testbed.input_topics(records, keys)
        testbed.session.spark  # noqa: B018 (Spark starts before the first measured run)
        for mode in guarantees:
            settings = Settings(mode, instances, commit_ms, epoch_ms, max_seconds)
            for workload in workloads or tuple(WORKLOADS):
                case = _Case(testbed, workload, topics, records, keys, settings, jvm)
                if fault := case.measure(runs):
                    click.echo(f"{case.name}: {fault}", err=True)
                    faults.append(f"{case.name}: {fault}")
    if faults:
        raise KStreamsError(
            f"the output differs from Kafka Streams', or was not compared: {'; '.join(faults)}",
            hint="give an unfinished peer more time: --max-seconds; repeat one workload: --workload",
        )


def records_of(wanted: int | None, peer: str | None) -> int:
    """Return the number of records of a run: the requested one, or enough for the comparison that is made."""
    if wanted is not None:
        return wanted
    return RECORDS if peer is None else RECORDS_WITH_PEER


def fault_of(runs: Sequence[PeerRun], records: int, ours: Output | None, theirs: Output | None) -> str | None:
    """Return why the peer's output is not known to equal ours; None if it does, or if there is no peer.

    Args:
        ours, theirs: outputs of the last runs; None if not read, for example because the peer did not finish.
    """
    if not runs:
        return None
    unfinished = sum(not run.complete for run in runs)
    if unfinished:
        return f"{unfinished} of {len(runs)} runs of the peer did not finish all {records:,} records"
    if ours is None or theirs is None:
        return "an output could not be read"
    differences = ours.differences(theirs)
    return f"{differences} differences in the final output ({ours} against {theirs})" if differences else None


@dataclass(frozen=True, slots=True)
class _Case:
    """One workload under one guarantee."""

    testbed: Testbed
    workload: str
    topics: Topics
    records: int
    keys: int
    settings: Settings
    peer: KafkaStreamsPeer | None

    @property
    def name(self) -> str:
        return f"{self.workload} {self.settings.guarantee}"

    def measure(self, runs: int) -> str | None:
        """Alternate our runs with the peer's; returns why the outputs of the last two are not known to be equal, or None."""
        ours: list[Measured] = []
        theirs: list[PeerRun] = []
        output: Output | None = None
        other: Output | None = None
        for number in range(1, runs + 1):
            last = number == runs and self.peer is not None
            measured, output = self._run_ours(number, read=last)
            ours.append(measured)
            if self.peer is not None:
                run, other = self._run_peer(self.peer, number, read=last)
                theirs.append(run)
        fault = fault_of(theirs, self.records, output, other)
        sizes = {"records": self.records, "keys": self.keys, "instances": self.settings.instances}
        sizes |= {"commit_ms": self.settings.commit_ms, "epoch_ms": self.settings.epoch_ms}
        emit_comparison(BENCH, self.name, ours, theirs, same=fault is None, **sizes)
        return fault

    def _run_ours(self, number: int, *, read: bool) -> tuple[Measured, Output | None]:
        name = f"bench-{self.workload}-{self.settings.guarantee.replace('_', '-')}-{number}"
        topics = replace(self.topics, output=self.testbed.fresh_topic(f"{name}-out"))
        measured = run_workload(self.testbed, self.workload, topics, self.records, self.settings, name)
        output = outputs.read_output(self.testbed, topics.output, table=self.workload in outputs.TABLES) if read else None
        self.testbed.admin.delete_topics([topics.output])
        return measured, output

    def _run_peer(self, peer: KafkaStreamsPeer, number: int, *, read: bool) -> tuple[PeerRun, Output | None]:
        name = f"peer-{self.workload}-{self.settings.guarantee.replace('_', '-')}-{number}"
        topics = replace(self.topics, output=self.testbed.fresh_topic(f"out-{name}"))
        run = peer.run(self.testbed, self.workload, topics, self.records, self.settings, name)
        output = outputs.read_output(self.testbed, topics.output, table=self.workload in outputs.TABLES) if read and run.complete else None
        self.testbed.admin.delete_topics([topics.output])
        return run, output


def emit_comparison(bench: str, case: str, ours: Sequence[Measured], theirs: Sequence[PeerRun], *, same: bool, **fields: Any) -> None:
    """Print the line of our runs and, if there is a peer, its line and the ratio.

    Args:
        same: the outputs are known to be equal.
        fields: of our line and the peer's.
    """
    rates = [run.rate for run in ours]
    json_output.emit(
        bench,
        case,
        json_output.median(rates),
        "records/s",
        **json_output.spread(rates),
        seconds=json_output.median([run.seconds for run in ours], digits=2),
        cpu_seconds=json_output.median([run.cpu_seconds for run in ours], digits=1),
        per_core_second=json_output.median([run.records / max(run.cpu_seconds, 0.01) for run in ours]),
        broker_cpu_seconds=json_output.median([run.broker_cpu_seconds for run in ours], digits=1),
        peak_rss_mb=max(run.rss_mb + run.broker_rss_mb for run in ours),
        broker_rss_mb=max(run.broker_rss_mb for run in ours),
        **fields,
    )
    if not theirs:
        return
    others = [run.rate for run in theirs]
    json_output.emit(
        bench,
        f"{case} {KAFKA_STREAMS}",
        json_output.median(others),
        "records/s",
        **json_output.spread(others),
        seconds=json_output.median([run.seconds for run in theirs], digits=2),
        cpu_seconds=json_output.median([run.cpu_seconds for run in theirs], digits=1),
        per_core_second=json_output.median([run.records / max(run.cpu_seconds, 0.01) for run in theirs]),
        peak_rss_mb=max(run.rss_mb for run in theirs),
        complete=all(run.complete for run in theirs),
        **(fields | {"state_mb": theirs[-1].state_mb or None}),
    )
    ratio = statistics.median(rates) / statistics.median(others)
    json_output.emit(bench, f"{case} ratio", round(ratio, 2), "x", same_output=same, records=ours[-1].records)
