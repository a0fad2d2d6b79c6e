"""`./kstreams bench nexmark`: the queries of the Nexmark benchmark deployed on Spark; optionally compared with their twins on Kafka
Streams, over the same topics.

The clock runs from the first record processed to the last one committed, records of repartition topics included. A rate is that of the
records on the topics that a query reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from kstreams_repl.bench import nexmark_events
from kstreams_repl.bench.comparison import Case, compare, comparison_options
from kstreams_repl.bench.deployed import Measured, Settings, run_topology
from kstreams_repl.bench.nexmark_queries import QUERIES, Compared, Query
from kstreams_repl.bench.outputs import Output, read_output
from kstreams_repl.bench.peers.kafka_streams import KafkaStreamsPeer, PeerRun
from kstreams_repl.bench.processes import megabytes_in
from kstreams_repl.bench.testbed import Testbed
from kstreams_repl.bench.workloads import Topics
from kstreams_repl.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from kstreams_repl.instance.state.state_directory import application_directory
from kstreams_repl.session.application.application import Application

BENCH = "nexmark"
_SETTLE_SECONDS = 1.5
"""A topology with repartition topics has finished when it has processed nothing for so long: many commit intervals."""


@click.command(help="Nexmark's queries deployed on Spark: records/s, also per core; --peer kafka-streams also runs their twins on the JVM.")
@click.option("--query", "names", multiple=True, type=click.Choice(list(QUERIES)), help="Only these; default: all.")
@click.option("--events", type=click.IntRange(50), default=1_000_000, show_default=True, help="q3, q8: ten times, our own: twice.")
@click.option("--guarantee", type=click.Choice([EXACTLY_ONCE_V2, AT_LEAST_ONCE]), default=EXACTLY_ONCE_V2, show_default=True)
@comparison_options(runs=1)
def main(
    names: tuple[str, ...], events: int, guarantee: str, instances: int, commit_ms: int, max_seconds: int, **comparison: Any
) -> None:
    """Print a line after each run, and one per query with the ratio. Exit status 1 when outputs differ, or cannot be compared."""
    settings = Settings(guarantee, instances, commit_ms, max_seconds=max_seconds)

    def cases(testbed: Testbed) -> Iterator[Case]:
        for name in names or tuple(QUERIES):
            yield _case(testbed, settings, name, events * QUERIES[name].scale)

    compare(BENCH, cases, repeat="--query", **comparison)


@dataclass(frozen=True, slots=True)
class _QueryCase(Case):
    """One query over its topics, whose names begin with `prefix`."""

    query: Query
    prefix: str
    inputs: dict[str, int]
    sizes: list[float] = field(default_factory=list)

    def run(self, name: str, output: str) -> Measured:
        def weigh(app: Application) -> None:
            self.sizes.append(megabytes_in(application_directory(self.testbed.session.client.state_root, name)))

        topology = self.query.topology(self.prefix, output)
        return run_topology(self.testbed, topology, self.inputs, self.settings, name, then=weigh, settle_seconds=_SETTLE_SECONDS)

    def run_peer(self, peer: KafkaStreamsPeer, name: str, output: str) -> PeerRun:
        topics, settle_ms = Topics(self.prefix, "", output), int(_SETTLE_SECONDS * 1000)
        return peer.run(self.testbed, self.name, topics, self.records, self.settings, name, twin=True, settle_ms=settle_ms)

    def read(self, output: str) -> Output:
        found = read_output(self.testbed, output, table=self.query.compared is not Compared.RECORDS)
        return found.summed() if self.query.compared is Compared.SUMS else found

    def fields(self) -> dict[str, Any]:
        state_mb = self.sizes[-1] or None
        return {"records": self.records, "instances": self.settings.instances, "state_mb": state_mb, "what": self.query.what}


def _case(testbed: Testbed, settings: Settings, name: str, events: int) -> _QueryCase:
    """Write the query's topics unless they exist; return its case, with the number of records of each topic that it consumes."""
    query, prefix = QUERIES[name], f"nexmark-{events}"
    first_ms = int(time.time() * 1000) // 60_000 * 60_000 - events // nexmark_events.EVENTS_PER_MS
    inputs = {}
    for kind in (*query.reads, *(["side"] if name == "q13" else [])):
        records = nexmark_events.records_of(kind, events)
        testbed.fill(f"{prefix}-{kind}", records, nexmark_events.rows_of(kind, events, first_ms=first_ms))
        if kind in query.reads:
            inputs[f"{prefix}-{kind}"] = records
    return _QueryCase(
        testbed, settings, name, sum(inputs.values()), f"nexmark-{name}", f"nexmark-peer-{name}", query, prefix, inputs
    )
