"""The sans-IO engine alone: one thread, in-memory stores; includes record queues, stream time, serdes, changelog and a commit
every 100 ms; no Kafka, no Spark."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import click

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.bench import workloads
from kstreams_repl.config import StreamsConfig
from kstreams_repl.instance.gc_tuning import relax_collector
from kstreams_repl.instance.huge_pages import EVERY_RECORDS, use_huge_pages
from kstreams_repl.runtime.collector import Send, SendMany, Site
from kstreams_repl.runtime.task import StreamTask, TaskSpec
from kstreams_repl.stores.engine.memory import MemoryEnvironment
from kstreams_repl.testing.driver import TopologyTestDriver
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.types import Headers, RecordBatch, TaskId, TopicPartition

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

        def send_many(keys: Any, values: Any, timestamps: Any, headers: Any, partitions: Any) -> None:
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
    workload: str, rows: list[workloads.Row], table: list[workloads.Row], *, topology: Any = None, registry: str | None = None
) -> tuple[float, int]:
    """Return the seconds for the stream's records through one task, and the number of output records."""
    topology = topology or workloads.topology(workload)
    (sub,) = topology.subtopologies()
    partitions = {TopicPartition(topic, 0): node.name for node in sub.nodes if isinstance(node, SourceNode) for topic in node.topics}
    sink, now = _Sink(), int(time.time() * 1000)
    config = StreamsConfig({"application.id": "bench", **({"schema.registry.url": registry} if registry else {})})
    spec = TaskSpec("bench", sub, TaskId(0, 0), partitions, config)
    task = StreamTask(spec, environment=MemoryEnvironment(), collector=sink, wall_clock=lambda: now)
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
    started = time.perf_counter()
    work(batches)
    seconds = time.perf_counter() - started
    task.close()
    return seconds, sink.records


def _schema_rates(case: str, rows: list[workloads.Row], runs: int) -> list[float]:
    """Read and write values with a schema in a real Schema Registry, one field changed: records/s of each run."""
    from kstreams_repl.kafka.embedded.registry import EmbeddedRegistry

    serde = SCHEMAS[case]()
    builder = StreamsBuilder()
    changed = builder.stream(workloads.INPUT, key_serde="string", value_serde=serde).map_values(lambda value: value | {"amount": 1})
    changed.to(workloads.OUTPUT, key_serde="string", value_serde=serde)
    topology = builder.build()
    with EmbeddedRegistry() as registry:
        write = serde.for_topic(workloads.INPUT, "value", (("url", registry.url),)).serialize
        encoded = [(key, write(json.loads(value)) or b"", timestamp) for key, value, timestamp in rows]
        return [len(rows) / run_once(case, encoded, [], topology=topology, registry=registry.url)[0] for _ in range(runs)]


def _avro() -> serdes.Serde:
    fields = [{"name": name, "type": "string" if name == "item" else "long"} for name in ("user", "amount", "item", "ts")]
    return serdes.avro({"type": "record", "name": "Purchase", "fields": fields})


def _protobuf() -> serdes.Serde:
    fields = "int64 user = 1; int64 amount = 2; string item = 3; int64 ts = 4;"
    return serdes.protobuf(schema=f'syntax = "proto3"; message Purchase {{ {fields} }}')


SCHEMAS = {"avro": _avro, "protobuf": _protobuf}

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
@click.option("--keys", default=10_000, show_default=True, help="Distinct keys, picked at random.")
@click.option("--runs", default=5, show_default=True)
@click.option(
    "--case", "cases", multiple=True, type=click.Choice([*CASES, "sum", "driver", *QUERIES, *SCHEMAS]), help="Only these; default: all."
)
def main(records: int, keys: int, runs: int, cases: tuple[str, ...]) -> None:
    """Print one JSON line per workload, and one for the test driver (which commits after every record)."""
    rows, table = workloads.input_rows(records, keys), workloads.table_rows(keys)
    for case in cases or (*CASES, "driver"):
        if case == "driver":
            rates = [_driver_rate(rows[: records // 10]) for _ in range(runs)]
        elif case in QUERIES:
            topology = query_topology(case)
            rates = [records / run_once(case, rows, [], topology=topology)[0] for _ in range(runs)]
        elif case in SCHEMAS:
            rates = _schema_rates(case, rows, runs)
        else:
            rates = [records / run_once(case, rows, table)[0] for _ in range(runs)]
        line: dict[str, Any] = {"bench": "engine", "case": case, "value": round(statistics.median(rates)), "unit": "records/s"}
        line |= {"min": round(min(rates)), "max": round(max(rates)), "runs": runs, "records": records, "keys": keys}
        click.echo(json.dumps(line))


def _driver_rate(rows: list[workloads.Row]) -> float:
    with TopologyTestDriver(workloads.topology("count")) as driver:
        topic = driver.create_input_topic(workloads.INPUT, serdes.bytes, serdes.bytes)
        started = time.perf_counter()
        for key, value, timestamp in rows:
            topic.pipe_input(key, value, timestamp)
        return len(rows) / (time.perf_counter() - started)
