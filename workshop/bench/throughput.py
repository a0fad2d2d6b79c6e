"""Records per second of the deployed workloads, from the first record processed to the last one committed; optionally compared
with Kafka Streams on the JVM (`comparison`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from kstreams_repl.engine.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from workshop.bench.peers.kafka_streams import KafkaStreamsPeer, PeerRun
from workshop.bench.rig import outputs
from workshop.bench.rig.comparison import Case, compare, comparison_options
from workshop.bench.rig.deployed import MeasuredRun, Settings, run_workload
from workshop.bench.rig.outputs import Compared, Output
from workshop.bench.rig.testbed import Testbed
from workshop.bench.rig.workloads import WORKLOADS, Topics

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
@click.option("--epoch-ms", type=click.IntRange(500), default=10_000, show_default=True, help="Length of an epoch.")
@comparison_options(runs=3)
def main(
    workloads: tuple[str, ...],
    guarantee: str,
    records: int | None,
    keys: int,
    instances: int,
    commit_ms: int,
    epoch_ms: int,
    max_seconds: int,
    peer: str | None,
    **comparison: Any,
) -> None:
    """Print a line after each run, and one per workload and guarantee with the ratio of the two systems. Exit status 1 when the outputs
    differ, or cannot be compared because the peer did not finish.
    """
    count = records_of(records, peer)

    def cases(testbed: Testbed) -> Iterator[Case]:
        topics = testbed.input_topics(count, keys)
        for mode in (EXACTLY_ONCE_V2, AT_LEAST_ONCE) if guarantee == BOTH else (guarantee,):
            settings = Settings(mode, instances, commit_ms, epoch_ms, max_seconds)
            for workload in workloads or tuple(WORKLOADS):
                name = f"{workload}-{mode.replace('_', '-')}"
                yield _WorkloadCase(
                    testbed, settings, f"{workload} {mode}", count, f"bench-{name}", f"peer-{name}", workload, topics, keys
                )

    compare(BENCH, cases, repeat="--workload", peer=peer, **comparison)


def records_of(wanted: int | None, peer: str | None) -> int:
    """Return the number of records of a run: the requested one, or enough for the comparison that is made."""
    if wanted is not None:
        return wanted
    return RECORDS if peer is None else RECORDS_WITH_PEER


@dataclass(frozen=True, slots=True)
class _WorkloadCase(Case):
    """One workload under one guarantee."""

    workload: str
    topics: Topics
    keys: int

    def run(self, name: str, output: str) -> MeasuredRun:
        return run_workload(self.testbed, self.workload, replace(self.topics, output=output), self.records, self.settings, name)

    def run_peer(self, peer: KafkaStreamsPeer, name: str, output: str) -> PeerRun:
        return peer.run(self.testbed, self.workload, replace(self.topics, output=output), self.records, self.settings, name)

    def read(self, output: str) -> Output:
        return outputs.read_output(self.testbed, output, Compared.TABLE if self.workload in outputs.TABLES else Compared.RECORDS)

    def fields(self) -> dict[str, Any]:
        sizes = {"records": self.records, "keys": self.keys, "instances": self.settings.instances}
        return sizes | {"commit_ms": self.settings.commit_ms, "epoch_ms": self.settings.epoch_ms}
