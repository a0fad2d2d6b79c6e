"""`./kstreams bench nexmark`: the queries of the Nexmark benchmark deployed on Spark; optionally compared with their twins on Kafka
Streams, over the same topics.

The clock runs from the first record processed to the last one committed, records of repartition topics included. A rate is that of the
records on the topics that a query reads.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from kstreams_repl.bench import json_output, nexmark_events
from kstreams_repl.bench.deployed import Measured, Settings, run_topology
from kstreams_repl.bench.nexmark_queries import QUERIES, Compared, Query
from kstreams_repl.bench.outputs import Output, read_output
from kstreams_repl.bench.peers.kafka_streams import KafkaStreamsPeer, PeerRun, chosen_jdk, peer_option
from kstreams_repl.bench.processes import megabytes_in
from kstreams_repl.bench.testbed import Testbed, open_testbed, where
from kstreams_repl.bench.throughput import emit_comparison, fault_of
from kstreams_repl.bench.workloads import Topics
from kstreams_repl.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from kstreams_repl.errors import KStreamsError
from kstreams_repl.instance.state.state_directory import application_directory
from kstreams_repl.session.application.application import Application

BENCH = "nexmark"
_SETTLE_SECONDS = 1.5
"""A topology with repartition topics has finished when it has processed nothing for so long: many commit intervals."""


@click.command(help="Nexmark's queries deployed on Spark: records/s, also per core; --peer kafka-streams also runs their twins on the JVM.")
@click.option("--query", "names", multiple=True, type=click.Choice(list(QUERIES)), help="Only these; default: all.")
@click.option("--events", type=click.IntRange(50), default=1_000_000, show_default=True, help="q3, q8: ten times, our own: twice.")
@click.option("--guarantee", type=click.Choice([EXACTLY_ONCE_V2, AT_LEAST_ONCE]), default=EXACTLY_ONCE_V2, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True, help="Instances; threads of the peer.")
@click.option("--commit-ms", type=click.IntRange(0), default=100, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True)
@click.option("--max-seconds", type=click.IntRange(1), default=300, show_default=True, help="Of one run.")
@peer_option
@where
def main(
    names: tuple[str, ...],
    events: int,
    guarantee: str,
    instances: int,
    commit_ms: int,
    runs: int,
    max_seconds: int,
    peer: str | None,
    bootstrap: str | None,
    directory: Path | None,
) -> None:
    """Print one line per query and system, and one with the ratio. Exit status 1 when outputs differ, or cannot be compared."""
    json_output.emit_machine()
    settings = Settings(guarantee, instances, commit_ms, max_seconds=max_seconds)
    faults: list[str] = []
    with ExitStack() as stack:
        jdk = chosen_jdk(peer)
        testbed = stack.enter_context(open_testbed(bootstrap, directory))
        jvm = None if jdk is None else stack.enter_context(KafkaStreamsPeer(jdk, scratch=testbed.scratch))
        testbed.session.spark  # noqa: B018 (Spark starts before the first measured run)
        for name in names or tuple(QUERIES):
            case = _Case(testbed, name, QUERIES[name], events * QUERIES[name].scale, settings, jvm)
            if fault := case.measure(runs):
                click.echo(f"{name}: {fault}", err=True)
                faults.append(f"{name}: {fault}")
    if faults:
        raise KStreamsError(
            f"the output differs from Kafka Streams', or was not compared: {'; '.join(faults)}",
            hint="give an unfinished peer more time: --max-seconds; repeat one query: --query",
        )


@dataclass(frozen=True, slots=True)
class _Case:
    """One query over its topics."""

    testbed: Testbed
    name: str
    query: Query
    events: int
    settings: Settings
    peer: KafkaStreamsPeer | None

    @property
    def prefix(self) -> str:
        return f"nexmark-{self.events}"

    def measure(self, runs: int) -> str | None:
        """Alternate our runs with the peer's; returns why the outputs of the last two are not known to be equal, or None."""
        inputs = self._fill()
        ours: list[Measured] = []
        theirs: list[PeerRun] = []
        sizes: list[float] = []
        output: Output | None = None
        other: Output | None = None
        for number in range(1, runs + 1):
            last = number == runs and self.peer is not None
            measured, output = self._run_ours(f"nexmark-{self.name}-{number}", inputs, sizes, read=last)
            ours.append(measured)
            if self.peer is not None:
                run, other = self._run_peer(self.peer, f"nexmark-peer-{self.name}-{number}", inputs, read=last)
                theirs.append(run)
        records = sum(inputs.values())
        fault = fault_of(theirs, records, output, other)
        fields = {"records": records, "instances": self.settings.instances, "state_mb": sizes[-1] or None, "what": self.query.what}
        emit_comparison(BENCH, self.name, ours, theirs, same=fault is None, **fields)
        return fault

    def _fill(self) -> dict[str, int]:
        """Write the query's topics unless they exist; returns the number of records of each that it consumes."""
        first_ms = int(time.time() * 1000) // 60_000 * 60_000 - self.events // nexmark_events.EVENTS_PER_MS
        inputs = {}
        for kind in (*self.query.reads, *(["side"] if self.name == "q13" else [])):
            records = nexmark_events.records_of(kind, self.events)
            self.testbed.fill(f"{self.prefix}-{kind}", records, nexmark_events.rows_of(kind, self.events, first_ms=first_ms))
            if kind in self.query.reads:
                inputs[f"{self.prefix}-{kind}"] = records
        return inputs

    def _run_ours(self, name: str, inputs: dict[str, int], sizes: list[float], *, read: bool) -> tuple[Measured, Output | None]:
        def weigh(app: Application) -> None:
            sizes.append(megabytes_in(application_directory(self.testbed.session.client.state_root, name)))

        topic = self.testbed.fresh_topic(f"{name}-out")
        topology = self.query.topology(self.prefix, topic)
        measured = run_topology(self.testbed, topology, inputs, self.settings, name, then=weigh, settle_seconds=_SETTLE_SECONDS)
        output = self._read(topic) if read else None
        self.testbed.admin.delete_topics([topic])
        return measured, output

    def _run_peer(self, peer: KafkaStreamsPeer, name: str, inputs: dict[str, int], *, read: bool) -> tuple[PeerRun, Output | None]:
        topics = Topics(self.prefix, "", self.testbed.fresh_topic(f"out-{name}"))
        records, settle_ms = sum(inputs.values()), int(_SETTLE_SECONDS * 1000)
        run = peer.run(self.testbed, self.name, topics, records, self.settings, name, twin=True, settle_ms=settle_ms)
        output = self._read(topics.output) if read and run.complete else None
        self.testbed.admin.delete_topics([topics.output])
        return run, output

    def _read(self, topic: str) -> Output:
        output = read_output(self.testbed, topic, table=self.query.compared is not Compared.RECORDS)
        return output.summed() if self.query.compared is Compared.SUMS else output
