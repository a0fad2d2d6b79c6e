"""Bounded runs: records per second next to the same topology as a stream and next to Spark's AvailableNow trigger, and what a run
without new input costs.

Spark's Kafka connector is not part of its Python package, so its query reads the same records from files and writes its result to
files: it is spared fetching, deserializing, transactions and changelogs. Both clocks of a comparison cover the same: from the call to
its return in a warm session, or, next to the stream, from the first record processed to the last one committed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from kstreams_repl.engine.serdes import long
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig import json_output, outputs, workloads
from workshop.bench.rig.deployed import Settings, run_workload
from workshop.bench.rig.record_files import FORMATS, write_files
from workshop.bench.rig.testbed import PARTITIONS, Testbed, open_testbed, where
from workshop.bench.rig.workloads import Topics

BENCH = "batch"
_MODULE = """
from workshop.bench.rig import workloads
from kstreams_repl import StreamsBuilder

def topology():
    builder = StreamsBuilder()
    workloads.count(builder, workloads.Topics({input!r}, output={output!r}))
    return builder
"""


@click.command(help="Bounded runs of a count: next to the stream, next to Spark's AvailableNow over files, and without new input.")
@click.option("--records", type=click.IntRange(1), default=4_000_000, show_default=True)
@click.option("--keys", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(["rates", "empty"]), help="Only these; default: both.")
@where
def main(
    records: int, keys: int, instances: int, runs: int, only: tuple[str, ...], bootstrap: str | None, directory: Path | None
) -> None:
    """Print one line per system, one per ratio, and one per empty run; the last outputs are compared."""
    json_output.emit_machine()
    with open_testbed(bootstrap, directory) as testbed, TemporaryDirectory(dir=testbed.scratch) as scratch:
        if not only or "rates" in only:
            topics = testbed.input_topics(records, keys)
            _Rates(testbed, topics, records, Settings(instances=instances), Path(scratch)).measure(runs)
        if not only or "empty" in only:
            _empty(testbed, runs, Path(scratch))


class _Rates:
    """One topology over one input: as a stream, as a bounded run, and as Spark's own query."""

    def __init__(self, testbed: Testbed, topics: Topics, records: int, settings: Settings, scratch: Path) -> None:
        self._testbed, self._topics, self._records, self._settings = testbed, topics, records, settings
        self._files = scratch
        self._counts: dict[bytes | None, int] = {}

    def measure(self, runs: int) -> None:
        """Alternate the systems."""
        files = {kind: write_files(self._testbed, self._topics.input, self._files / kind, kind) for kind in FORMATS}
        self._testbed.session.spark  # noqa: B018 (Spark starts before the first measured run)
        streamed: list[float] = []
        clocked: list[float] = []
        called: list[float] = []
        peers: dict[str, list[float]] = {kind: [] for kind in FORMATS}
        for number in range(runs):
            streamed.append(self._stream(number))
            rate, whole = self._bounded(number)
            clocked.append(rate)
            called.append(whole)
            for kind in FORMATS:
                peers[kind].append(self._available_now(files[kind], kind, number))
            latest = {"stream": streamed, "bounded": clocked, "its call": called, **peers}
            click.echo(f"run {number + 1}: " + ", ".join(f"{name} {rates[-1]:,.0f}/s" for name, rates in latest.items()), err=True)
        self._emit("count as a stream", streamed)
        self._emit("count as a bounded run", clocked)
        self._emit("count as a bounded run, call to return", called)
        for kind in FORMATS:
            self._emit(f"count by Spark's AvailableNow over {kind}, call to return", peers[kind])
        self._ratio("bounded run to stream", clocked, streamed)
        for kind in FORMATS:
            self._ratio(f"bounded run to AvailableNow over {kind}", called, peers[kind])

    def _emit(self, case: str, rates: list[float]) -> None:
        value = json_output.median(rates)
        json_output.emit(BENCH, case, value, "records/s", **json_output.spread(rates), records=self._records)

    def _ratio(self, case: str, ours: list[float], theirs: list[float]) -> None:
        value = round(statistics.median(ours) / statistics.median(theirs), 2)
        json_output.emit(BENCH, f"{case} ratio", value, "x", records=self._records)

    def _stream(self, number: int) -> float:
        topics = self._output(f"bench-stream-{number}-out")
        rate = run_workload(self._testbed, "count", topics, self._records, self._settings, f"bench-stream-{number}").rate
        self._testbed.admin.delete_topics([topics.output])
        return rate

    def _bounded(self, number: int) -> tuple[float, float]:
        """Return the rates from the first record to the last commit, and from the call to its return."""
        name = f"bench-bounded-{number}"
        topics = self._output(f"{name}-out")
        config = {key: value for key, value in self._settings.config().items() if key != "commit.interval.ms"}  # its own default
        began = time.monotonic()
        app = self._testbed.session.run_batch(workloads.topology("count", topics), name, config=config)
        seconds = time.monotonic() - began
        reports = app.reports.instances.values()
        first = min(one.first_at for one in reports if one.first_at is not None)
        last = max(one.committed_at for one in reports if one.committed_at is not None)
        if app.batch_report is None or app.batch_report.records_in != self._records:
            raise KStreamsError(f"the bounded run did not read all {self._records:,} records: {app.batch_report}")
        found = outputs.read_output(self._testbed, topics.output, outputs.Compared.TABLE).last
        self._counts = {key: long.deserialize(value) for key, value in found.items()}
        self._testbed.session.cleanup(name)
        self._testbed.admin.delete_topics([topics.output])
        return self._records / (last - first), self._records / seconds

    def _available_now(self, files: Path, kind: str, number: int) -> float:
        """Return the rate of Spark's own query, with as many shuffle partitions as the topic has."""
        spark = self._testbed.session.spark
        scratch = self._files / f"run-{kind}-{number}"
        source = spark.readStream.schema("key string, value string, timestamp long").format(kind).load(str(files))
        counts = source.groupBy("key").count()

        def write(batch: Any, epoch: int) -> None:
            batch.write.mode("append").parquet(str(scratch / "out"))

        former = str(spark.conf.get("spark.sql.shuffle.partitions"))
        spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
        began = time.monotonic()
        try:
            query = (
                counts.writeStream.outputMode("update")
                .foreachBatch(write)
                .option("checkpointLocation", str(scratch / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", former)
        seconds = time.monotonic() - began
        rows = spark.read.parquet(str(scratch / "out")).groupBy("key").max("count").collect()
        if {row[0].encode(): row[1] for row in rows} != self._counts:
            raise KStreamsError("Spark's counts differ from those of the bounded run")
        return self._records / seconds

    def _output(self, name: str) -> Topics:
        return replace(self._topics, output=self._testbed.fresh_topic(name))


def _empty(testbed: Testbed, runs: int, scratch: Path) -> None:
    """Measure runs without new input: as a command of its own, and in a warm session."""
    source, sink, name = testbed.fresh_topic("bench-empty-in"), testbed.fresh_topic("bench-empty-out"), "bench-empty"
    testbed.fill(source, 1000, workloads.stream_rows(1000, 10, first_ms=int(time.time() * 1000)))
    settings = {"processing.guarantee": "exactly_once_v2"}
    topics = Topics(source, output=sink)

    def bounded() -> None:
        testbed.session.run_batch(workloads.topology("count", topics), name, config=settings)

    bounded()
    folder = scratch / "empty"
    folder.mkdir()
    (folder / "bench_jobs.py").write_text(_MODULE.format(input=source, output=sink))
    command = [sys.executable, "-m", "kstreams_repl.cli", "run", "bench_jobs:topology", "--name", name, "--batch"]
    command += ["--broker", testbed.session.settings.bootstrap_servers, "--directory", str(folder), "--report", "out.json"]
    command += ["--config", "processing.guarantee=exactly_once_v2"]
    root = str(Path(__file__).parents[2])

    def cold(what: str) -> None:
        done = subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True)
        if done.returncode or what not in done.stdout:
            raise KStreamsError(f"the empty run failed: {done.stdout[-500:]}{done.stderr[-2000:]}")

    for case, work in (("empty run, process start to exit", lambda: cold("nothing new")), ("empty run, warm session", bounded)):
        values = [_seconds(work) for _ in range(runs)]
        json_output.emit(BENCH, case, json_output.median(values, digits=2), "s", **json_output.spread(values, digits=2))
    values = []
    for _ in range(runs):
        testbed.session.produce(source, [("key", "{}")])
        values.append(_seconds(bounded))
    json_output.emit(
        BENCH, "run of one record, warm session", json_output.median(values, digits=2), "s", **json_output.spread(values, digits=2)
    )
    testbed.session.cleanup(name)
    testbed.admin.delete_topics([source, sink])


def _seconds(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
