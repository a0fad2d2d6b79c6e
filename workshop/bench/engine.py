"""The sans-IO engine alone: one thread, in-memory stores; includes record queues, stream time, serdes, changelog and a commit
every 100 ms; no Kafka, no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import click

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.nodes.collector import Send, SendMany, Site
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.host.instance.process.gc_tuning import relax_collector
from kstreams_repl.host.instance.process.huge_pages import EVERY_RECORDS, use_huge_pages
from kstreams_repl.host.telemetry import RecordTracer
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import Headers, RecordBatch, TaskId, TopicPartition
from kstreams_repl.test_driver.driver import TopologyTestDriver
from workshop.bench.peers.kafka_streams import chosen_jdk, peer_option
from workshop.bench.peers.schema_peer import SchemaPeer
from workshop.bench.rig import json_output, workloads
from workshop.bench.rig.record_schemas import FORMATS, record_serde

CASES = ("stateless", "count", "window", "join")
_BATCH = 10_000
_COMMIT_SECONDS = 0.1


class _Sink:
    """Keeps the output until the next commit, as a producer's queue would."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes | None, bytes | None, int]] = []
        self.records = 0

    def sender(self, topic: str, site: Site | None = None) -> Send:
        return self.senders(topic)[0]

    def senders(self, topic: str) -> tuple[Send, SendMany]:
        append, extend = self.sent.append, self.sent.extend

        def send(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            append((key, value, timestamp))

        def send_many(keys: Any, values: Any, timestamps: Any, headers: object, partitions: object) -> None:
            extend(zip(keys, values, timestamps, strict=True))

        return send, send_many

    def partitions(self, topic: str) -> int:
        return 1

    def partition_of(self, topic: str, key: bytes) -> int:
        return 0

    def committed(self) -> None:
        self.records += len(self.sent)
        self.sent.clear()


def _batches(rows: list[workloads.Row], topic: str) -> list[tuple[TopicPartition, RecordBatch]]:
    at = TopicPartition(topic, 0)
    return [
        (at, RecordBatch([r[0] for r in part], [r[1] for r in part], [r[2] for r in part], list(range(start, start + len(part)))))
        for start in range(0, len(rows), _BATCH)
        if (part := rows[start : start + _BATCH])
    ]


def run_once(
    workload: str,
    rows: list[workloads.Row],
    table: list[workloads.Row],
    *,
    topology: Any = None,
    registry: str | None = None,
    tracer: RecordTracer | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, int]:
    """Return the seconds for the stream's records through one task, and the number of output records.

    Args:
        clock: measures the seconds, here without the reading of a table.
    """
    topology = topology or workloads.topology(workload)
    (sub,) = topology.subtopologies()
    partitions = {TopicPartition(topic, 0): node.name for node in sub.nodes if isinstance(node, SourceNode) for topic in node.topics}
    sink, now = _Sink(), int(time.time() * 1000)
    config = StreamsConfig({"application.id": "bench", **({"schema.registry.url": registry} if registry else {})})
    spec = TaskSpec("bench", sub, TaskId(0, 0), partitions, config)
    task = StreamTask(spec, environment=MemoryEnvironment(), collector=sink, wall_clock=lambda: now, tracer=tracer)
    task.initialize()
    commits = 0

    def commit() -> None:
        nonlocal commits
        task.prepare_commit()
        sink.committed()
        commits += 1
        task.post_commit(commits, {})

    def work(batches: list[tuple[TopicPartition, RecordBatch]]) -> None:
        committed, done = time.perf_counter(), 0
        for at, batch in batches:
            for other in partitions:
                task.set_lag(other, 0)
            task.add_records(at, batch)
            while task.process(_BATCH):
                task.punctuate_stream_time()
            if time.perf_counter() - committed >= _COMMIT_SECONDS:
                commit()
                committed = time.perf_counter()
            done += len(batch)
            if task.stores and done >= EVERY_RECORDS:
                use_huge_pages()
                done = 0
        commit()

    if workload == "join":
        work(_batches(table, workloads.TABLE))
    batches = _batches(rows, workloads.INPUT)
    relax_collector()
    started = clock()
    work(batches)
    seconds = clock() - started
    task.close()
    return seconds, sink.records


def run_traced(rates: Sequence[float], cases: Sequence[str], rows: list[workloads.Row], table: list[workloads.Row], runs: int) -> None:
    """Print, for each workload and rate of tracing, how many times the processor time without tracing it takes, all threads together. Runs
    with and without take turns; the spans go to a collector in another process."""
    with subprocess.Popen([sys.executable, "-c", _COLLECTOR], stdout=subprocess.PIPE, text=True) as collector:
        assert collector.stdout is not None
        endpoint = f"http://127.0.0.1:{collector.stdout.readline().strip()}"
        for case in cases:
            spent: dict[float | None, list[float]] = {rate: [] for rate in (None, *rates)}
            for _ in range(runs):
                for rate, seconds in spent.items():
                    tracer = None if rate is None else RecordTracer("bench", rate, endpoint, StreamsConfig({})["repl.trace.limit"])
                    seconds.append(run_once(case, rows, table, tracer=tracer, clock=time.process_time)[0])
                    if tracer is not None:
                        tracer.close()
            for rate in rates:
                ratios = [traced / plain for traced, plain in zip(spent[rate], spent[None], strict=True)]
                middle, spread = json_output.median(ratios, digits=3), json_output.spread(ratios, digits=3)
                json_output.emit("engine", f"{case}, traced {rate:g}", middle, "x processor time", **spread, records=len(rows))
        collector.terminate()


_COLLECTOR = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass

server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
"""A program that takes what is exported and keeps nothing."""

_PURCHASE = "user:long amount:long item ts:long"


def schema_lines(format: str, rows: list[workloads.Row], runs: int, peer: SchemaPeer | None = None) -> Iterator[tuple[str, list[float]]]:
    """Iterate over cases of values with a schema in a real Schema Registry, each with the records/s of its runs: read, one field changed,
    written by the engine; by the serde alone; and by the peer's.

    Raises:
        KStreamsError: the peer writes other bytes.
    """
    from kstreams_repl.host.kafka.embedded.registry import EmbeddedRegistry

    serde = record_serde(format, "Purchase", _PURCHASE)
    builder = StreamsBuilder()
    changed = builder.stream(workloads.INPUT, key_serde="string", value_serde=serde).map_values(lambda value: value | {"amount": 1})
    changed.to(workloads.OUTPUT, key_serde="string", value_serde=serde)
    topology = builder.build()
    with EmbeddedRegistry() as registry:
        bound = serde.for_topic(workloads.INPUT, "value", (("url", registry.url),))
        read, write = bound.deserialize, bound.serialize
        encoded = [(key, write(json.loads(value)) or b"", timestamp) for key, value, timestamp in rows]
        yield format, [len(rows) / run_once(format, encoded, [], topology=topology, registry=registry.url)[0] for _ in range(runs)]
        values, alone, written = [value for _, value, _ in encoded], [], [b""]
        for _ in range(runs):
            started = time.perf_counter()
            written = [write(read(value) | {"amount": 1}) or b"" for value in values]
            alone.append(len(rows) / (time.perf_counter() - started))
        yield f"{format}, serde alone", alone
        if peer is not None:
            found = peer.run(format, registry.url, values, runs)
            if found.crc != zlib.crc32(b"".join(written)):
                raise KStreamsError(f"the JVM writes other {format} values")
            yield f"{format}, serde alone, JVM", list(found.rates)


_COLUMNS = {"user": int, "amount": int, "item": str}


def _by_functions(stream: Any) -> Any:
    large = stream.filter(lambda key, value: value["amount"] > 500)
    return large.map_values(lambda value: {"user": value["user"], "item": value["item"], "total": value["amount"] * 2})


def _by_sql(stream: Any) -> Any:
    return stream.sql("SELECT user, item, amount * 2 AS total FROM this WHERE amount > 500", columns=_COLUMNS)


def _by_batches(stream: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    def large(batch: Any) -> Any:
        kept = batch.select([*_COLUMNS, "row"]).filter(pc.greater(batch["amount"], 500))
        columns = {"user": kept["user"], "item": kept["item"], "total": pc.multiply(kept["amount"], 2), "row": kept["row"]}
        return pa.RecordBatch.from_pydict(columns)

    return stream.map_batches(large, columns=_COLUMNS)


def _groups_by_functions(stream: Any) -> Any:
    def add(key: str, value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        amount = value["amount"]
        return {"orders": row["orders"] + 1, "total": row["total"] + amount, "high": max(row["high"], amount)}

    first = {"orders": 0, "total": 0, "high": 0}
    return stream.group_by_key().aggregate(lambda: first, add, value_serde="json").to_stream()


def _groups_by_sql(stream: Any) -> Any:
    query = "SELECT count(*) AS orders, sum(amount) AS total, max(amount) AS high FROM this GROUP BY key"
    return stream.sql(query, columns={"amount": int}, store="totals").to_stream()


QUERIES: dict[str, Callable[[Any], Any]] = {
    "functions": _by_functions, "sql": _by_sql, "map_batches": _by_batches, "groups-functions": _groups_by_functions,
    "groups-sql": _groups_by_sql,
}  # fmt: skip
"""The same query over JSON values in three ways: filter and projection; and an aggregate by key in two."""


def query_topology(case: str) -> Any:
    """Return the topology of one of `QUERIES`."""
    builder = StreamsBuilder()
    stream = builder.stream(workloads.INPUT, key_serde="string", value_serde="json")
    QUERIES[case](stream).to(workloads.OUTPUT, key_serde="string", value_serde="json")
    return builder.build()


@click.command(help="Engine alone: records/s per workload, median of the runs.")
@click.option("--records", default=500_000, show_default=True)
@click.option("--keys", "key_counts", default=(10_000,), multiple=True, show_default=True, help="Distinct keys; give it several times.")
@click.option("--runs", default=5, show_default=True)
@click.option("--fields", default=4, show_default=True, type=click.IntRange(4), help="Fields of the JSON objects of the queries.")
@click.option(
    "--case", "cases", multiple=True, type=click.Choice([*CASES, "sum", "driver", *QUERIES, *FORMATS]), help="Only these; default: all."
)
@click.option("--trace", "traced", multiple=True, type=click.FloatRange(0, 1), help="What this rate of tracing costs; several times.")
@peer_option
def main(
    records: int, key_counts: tuple[int, ...], runs: int, fields: int, cases: tuple[str, ...], traced: tuple[float, ...], peer: str | None
) -> None:
    """Print one JSON line per workload, and one for the test driver (which commits after every record)."""
    json_output.emit_machine()
    if traced:
        run_traced(traced, cases or CASES, workloads.input_rows(records, key_counts[0]), workloads.table_rows(key_counts[0]), runs)
        return
    jdk = chosen_jdk(peer if set(cases) & set(FORMATS) else None)
    with nullcontext() if jdk is None else SchemaPeer(jdk) as jvm:
        for keys in key_counts:
            rows, table = workloads.input_rows(records, keys), workloads.table_rows(keys)
            for case in cases or (*CASES, "driver"):
                if case not in QUERIES:
                    for name, rates in _cases_of(case, rows, table, runs, jvm):
                        _emit(name, rates, records, keys)
            _run_queries([case for case in cases if case in QUERIES], rows, runs, keys, fields)


def _run_queries(cases: list[str], rows: list[workloads.Row], runs: int, keys: int, fields: int) -> None:
    """Run queries in turns; print how many times the records per second of the same query by functions each has."""
    topologies = {case: query_topology(case) for case in cases}
    more = b"".join(b',"field%d":%b' % (number, b'"a text"' if number % 2 else b"12345") for number in range(4, fields))
    rows = [(key, value[:-1] + more + b"}", timestamp) for key, value, timestamp in rows] if more else rows
    turns = [{case: len(rows) / run_once(case, rows, [], topology=topologies[case])[0] for case in cases} for _ in range(runs)]
    for case in cases:
        functions = "groups-functions" if case.startswith("groups") else "functions"
        name = f"{case}, {keys:,} keys" if case.startswith("groups") else case if fields == 4 else f"{case}, {fields} fields"
        ratios = [rates[case] / rates[functions] for rates in turns if functions in cases]
        to_functions = json_output.median(ratios, digits=2) if ratios and case != functions else None
        _emit(name, [rates[case] for rates in turns], len(rows), keys, fields=fields, to_functions=to_functions)


def _emit(case: str, rates: list[float], records: int, keys: int, **more: object) -> None:
    spread = json_output.spread(rates)
    json_output.emit("engine", case, json_output.median(rates), "records/s", **more, **spread, records=records, keys=keys)


def _cases_of(
    case: str, rows: list[workloads.Row], table: list[workloads.Row], runs: int, jvm: SchemaPeer | None
) -> Iterator[tuple[str, list[float]]]:
    """Iterate over the lines of a case: name and records/s of each run."""
    if case in FORMATS:
        yield from schema_lines(case, rows, runs, jvm)
    elif case == "driver":
        yield case, [_driver_rate(rows[: len(rows) // 10]) for _ in range(runs)]
    else:
        yield case, [len(rows) / run_once(case, rows, table)[0] for _ in range(runs)]


def _driver_rate(rows: list[workloads.Row]) -> float:
    with TopologyTestDriver(workloads.topology("count")) as driver:
        topic = driver.create_input_topic(workloads.INPUT, serdes.bytes, serdes.bytes)
        started = time.perf_counter()
        for key, value, timestamp in rows:
            topic.pipe_input(key, value, timestamp)
        return len(rows) / (time.perf_counter() - started)
